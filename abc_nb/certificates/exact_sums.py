"""A proof that nothing is rounded that an answer depends on: float64 can count the units of every sum.

It needs a model without norms and positions, whose heads see one key each, so that a softmax is 1, whatever its logit
is rounded to. Then all is sums of products of weights, and ReLU. Of each number of a state we know, whatever the tokens
are, what the absolute values of all that is added up come to at most, and the power of two of which each of them is a
whole multiple: its unit. Below 2^53 units float64 holds every part of a sum, in any order.
"""

import numpy as np
from torch import Tensor, nn

from abc_nb.certificates.contexts import Contexts, Node, Token
from abc_nb.model.layers import DecoderLayer
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import Transformer

COUNTED = 2.0**53  # whole numbers below it are held by float64
Numbers = tuple[np.ndarray, np.ndarray]  # of a state (D,): the most that each can come to, and its unit


class Sums:
    """What the sums of a model without norms, positions and encoder layers come to if every softmax is 1."""

    def __init__(self, model: Transformer) -> None:
        self.units = 0.0  # the largest ratio of a sum, or of the difference of two logits, to its own unit
        embedding, root = as_array(model.embedding.weight), np.array(model.config.width**0.5)
        x = problem = self.summed(abs(embedding).max(0) * root, (unit_of(embedding) * unit_of(root)).min(0))
        for layer in model.decoder.layers:
            attentions = [(layer.self_attention, x)]
            attentions += [(layer.cross_attention, problem)] if isinstance(layer, DecoderLayer) else []
            for attention, keys in attentions:
                x = self.added(x, self.mapped(attention.out, self.mapped(attention.value, keys)))
            up, *_, down = layer.feed_forward
            x = self.added(x, self.mapped(down, self.mapped(up, x)))
        logits = self.mapped(model.head, x)
        self.unit = float(self.added(logits, logits)[1].min())  # each logit is a whole multiple of it

    def summed(self, largest: np.ndarray, unit: np.ndarray) -> Numbers:
        with np.errstate(all="ignore"):  # where the unit is too small for float64 there is no proof
            self.units = float(np.maximum(self.units, (largest / unit).max()))
        return largest, unit

    def mapped(self, linear: nn.Linear, x: Numbers) -> Numbers:
        weight, bias = as_array(linear.weight), as_array(linear.bias)
        return self.summed(abs(weight) @ x[0] + abs(bias), np.minimum((unit_of(weight) * x[1]).min(1), unit_of(bias)))

    def added(self, x: Numbers, change: Numbers) -> Numbers:
        return self.summed(x[0] + change[0], np.minimum(x[1], change[1]))


def exact_sums(model: Transformer, contexts: Contexts) -> Sums | None:
    """The sums of a model if float64 rounds none of them in any context, else None."""
    if model.config.norm != "none" or not isinstance(model.config.position, NoPosition):
        return None
    if not all(sees_one(shape.root, model.decoder.decoder_only) for shape in contexts.shapes):
        return None
    sums = Sums(model)
    return sums if sums.units < COUNTED else None


def sees_one(root: Node | Token, together: bool) -> bool:
    """Whether no head sees two keys in any state of a tree; `together`: both attentions are under one softmax."""
    if isinstance(root, Token):
        return True
    softmaxes = [(*root.self_keys, *root.cross_keys)] if together else [root.self_keys, root.cross_keys]
    counts = [sum(np.isfinite(np.frombuffer(bias, np.float32)).astype(int) for bias, _ in keys) for keys in softmaxes]
    parts = (root.before, *(key for keys in softmaxes for _, key in keys))
    return all(np.max(count) <= 1 for count in counts) and all(sees_one(part, together) for part in parts)


def as_array(weights: Tensor) -> np.ndarray:
    array: np.ndarray = weights.detach().cpu().double().numpy()
    return array


def unit_of(numbers: np.ndarray) -> np.ndarray:
    """The largest power of two of which each number is a whole multiple; infinity for zero."""
    mantissa, exponent = np.frexp(numbers)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    return np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(float), exponent - 53))
