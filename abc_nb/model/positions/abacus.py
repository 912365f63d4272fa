"""Abacus embeddings (McLeish et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.base import Index
from abc_nb.model.positions.learned import Learned
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Abacus(Learned):
    """A trained vector for a digit's place in its number, the same in operands and output (McLeish et al. 2024).

    Units are at 1, what is no digit at 0. In training each problem counts from a random start: so
    vectors of places are trained that its numbers do not have. The paper evaluates from the first
    start, after much longer training; here one problem in 200 would have begun there, so evaluation
    puts a number into the middle of the starts.
    """

    longest: int = 1024
    starts: int = 200  # the longest tests have as many places (Parity: 665)

    def phases(self) -> int:
        return self.starts

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        self.check(layout)
        start = 0 if training else max(0, self.starts - self.needed(layout)) // 2
        places = self.places(Index(torch.from_numpy(layout.digit_places).to(index.source.device), index.target), layout)
        return Index(self.shifted(places.source, start), self.shifted(places.target, start))

    def places(self, index: Index, layout: Layout) -> Index:
        """Positions from the first start, of digit places in the source and steps of the target."""
        return index  # SOS of the target at 0, then the units

    def needed(self, layout: Layout) -> int:
        return max(int(layout.digit_places.max()) + 1, layout.target_length)

    def shifted(self, index: Tensor, phase: Tensor | int, stride: int = 1) -> Tensor:
        """Digits are shifted, in places wherever their columns are; what is no digit stays at 0."""
        return torch.where(index > 0, index + phase, 0)
