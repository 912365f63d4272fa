"""Rotary positions (RoPE, Su et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.base import AttentionPosition, PositionEncoding


@dataclass(frozen=True)
class Rotary(PositionEncoding):
    """Queries and keys are rotated by their index (RoPE, Su et al. 2021, equation 34)."""

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return RotaryAttention()


class RotaryAttention(AttentionPosition):
    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """`index` may give each pair of coordinates a position of its own: (length, size / 2)."""
        size = x.shape[-1]
        angle = index.reshape(len(index), -1) * 10000 ** (-torch.arange(0, size, 2, device=x.device) / size)
        sin, cos = angle.sin(), angle.cos()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
