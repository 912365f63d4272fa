"""KERPLE, its logarithmic kind (Chi et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import AttentionPosition, Centred, offsets

SMALLEST = 1e-2  # of r1 and r2, as in the authors' code


@dataclass(frozen=True)
class Kerple(Centred):
    """-r1 log(1 + r2 |i - j|) is added to the logits, with r1, r2 > 0 learned by each head (Chi et al. 2022)."""

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return KerpleAttention(heads)


class KerpleAttention(AttentionPosition):
    """First r1 is uniform in [0, 2], r2 in [0, 1], as in the authors' code."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.r1 = nn.Parameter(2 * torch.rand(heads, 1, 1))
        self.r2 = nn.Parameter(torch.rand(heads, 1, 1))

    def logits(self, query: Tensor, index: tuple[Tensor, Tensor], chosen: Tensor | None = None) -> Tensor:
        with torch.no_grad():  # the parameters themselves: one that was clamped in passing would learn no more
            for each in (self.r1, self.r2):
                each.clamp_(min=SMALLEST)
        return (-self.r1 * torch.log1p(self.r2 * offsets(index, chosen).abs()))[None]
