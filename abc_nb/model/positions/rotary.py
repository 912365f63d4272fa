"""Rotary positions (RoPE, Su et al. 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.base import PositionEncoding


@dataclass(frozen=True)
class Rotary(PositionEncoding):
    """Queries and keys are rotated by their index (RoPE, Su et al. 2021, equation 34)."""

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """`index` is (length,), or (length, size / 2) by rotated pair, or (batch, 1, length, 1) by row of the batch."""
        size = x.shape[-1]
        index = index if index.ndim == 4 else index.reshape(len(index), -1)
        dimension = torch.arange(0, size, 2, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        angle = index * 10000 ** (-dimension / size)
        sin, cos = angle.sin(), angle.cos()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
