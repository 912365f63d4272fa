"""How many problems a model without positions must get wrong under its lines, whatever its weights are.

Without positions, attention sees a bag: what a step computes follows from its own state and from how often each pair of
a key's state and the bias there (of every head) occurs among the keys. So where a step sees the same in two problems,
it writes the same token. If these problems need different tokens, one of them is wrong, and training cannot help.
"""

from functools import cache

import numpy as np
import torch

from abc_nb.bias.base import ENCODER_DECODER, Attention, Bias, key_count
from abc_nb.certificates.fingerprints import Fingerprints, scrambled
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.digits import to_digits
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.specs.spec import Spec

TRIED = 2_000  # problems


def attended(keys: Fingerprints, bias: Bias, layout: Layout, name: Attention, layer: int, heads: int) -> Fingerprints:
    """What each query (problems, queries) sees of the keys under a layer's bias.

    A number that is added to a whole row of one head changes nothing in a softmax, so every row's highest is 0.
    """
    dense = bias.dense(layout, name, layer, heads)
    if dense is None:
        dense = torch.zeros(1, layout.target_length, key_count(layout, name))
    matrix = dense.movedim(0, -1).numpy()  # (query, key, head)
    highest = matrix.max(1, keepdims=True)
    matrix = matrix - np.where(np.isfinite(highest), highest, 0) + 0.0  # so that no zero is negative, with other bits
    head_codes = np.arange(1, heads + 1, dtype=np.uint64) << np.uint64(32)  # beside the 32 bits of a number
    codes = scrambled(matrix.view(np.uint32) + head_codes[: matrix.shape[-1]]).sum(-1)
    masks, keys = np.any(matrix > -np.inf, axis=-1), scrambled(keys)
    bags = [scrambled(keys[:, mask] + code[mask]).sum(1) for mask, code in zip(masks, codes, strict=True)]
    return np.stack(bags, 1)


def fingerprints(config: ModelConfig, bias: Bias, batch: Batch) -> Fingerprints:
    """What the last state of every step depends on: (problems, steps). Encoder layers have no bias."""
    source, state = (scrambled(tokens.numpy()) for tokens in (batch.source, batch.target[:, :-1]))
    for _ in range(config.encoder_layers):
        source = scrambled(source + scrambled(scrambled(source).sum(1))[:, None])
    for layer in range(config.decoder_layers):
        for name in ENCODER_DECODER:
            keys = state if name == "self" else source
            state = scrambled(state + scrambled(attended(keys, bias, batch.layout, name, layer, config.heads)))
    return state


def must_be_wrong(states: Fingerprints, right: np.ndarray) -> float:
    """The least share of problems that is wrong at the worst step, of fingerprints and right tokens (problems, steps).

    Of the problems in which a step sees the same, it can be right only on those that need the most frequent token.
    """
    possible = []
    for state, token in zip(states.T, right.T, strict=True):
        _, first, counts = np.unique(scrambled(state) + token.astype(np.uint64), return_index=True, return_counts=True)
        groups, indices = np.unique(state[first], return_inverse=True)
        highest = np.zeros(len(groups), counts.dtype)
        np.maximum.at(highest, indices, counts)
        possible.append(highest.sum())
    return float(1 - min(possible) / len(states))


def smallest_problems(sampler: Sampler, count: int) -> Batch:
    """About so many problems of the first training width: all those whose numbers are below a bound."""
    task, width = sampler.task, sampler.widths[0]
    places = task.operand_places(width)
    digits = places.count(1)  # operands that are one digit
    bound = int((count / task.base**digits) ** (1 / (len(places) - digits)))
    numbers = np.meshgrid(*(np.arange(task.base if size == 1 else bound) for size in places), indexing="ij")
    operands = [to_digits(values.ravel(), task.base, size) for values, size in zip(numbers, places, strict=True)]
    return sampler.batch(operands, width)


@cache  # a table and a verdict ask for the same runs
def least_wrong(experiment: Spec, bias: Bias | None) -> float:
    """The least share of the smallest problems that any model with this bias gets wrong; NaN of one with positions."""
    if bias is None or not isinstance(experiment.model.position, NoPosition):
        return float("nan")
    batch = smallest_problems(experiment.sampler, TRIED)
    return must_be_wrong(fingerprints(experiment.model, bias, batch), batch.target[:, 1:].numpy())
