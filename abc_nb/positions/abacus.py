"""Abacus embeddings (McLeish et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.layouts import Layout
from abc_nb.positions.base import Index
from abc_nb.positions.learned import Learned


@dataclass(frozen=True)
class Abacus(Learned):
    """A trained vector for a digit's place in its number, the same in operands and output (McLeish et al. 2024).

    Units are at 1, what is no digit at 0. In training each problem counts from a random start: so
    vectors of places are trained that its numbers do not have.
    """

    starts: int = 200  # the longest tests have as many places (Parity)

    def phases(self) -> int:
        return self.starts

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        self.check(layout)
        return Index(digit_places(layout).to(index.source.device), index.target)  # SOS at 0, then the units

    def needed(self, layout: Layout) -> int:
        return max(int(digit_places(layout).max()) + 1, layout.target_length)

    def shifted(self, index: Tensor, phase: Tensor | int, stride: int = 1) -> Tensor:
        """Digits are shifted, in places wherever their columns are; what is no digit stays at 0."""
        return torch.where(index > 0, index + phase, 0)


def digit_places(layout: Layout) -> Tensor:
    """The place of each source column's digit, units = 1, and 0 where no digit stands: (source_length,)."""
    places = torch.zeros(layout.source_length, dtype=torch.long)
    for operand in layout.operands:
        places[torch.from_numpy(operand.columns)] = torch.arange(1, operand.places + 1)
    return places
