"""Randomized positions (Ruoss et al. 2023), on Transformer-XL's relative encoding, the best in that paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abc_nb.common.errors import InputError
from abc_nb.model.positions.base import Index
from abc_nb.model.positions.transformer_xl import TransformerXL
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Randomized(TransformerXL):
    """Tokens stand at a sorted random subset of a longer range (Ruoss et al. 2023, section 3).

    One subset for each part of a batch. Source and target share it, and the digit of a place stands where
    the output token of that place is predicted: other distances are drawn anew, this one is zero. Evaluation
    draws as well, as in the paper: one subset for each number of tokens, always the same.
    """

    longest: int = 2048  # N
    drawn: int = 0  # seed of the subsets of evaluation

    def fits(self, layout: Layout) -> bool:
        return self.needed(layout) <= self.longest

    def needed(self, layout: Layout) -> int:
        """How many positions a problem has: its source's, or more where the target goes on beyond it."""
        behind = layout.source_length - 1 - layout.units  # tokens from the end of the source to the units
        return max(layout.source_length, behind + layout.target_length)

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        count = self.needed(layout)
        if not self.fits(layout):
            raise InputError(f"{count} tokens are too many: this model draws their positions from {self.longest}")
        fixed = None if training else torch.Generator().manual_seed(self.drawn << 20 | count)
        chosen = torch.randperm(self.longest, generator=fixed)[:count].sort().values.to(index.source.device)
        return Index(chosen[index.source], chosen[index.target + index.source[layout.units]])
