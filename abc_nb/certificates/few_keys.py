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
REAL = {torch.float32: "float", torch.float64: "double"}
Mixed = tuple[Tensor, Tensor, Tensor, Tensor]


def mixed(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor) -> Mixed:
    """What queries (N, D) see at the keys `rows` (N, K) of a table under the bias (K, H).

    The table (R, 2 D + 2 H) has keys, values and the squared lengths of both by head. Given are the means of values
    (N, D); by head the standard deviations of keys and of values (N, 2 H); the largest weight that a head gives a key
    (N, K); the lengths of queries by head (N, H).
    """
    heads = bias.shape[1]
    lost = 2 * torch.finfo(query.dtype).eps * MOST  # of a mean square, by rounding
    mix = None if torch.is_grad_enabled() else kernels(query.device.type, query.dtype, query.shape[1] // heads)
    if mix is None:
        return by_torch(query, table, rows, bias, lost)
    given = [x.contiguous() for x in (query, table, rows, bias)]
    found = tuple(query.new_empty(len(query), n) for n in (query.shape[1], 2 * heads, len(bias), heads))
    mix.mix(*(x.data_ptr() for x in (*given, *found)), len(query), *bias.shape, lost)
    return found  # type: ignore[return-value]


def by_torch(query: Tensor, table: Tensor, rows: Tensor, bias: Tensor, lost: float) -> Mixed:
    heads, width = bias.shape[1], query.shape[1]
    seen = table.index_select(0, rows.flatten()).unflatten(0, rows.shape)
    logits = by_head(query[:, None] * seen[..., :width], heads) / (width // heads) ** 0.5
    weights = softmax_or_zero(logits, bias[None], 1)
    every = torch.eye(heads, dtype=weights.dtype, device=weights.device)
    numbers = torch.cat([*[every.repeat_interleave(width // heads, 1)] * 2, every, every], 1)
    means = (weights @ numbers * seen).sum(1)  # of keys, of values, and of the squared lengths of both
    mean, square = means[:, : 2 * width], means[:, 2 * width :]
    spread = ((square - by_head(mean.square(), 2 * heads)).clamp_min(0) + lost * square).sqrt()
    return mean[:, width:], spread, weights.amax(2), by_head(query.square(), heads).sqrt()


@cache
def kernels(device: str, dtype: torch.dtype, size: int) -> ctypes.CDLL | None:
    """The function of `few_keys.c` for a head size; None where it cannot be compiled."""
    found = compiled.loaded(SOURCE, f"-DSIZE={size}", f"-DREAL={REAL[dtype]}") if device == "cpu" else None
    if found is not None:
        found.mix.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_int64] * 3 + [ctypes.c_double]
        found.mix.restype = None
    return found
