"""Attention of many contexts to a few keys each, and what the bound on rounding needs to know of it.

By `mix` of `model/attention.c` where a C compiler is there. That takes a fiftieth of PyTorch's processor time (2,048
contexts, two keys, eight heads of eight numbers in float32). Both round within what `rounding` allows for.
"""

import torch
from torch import Tensor

from abc_nb.certificates.rounding import by_head
from abc_nb.model import compiled
from abc_nb.model.attention import softmax_or_zero


def mixed(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Attention of queries (N, D) to the keys in `rows` (N, K) of a table under the bias (K, H).

    The table (R, 2 D + 2 H) has keys, values and the squared lengths of both by head; of queries, keys and values the
    first numbers of all heads come first. Returns the means of values (N, D) and by head, (N, H) each: the lengths of
    queries, and the standard deviations of keys and of values.
    """
    (count, width), (slots, heads) = query.shape, bias.shape
    lost = lost_by(width // heads, slots, query.dtype)
    can_compile = query.device.type == "cpu" and not torch.is_grad_enabled()
    library = compiled.few_keys(width // heads, heads, query.dtype) if can_compile else None
    if library is None:
        return by_torch(query, table, rows, bias, lost)
    if table.shape[1] != 2 * (width + heads) or rows.shape != (count, slots):
        raise TypeError(f"a table {table.shape} and rows {rows.shape} do not fit queries {query.shape}")
    inputs = [x.contiguous() for x in (query, table.to(query), rows.long(), bias.to(query))]
    outputs = [query.new_empty(count, size) for size in (width, heads, heads, heads)]
    compiled.call(library, "mix", [*inputs, *outputs], count, slots, lost)
    return tuple(outputs)


def lost_by(size: int, keys: int, dtype: torch.dtype) -> float:
    """What rounding can change a variance by, as a part of the mean square: twice 4 K + 2 d + 10 roundings.

    A mean square and the square of a mean of K vectors of d numbers are off by no more together: 2 d for the lengths of
    a vector and of the mean, 3 K for both means, the mean twice, and K + 10 for weights, and so for their sum.
    """
    return torch.finfo(dtype).eps * (4 * keys + 2 * size + 10)


def by_torch(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor, lost: float) -> tuple[Tensor, ...]:
    heads, width = bias.shape[1], query.shape[1]
    keys = table.index_select(0, rows.flatten()).unflatten(0, rows.shape)
    logits = by_head(query[:, None] * keys[..., :width], heads) / (width // heads) ** 0.5
    weights = softmax_or_zero(logits, bias[None], 1)
    means = (weights.repeat(1, 1, 2 * width // heads) * keys[..., : 2 * width]).sum(1).chunk(2, 1)
    squares = (weights.repeat(1, 1, 2) * keys[..., 2 * width :]).sum(1).chunk(2, 1)
    spreads = [
        ((square - by_head(mean.square(), heads)).clamp_min(0) + lost * square).sqrt()
        for mean, square in zip(means, squares, strict=True)
    ]
    return means[1], by_head(query.square(), heads).sqrt(), *spreads
