"""Learned positions: of tokens, of digits by their place in the number (Abacus), and position coupling."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.model.positions import Index, PositionEncoding
from abc_nb.problems.layouts import EOS, SOS, Layout


def longer_side(layout: Layout) -> int:
    """Tokens of the source or of the target, whichever has more."""
    return max(layout.source_length, layout.target_length)


@dataclass(frozen=True)
class Limited(PositionEncoding):
    """An encoding with so many positions; InputError for a layout that takes more."""

    longest: int = 256

    def needed(self, layout: Layout) -> int:
        """How many positions a layout takes."""
        return longer_side(layout)

    def fits(self, layout: Layout) -> bool:
        return self.needed(layout) <= self.longest

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        if not self.fits(layout):
            raise InputError(f"{self.needed(layout)} positions are too many: this model has {self.longest}")
        return index


@dataclass(frozen=True)
class Learned(Limited):
    """A trained vector for each position, of source and target alike (Gehring et al. 2017, section 3.1)."""

    def table(self, width: int) -> nn.Module:
        return Table(self.longest + self.phases() - 1, width)


class Table(nn.Embedding):
    """Drawn and scaled as the embeddings of tokens are: their numbers have the variance 1."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, index: Tensor) -> Tensor:
        return super().forward(index) * self.embedding_dim**0.5


@dataclass(frozen=True)
class Abacus(Learned):
    """A trained vector for a digit's place in its number, the same in operands and output (McLeish et al. 2024).

    Units are at 1, what is no digit at 0. In training each problem counts from a random start. The paper evaluates from
    the first one; here training is much shorter and seldom begins there, so that evaluation takes the middle.
    """

    longest: int = 1024
    starts: int = 200  # the longest tests have as many places (Parity: 665)

    def phases(self) -> int:
        return self.starts

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        super().place(index, layout, head_size, training)
        start = 0 if training else max(0, self.starts - self.needed(layout)) // 2
        places = self.places(Index(torch.from_numpy(layout.digit_places).to(index.source.device), index.target), layout)
        return Index(self.shifted(places.source, start), self.shifted(places.target, start))

    def places(self, index: Index, layout: Layout) -> Index:
        """Positions from the first start, of digit places in the source and steps of the target, of which SOS is 0."""
        return index

    def needed(self, layout: Layout) -> int:
        return max(int(layout.digit_places.max()) + 1, layout.target_length)

    def shifted(self, index: Tensor, phase: Tensor | int, stride: int = 1) -> Tensor:
        """Digits are shifted, in places wherever their columns are; what is no digit stays at 0."""
        return torch.where(index > 0, index + phase, 0)


@dataclass(frozen=True)
class Coupling(Abacus):
    """Digits of one place share a position, in operands and output (Cho et al. 2024, section 3).

    The operator and what comes before the output (the paper's =, here its first token) stand next to the units, at 1;
    a place p (units = 0) is at p + 2, the ends of the source at 0. (On Parity the authors' code couples the token
    before an output with the bit that it needs.)
    """

    def places(self, index: Index, layout: Layout) -> Index:
        source = torch.where(index.source > 0, index.source + 1, 0)
        source[[column for column, symbol in layout.symbols if symbol not in (SOS, EOS)]] = 1
        return Index(source, index.target + 1)

    def needed(self, layout: Layout) -> int:
        return super().needed(layout) + 1


@dataclass(frozen=True)
class TableCoupling(Abacus):
    """Position coupling for an output that is a table: of column, row and place (Cho et al. 2025, section 4).

    The vectors of a token's three numbers are added to it. A digit of the first factor shares its column with the cells
    of that column, one of the second its row with the cells of that row. Cells with the same sum of row and column
    share a place. The paper writes a sign at the beginning of each row; here the last cell of the row above stands in
    its stead, with its own place. Each number has a start of its own in training.
    """

    def phases(self) -> int:
        return self.starts**3

    def places(self, index: Index, layout: Layout) -> Index:
        if layout.row_length is None:
            raise InputError("positions by row and column need an output that is a table: choose a task that has one")
        step = index.target - index.target[0]
        row, column = torch.div(step - 1, layout.row_length, rounding_mode="floor"), (step - 1) % layout.row_length
        ends_row = column == layout.row_length - 1  # as what stands before the first cell of all
        place = torch.where(step > 0, row + column + 2, 1)
        target = torch.stack([torch.where(ends_row, 1, column + 2), row + 1 + ends_row, place], dim=1)
        source = torch.zeros(layout.source_length, 3, dtype=torch.long, device=target.device)
        for number, (operand, first) in enumerate(zip(layout.operands, (2, 1), strict=False)):
            source[operand.columns, number] = first + torch.arange(operand.places, device=target.device)
        return Index(source, target)

    def needed(self, layout: Layout) -> int:
        return layout.target_length // (layout.row_length or 1) + (layout.row_length or 1) + 1

    def shifted(self, index: Tensor, phase: Tensor | int, stride: int = 1) -> Tensor:
        """Each of the three numbers starts elsewhere, and where a token has none it stays at 0: (..., length, 3)."""
        if isinstance(phase, Tensor):
            phase = torch.stack([phase // self.starts**level % self.starts for level in range(3)], dim=-1)
        return super().shifted(index, phase)

    def table(self, width: int) -> nn.Module:
        return Tables(self.longest + self.starts - 1, width)


class Tables(nn.Module):
    """The sum of one vector of each of three tables: from (..., length, 3) to (..., length, width)."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(Table(rows, width) for _ in range(3))

    def forward(self, index: Tensor) -> Tensor:
        return torch.stack([table(index[..., level]) for level, table in enumerate(self.levels)]).sum(0)
