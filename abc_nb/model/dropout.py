"""Dropout (Srivastava et al. 2014) from 16 random bits a number.

PyTorch draws a number at a time on a processor, and half of a training step at the paper's size was spent on that. A
probability is met to 1 / 131,072.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def random_numbers(shape: Sequence[int]) -> Tensor:
    """Random int16, each as probable as any other; which ones follows from PyTorch's random numbers."""
    count, seed = math.prod(shape), int(torch.randint(2**63 - 1, ()))
    words = np.random.Generator(np.random.SFC64(seed)).integers(0, 2**64, -(-count // 4), np.uint64)
    return torch.from_numpy(words.view(np.int16)[:count]).view(*shape)


def drop_threshold(probability: float) -> int:
    """The smallest int16 that is not dropped."""
    return round(probability * 2**16) - 2**15


def dropped(x: Tensor, probability: float) -> Tensor:
    """The numbers, of which each is zero with this probability, and the others are enlarged to keep the mean."""
    if not probability or x.device.type != "cpu":
        return F.dropout(x, probability)
    return x * (random_numbers(x.shape) >= drop_threshold(probability)).to(x.dtype).div_(1 - probability)


class Dropout(nn.Dropout):
    """As PyTorch's, whose random numbers it takes on another device than a processor."""

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.p) if self.training else x
