"""Relative positions (RPE, Shaw et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import AttentionPosition, PositionEncoding, offsets
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Relative(PositionEncoding):
    """A learned vector for each clipped offset is added to the keys (Shaw et al. 2018, equation 4)."""

    clip: int = 16

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return RelativeAttention(self.clip, head_size)


@dataclass(frozen=True)
class ShortRelative(Relative):
    """Clipped at half the width of training problems, so that training shows every vector many times.

    The clipped vectors stand for all longer distances, and with a clip beyond those of training they stay as they
    were drawn. (In translation a clip of 2 is as good as any larger one: Shaw et al. 2018, section 4.3.)
    """

    def trained_on(self, layout: Layout) -> ShortRelative:
        return replace(self, clip=layout.width // 2)


class RelativeAttention(AttentionPosition):
    def __init__(self, clip: int, head_size: int) -> None:
        super().__init__()
        self.clip = clip
        self.table = nn.Parameter(torch.randn(2 * clip + 1, head_size) * head_size**-0.5)

    def logits(self, query: Tensor, index: tuple[Tensor, Tensor], chosen: Tensor | None = None) -> Tensor:
        by_offset = query @ self.table.T / query.shape[-1] ** 0.5  # (batch, head, query, 2 * clip + 1)
        row = offsets(index, chosen).clamp(-self.clip, self.clip) + self.clip
        return by_offset.gather(-1, row.expand(*query.shape[:-1], row.shape[-1]))
