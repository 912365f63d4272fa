"""RoPE with interpolated positions (Chen et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from abc_nb.model.positions.base import Index, from_units, longer_side
from abc_nb.model.positions.rotary import Rotary
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class InterpolatedRotary(Rotary):
    """Beyond the training length, positions are squeezed into it (Chen et al. 2023, section 2.3).

    A problem s times as long as any in training has its positions divided by s. The paper goes on
    training then; here nothing is ever trained on longer problems. The source is counted from the units:
    the distance zero is the only one that stays what it was.
    """

    trained: int = 21  # tokens of the longest training problem (here: Addition's, at three widths)

    def trained_on(self, layout: Layout) -> InterpolatedRotary:
        return replace(self, trained=longer_side(layout))

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        index = from_units(index, layout)
        factor = self.factor(max(1.0, longer_side(layout) / self.trained), head_size).to(index.source.device)
        return Index(index.source[:, None] * factor, index.target[:, None] * factor)

    def factor(self, stretch: float, head_size: int) -> Tensor:
        """What positions are multiplied with: one number, or one a pair of coordinates."""
        return torch.tensor([1 / stretch])
