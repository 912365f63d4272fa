"""What rounding can change a logit by: measured against float64, and bounded for any order of summation.

The bound follows errors through the model (Higham 2002, chapter 3): a sum of n products, in any order,
is off by at most gamma_n = n u / (1 - n u) times the sum of absolute values, where u is half the
distance from 1 to the next number. Errors that come in grow by the largest singular value of a matrix,
by 1 / s in a LayerNorm whose input has the standard deviation s, and by the size of keys, queries and
values in a softmax. All sizes are the largest that occurred in any context.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from abc_nb.certificates.automaton import Automaton
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.extremes import Extremes
from abc_nb.certificates.states import States
from abc_nb.certificates.tried import Tried, margins
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.transformer import DecoderLayer, Residual, Transformer

EXPONENTIAL = 8  # roundings that the exponential, the division and what surrounds them count for
SLACK = 1.001  # sizes were measured with rounding themselves


@dataclass(frozen=True)
class Value:
    """A bound on the error of a vector and on its size, as Euclidean norms."""

    error: float
    size: float

    def plus(self, other: Value, size: float, u: float) -> Value:
        return Value(self.error + other.error + 2 * u * size, size)


def measured(model: Transformer, rules: Automaton, tried: list[Tried]) -> dict[str, float]:
    """The contexts with the smallest margins again, in float64: the largest difference of a logit, the smallest margin."""
    exact, usual = States(deepcopy(model).double(), rules), States(model, rules)
    difference, least = 0.0, math.inf
    for each in tried:
        values = np.stack([values for _, values, _ in each.narrow])
        right = torch.tensor([right for _, _, right in each.narrow], device=usual.device)
        block = Block(values, right.cpu().numpy())
        precise = exact.logits(each.shape, block)
        difference = max(difference, float((usual.logits(each.shape, block) - precise).abs().max()))
        least = min(least, float(margins(precise, right).min()))
    return {"checked": float(sum(len(each.narrow) for each in tried)), "difference": difference, "margin": least}


def bounded(model: Transformer, extremes: Extremes) -> dict[str, float]:
    """A bound on the error of any logit in any context that was tried, however sums are ordered."""
    return {"bound": Bound(model, extremes).logit()}


class Bound:
    """Follows a bound on the error from the embeddings to the logits."""

    def __init__(self, model: Transformer, extremes: Extremes) -> None:
        self.model, self.extremes = model, extremes
        self.u = torch.finfo(model.head.weight.dtype).eps / 2

    def gamma(self, terms: int) -> float:
        return terms * self.u / (1 - terms * self.u)

    def logit(self) -> float:
        width = self.model.config.width
        size = float(self.model.embedding.weight.norm(dim=1).max()) * width**0.5 + (width / 2) ** 0.5
        memory = x = Value(3 * self.u * size, size)
        for number, layer in enumerate(self.model.decoder_layers):
            x = self.layer(number, layer, x, memory)
        if isinstance(self.model.decoder_norm, nn.LayerNorm):
            x = self.norm(x, self.model.decoder_norm)
        rows, offset = self.model.head.weight.double().norm(dim=1), self.model.head.bias.double().abs()
        return float((rows * x.error + self.gamma(width + 1) * (rows * x.size + offset)).max())

    def layer(self, number: int, layer: DecoderLayer, x: Value, memory: Value) -> Value:
        inner = self.inner(x, layer.self_residual)
        x = self.outer(x, self.attention(number, "self", layer.self_attention, inner, inner), layer.self_residual)
        inner = self.inner(x, layer.cross_residual)
        x = self.outer(x, self.attention(number, "cross", layer.cross_attention, inner, memory), layer.cross_residual)
        up, down = (part for part in layer.feed_forward if isinstance(part, nn.Linear))
        hidden = self.linear(self.inner(x, layer.forward_residual), up.weight, up.bias)
        return self.outer(x, self.linear(hidden, down.weight, down.bias), layer.forward_residual)

    def inner(self, x: Value, residual: Residual) -> Value:
        return self.norm(x, residual.norm) if residual.pre else x

    def outer(self, x: Value, change: Value, residual: Residual) -> Value:
        total = x.plus(change, x.size + change.size, self.u)
        return total if residual.pre else self.norm(total, residual.norm)

    def norm(self, x: Value, module: nn.LayerNorm) -> Value:
        """Centring, dividing by the standard deviation, and the scale and shift that were learned."""
        width = math.sqrt(len(module.weight))
        size = SLACK * self.extremes.largest[module]
        spread = math.sqrt(self.extremes.variance[module] / SLACK + module.eps) - x.error / width
        if spread <= 0:
            return Value(math.inf, math.inf)
        scale, shift = float(module.weight.abs().max()), float(module.bias.norm())
        rounded = self.gamma(len(module.weight) + EXPONENTIAL) * (2 * size / spread + width)
        after = scale * width + shift
        return Value(scale * (x.error / spread + rounded) + self.gamma(2) * after, after)

    def linear(self, x: Value, weight: Tensor, offset: Tensor) -> Value:
        matrix, shift = weight.double(), float(offset.double().norm())
        grows, absolute = largest(matrix), largest(matrix.abs())
        rounded = self.gamma(matrix.shape[1] + 1) * (absolute * x.size + shift)
        return Value(grows * x.error + rounded, grows * x.size + shift)

    def attention(self, number: int, name: str, module: MultiHeadAttention, x: Value, keys: Value) -> Value:
        """Queries from `x`, keys and values from `keys`, head by head."""
        errors, sizes = [], []
        for head in range(module.heads):
            errors.append(self.head(number, name, module, head, x, keys))
            sizes.append(self.size(number, name, "value", head))
        mixed = Value(math.hypot(*errors), math.hypot(*sizes))
        return self.linear(mixed, module.out.weight, module.out.bias)

    def head(self, number: int, name: str, module: MultiHeadAttention, head: int, x: Value, keys: Value) -> float:
        """The error of what one head mixes."""
        size = module.out.weight.shape[0] // module.heads
        rows = slice(head * size, (head + 1) * size)
        pairs = ((module.query, x), (module.key, keys), (module.value, keys))
        query_error, key_error, value_error = (
            self.linear(given, part.weight[rows], part.bias[rows]).error for part, given in pairs
        )
        query, key, value = (self.size(number, name, part, head) for part in ("query", "key", "value"))
        product = query * key
        logit = query_error * key + query * key_error + query_error * key_error + self.gamma(size + 4) * product
        logit = logit / math.sqrt(size) + 4 * self.u * (product / math.sqrt(size) + self.extremes.bias)
        slots = max(self.extremes.keys, 1)
        share = math.expm1(min(2 * logit, 700.0)) + self.gamma(2 * slots + EXPONENTIAL)
        return share * (value + value_error) + value_error

    def size(self, number: int, name: str, part: str, head: int) -> float:
        found = self.extremes.heads.get((number, name, part))
        return 0.0 if found is None else SLACK * float(found[head])


def largest(matrix: Tensor) -> float:
    """The largest singular value."""
    return float(torch.linalg.matrix_norm(matrix, 2))
