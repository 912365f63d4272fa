"""Rotary positions (RoPE, Su et al. 2021), and two ways to stretch them beyond the training length."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from abc_nb.model.positions.base import Index, PositionEncoding
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Rotary(PositionEncoding):
    """Queries and keys are rotated by their index (RoPE, Su et al. 2021, equation 34)."""

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """`index`: (length,); (length, size / 2) for each pair its own; (batch, 1, length, 1) for each row its own."""
        size = x.shape[-1]
        index = index if index.ndim == 4 else index.reshape(len(index), -1)
        pairs = torch.arange(0, size, 2, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        angle = index * 10000 ** (-pairs / size)
        sin, cos = angle.sin(), angle.cos()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


@dataclass(frozen=True)
class InterpolatedRotary(Rotary):
    """Beyond the training length, positions are squeezed into it (Chen et al. 2023, section 2.3).

    A problem s times as long as any in training has its positions divided by s. The paper goes on training then; here
    nothing is. The source is counted from the units: the distance zero is the only one that stays what it was.
    """

    from_units = True
    trained: int = 21  # tokens of the longest training problem (here: Addition's, at three widths)

    def trained_on(self, layout: Layout) -> "InterpolatedRotary":
        return replace(self, trained=self.needed(layout))

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        index = super().place(index, layout, head_size, training)
        factor = self.factor(max(1.0, self.needed(layout) / self.trained), head_size).to(index.source.device)
        return Index(index.source[:, None] * factor, index.target[:, None] * factor)

    def factor(self, stretch: float, head_size: int) -> Tensor:
        """What positions are multiplied with: one number, or one a pair of coordinates."""
        return torch.tensor([1 / stretch])


@dataclass(frozen=True)
class NTKRotary(InterpolatedRotary):
    """The base 10000 becomes 10000 s^(d / (d - 2)) for heads of size d (bloc97 2023, "NTK-Aware Scaled RoPE").

    That divides the position of pair m by s^(2m / (d - 2)): the fastest pair turns as in training,
    the slowest is interpolated. As s follows the length, this is the variant called dynamic.
    """

    def factor(self, stretch: float, head_size: int) -> Tensor:
        return stretch ** (-torch.arange(0, head_size, 2) / max(1, head_size - 2))
