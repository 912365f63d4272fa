"""Dropout (Srivastava et al. 2014) whose random numbers cost little on a processor.

PyTorch's own takes about as long as all the rest of a training step at the paper's size. Here one
64-bit number of a fast generator decides about four elements.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16  # a rate is rounded to a multiple of 1 / LEVELS


def drop(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """`x` with each element zero with probability `rate` (below 1), the others divided by 1 - rate.

    In evaluation, `x` itself.
    """
    if not training or rate == 0:
        return x
    if x.is_cuda:
        return F.dropout(x, rate)
    source = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))  # follows from torch's generator
    bits = source.integers(2**64, size=-(-x.numel() // 4), dtype=np.uint64)
    levels = torch.from_numpy(bits.view(np.int16)[: x.numel()]).view(x.shape)  # uniform from -LEVELS / 2 up
    level = round(rate * LEVELS)
    return x * (levels >= level - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - level))


class Dropout(nn.Dropout):
    """`drop` as a layer."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p, self.training)
