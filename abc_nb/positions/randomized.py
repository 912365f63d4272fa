"""Randomized positions (Ruoss et al. 2023), on Transformer-XL's relative encoding, the best in that paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abc_nb.errors import InputError
from abc_nb.layouts import Layout
from abc_nb.positions.base import Index, longer_side
from abc_nb.positions.transformer_xl import TransformerXL


@dataclass(frozen=True)
class Randomized(TransformerXL):
    """Tokens stand at a sorted random subset of a longer range (Ruoss et al. 2023, section 3).

    One subset a training step. Source and target share it, so that equal indices are equal positions.
    The paper draws in evaluation, too. Here the k-th of n tokens then stands where it stands on
    average, k (N + 1) / (n + 1): the same at each evaluation, and as far apart as training has seen
    them. The first n positions would not be: neighbours in training are about N / n apart.
    """

    longest: int = 2048  # N

    def fits(self, layout: Layout) -> bool:
        return longer_side(layout) <= self.longest

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        count = longer_side(layout)
        if not self.fits(layout):
            raise InputError(f"{count} tokens are too many: this model draws their positions from {self.longest}")
        if training:
            chosen = torch.randperm(self.longest)[:count].sort().values
        else:
            chosen = torch.arange(1, count + 1) * (self.longest + 1) // (count + 1) - 1
        chosen = chosen.to(index.source.device)
        return Index(chosen[index.source], chosen[index.target])
