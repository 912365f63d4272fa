"""Sinusoids (Vaswani et al. 2017), and the cyclic index of v4."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.base import PositionEncoding


@dataclass(frozen=True)
class Sinusoidal(PositionEncoding):
    """Sines and cosines of the index (Vaswani et al. 2017, section 3.5).

    With a `period` T the index is taken modulo T first: cyclic position indexing (v4 section 3.1).
    """

    period: int | None = None

    def embedding(self, index: Tensor, width: int) -> Tensor:
        if self.period is not None:
            index = index % self.period
        frequency = 10000 ** (-torch.arange(0, width, 2, device=index.device) / width)
        angle = index[..., None] * frequency
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

    def phases(self) -> int:
        return self.period or 1
