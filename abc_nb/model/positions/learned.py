"""Learned absolute positions (Gehring et al. 2017, section 3.1; Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.model.positions.base import Index, PositionEncoding, longer_side
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Learned(PositionEncoding):
    """A trained vector for each position, the same for source and target, as those of tokens are.

    Vectors of positions that training never reached stay as they were drawn. Beyond the table there
    is none: InputError.
    """

    longest: int = 256  # positions that a problem can have

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        self.check(layout)
        return index

    def needed(self, layout: Layout) -> int:
        """How many positions a layout takes."""
        return longer_side(layout)

    def fits(self, layout: Layout) -> bool:
        return self.needed(layout) <= self.longest

    def check(self, layout: Layout) -> None:
        if not self.fits(layout):
            number = self.needed(layout)
            raise InputError(f"{number} positions are too many: this model has learned vectors for {self.longest}")

    def table(self, width: int) -> nn.Module:
        return Table(self.longest + self.phases() - 1, width)


class Table(nn.Embedding):
    """Drawn and scaled as the embeddings of tokens are: their numbers have the variance 1."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, index: Tensor) -> Tensor:
        return super().forward(index) * self.embedding_dim**0.5
