"""Position encodings: what a token's index does to its embedding or to the attention logits.

A position encoding is a frozen value. `embedding` is added to the tokens once; `attention` makes
the module that changes queries, keys or logits inside each attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class AttentionPosition(nn.Module):
    """Inside one attention: nothing, by default."""

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """Change queries or keys `x` (batch, head, length, size) that stand at `index` (length,)."""
        return x

    def logits(self, query: Tensor, offset: Tensor) -> Tensor | None:
        """Logits to add, of the shape (batch, head, query, key); `offset` is key index - query index."""
        return None


@dataclass(frozen=True)
class PositionEncoding:
    """No position encoding at all (NoPE, Kazemnejad et al. 2023)."""

    def embedding(self, index: Tensor, width: int) -> Tensor | None:
        """What is added to the embeddings of tokens at `index` (..., length): (..., length, width) or None."""
        return None

    def attention(self, head_size: int) -> AttentionPosition:
        return AttentionPosition()


@dataclass(frozen=True)
class NoPosition(PositionEncoding):
    pass


@dataclass(frozen=True)
class Sinusoidal(PositionEncoding):
    """Sines and cosines of the index (Vaswani et al. 2017, section 3.5).

    With a `period` T the index is taken modulo T first: cyclic position indexing (`000` section 3.1).
    """

    period: int | None = None

    def embedding(self, index: Tensor, width: int) -> Tensor:
        if self.period is not None:
            index = index % self.period
        frequency = 10000 ** (-torch.arange(0, width, 2, device=index.device) / width)
        angle = index[..., None] * frequency
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


@dataclass(frozen=True)
class Rotary(PositionEncoding):
    """Queries and keys are rotated by their index (RoPE, Su et al. 2021, equation 34)."""

    def attention(self, head_size: int) -> AttentionPosition:
        return RotaryAttention()


class RotaryAttention(AttentionPosition):
    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        size = x.shape[-1]
        angle = index[:, None] * 10000 ** (-torch.arange(0, size, 2, device=x.device) / size)
        sin, cos = angle.sin(), angle.cos()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


@dataclass(frozen=True)
class Relative(PositionEncoding):
    """A learned vector for each clipped offset is added to the keys (Shaw et al. 2018, equation 4)."""

    clip: int = 16

    def attention(self, head_size: int) -> AttentionPosition:
        return RelativeAttention(self.clip, head_size)


class RelativeAttention(AttentionPosition):
    def __init__(self, clip: int, head_size: int) -> None:
        super().__init__()
        self.clip = clip
        self.table = nn.Parameter(torch.randn(2 * clip + 1, head_size) * head_size**-0.5)

    def logits(self, query: Tensor, offset: Tensor) -> Tensor:
        by_offset = query @ self.table.T / query.shape[-1] ** 0.5  # (batch, head, query, 2 * clip + 1)
        index = offset.clamp(-self.clip, self.clip) + self.clip
        return by_offset.gather(-1, index.expand(*query.shape[:-1], index.shape[-1]))
