"""Encodings that add a vector to each token: of its index, computed or learned."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import PositionEncoding


@dataclass(frozen=True)
class NoPosition(PositionEncoding):
    """No position encoding at all (NoPE, Kazemnejad et al. 2023)."""


@dataclass(frozen=True)
class Sinusoidal(PositionEncoding):
    """Sines and cosines of the index, modulo a period if there is one (Vaswani et al. 2017, section 3.5; v4 3.1)."""

    period: int | None = None

    def embedding(self, index: Tensor, width: int) -> Tensor:
        if self.period is not None:
            index = index % self.period
        dtype = torch.promote_types(index.dtype, torch.float32)  # float64 for an index in float64
        frequency = 10000 ** (-torch.arange(0, width, 2, device=index.device, dtype=dtype) / width)
        angle = index[..., None] * frequency
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

    def phases(self) -> int:
        return self.period or 1


@dataclass(frozen=True)
class Learned(PositionEncoding):
    """A trained vector for each position, of source and target alike (Gehring et al. 2017, section 3.1)."""

    longest: int = 256  # positions that a problem can have

    def table(self, width: int) -> nn.Module:
        return Table(self.longest + self.phases() - 1, width)


class Table(nn.Embedding):
    """Drawn and scaled as the embeddings of tokens are: their numbers have the variance 1."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, index: Tensor) -> Tensor:
        return super().forward(index) * self.embedding_dim**0.5
