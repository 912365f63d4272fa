"""NTK-aware RoPE (bloc97 2023, "NTK-Aware Scaled RoPE")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.rotary_interpolated import InterpolatedRotary


@dataclass(frozen=True)
class NTKRotary(InterpolatedRotary):
    """Beyond the training length s times, the base 10000 becomes 10000 s^(d / (d - 2)) for heads of the size d.

    That divides the position of pair m by s^(2m / (d - 2)): the fastest pair turns as in training,
    the slowest is interpolated. As s follows the length, this is the variant called dynamic.
    """

    def factor(self, stretch: float, head_size: int) -> Tensor:
        return stretch ** (-torch.arange(0, head_size, 2) / max(1, head_size - 2))
