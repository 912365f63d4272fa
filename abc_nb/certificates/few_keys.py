"""Attention of many contexts to a few keys each, and what the bound on rounding needs to know of it.

It is compiled from `few_keys.c` where a C compiler is there. That takes a fifteenth of PyTorch's processor time (2,048
contexts, two keys, eight heads of eight numbers in float32). Both round within what `rounding` allows for.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from abc_nb.certificates.rounding import MOST, by_head
from abc_nb.model import compiled
from abc_nb.model.attention import softmax_or_zero

SOURCE = Path(__file__).with_name("few_keys.c")
REAL = {torch.float32: ("-DREAL=float", "-DINT=int32_t"), torch.float64: ("-DREAL=double", "-DINT=int64_t")}
Mixed = tuple[Tensor, tuple[Tensor, ...]]


def mixed(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor, more: bool = True) -> Mixed:
    """What queries (N, D) see at the keys `rows` (N, K) of a table under the bias (K, H).

    The table (R, 2 D + 2 H) has keys, values and the squared lengths of both by head; of queries, keys and values the
    first numbers of all heads come first. Given are the means of values (N, D), and with `more`: by head the standard
    deviations of keys and of values (N, 2 H); the largest weight that a head gives a key (N, K); the lengths of queries
    by head (N, H).
    """
    (count, width), (slots, heads) = query.shape, bias.shape
    lost = 2 * torch.finfo(query.dtype).eps * MOST  # of a mean square, by rounding
    mix = None if torch.is_grad_enabled() else kernels(query.device.type, query.dtype, width // heads, heads)
    if mix is None:
        return by_torch(query, table, rows, bias, lost)
    means, found = query.new_empty(count, width), [query.new_empty(count, n) for n in (2 * heads, slots, heads) if more]
    given = [x.contiguous() for x in (query, table, rows, bias)]
    mix.mix(*(x.data_ptr() for x in (*given, means, *found)), *[None] * (3 - len(found)), count, slots, lost)
    return means, tuple(found)


def by_torch(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor, lost: float) -> Mixed:
    heads, width = bias.shape[1], query.shape[1]
    seen = table.index_select(0, rows.flatten()).unflatten(0, rows.shape)
    logits = by_head(query[:, None] * seen[..., :width], heads) / (width // heads) ** 0.5
    weights = softmax_or_zero(logits, bias[None], 1)
    means = (weights.repeat(1, 1, 2 * width // heads) * seen[..., : 2 * width]).sum(1)
    squares = (weights.repeat(1, 1, 2) * seen[..., 2 * width :]).sum(1)
    less = torch.cat([by_head(part.square(), heads) for part in means.chunk(2, 1)], 1)
    spread = ((squares - less).clamp_min(0) + lost * squares).sqrt()
    return means[:, width:], (spread, weights.amax(2), by_head(query.square(), heads).sqrt())


@cache
def kernels(device: str, dtype: torch.dtype, size: int, heads: int) -> ctypes.CDLL | None:
    """The function of `few_keys.c` for a head size; None where it cannot be compiled."""
    defined = f"-DSIZE={size}", f"-DHEADS={heads}", *REAL[dtype]
    found = compiled.loaded(SOURCE, *defined) if device == "cpu" else None
    if found is not None:
        found.mix.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_int64] * 2 + [ctypes.c_double]
        found.mix.restype = None
    return found
