"""Position coupling: of numbers (Cho et al. 2024), and of a table (Cho et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.model.positions.abacus import Abacus
from abc_nb.model.positions.base import Index
from abc_nb.model.positions.learned import Table
from abc_nb.problems.layouts import EOS, SOS, Layout


@dataclass(frozen=True)
class Coupling(Abacus):
    """Digits of one place share a position, in operands and output (Cho et al. 2024, section 3).

    The operator and what comes before the output (the paper's =, here its first token) stand next to
    the units, at 1; a place p (units = 0) is at p + 2, and the ends of the source are at 0. Starts, and
    the one of evaluation, are those of `Abacus`; the authors evaluate from the first one. (For Parity their
    code couples the token before an output with the bit that it needs; here they are next to each other,
    as on the other tasks.) The paper counts the other way, from the highest place: no more than another
    name for the same positions.
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

    A token has three numbers, and the sum of their vectors is added to it. A digit of the first factor shares its
    column with the cells of that column, a digit of the second one its row with the cells of that row. Cells with
    the same sum of row and column share a place. The paper writes a sign in front of each row, which stands at the
    row's beginning. This table has none: the last cell of the row above stands there in its stead, with its own place.
    Each number has a start of its own in training.
    """

    def phases(self) -> int:
        return self.starts**3

    def places(self, index: Index, layout: Layout) -> Index:
        if layout.row is None:
            raise InputError("positions by row and column need an output that is a table: choose a task that has one")
        step = index.target - index.target[0]
        row, column = torch.div(step - 1, layout.row, rounding_mode="floor"), (step - 1) % layout.row
        last = column == layout.row - 1  # as what stands before the first cell of all
        place = torch.where(step > 0, row + column + 2, 1)
        target = torch.stack([torch.where(last, 1, column + 2), row + 1 + last, place], dim=1)
        source = torch.zeros(layout.source_length, 3, dtype=torch.long, device=target.device)
        for number, (operand, first) in enumerate(zip(layout.operands, (2, 1), strict=False)):
            source[operand.columns, number] = first + torch.arange(operand.places, device=target.device)
        return Index(source, target)

    def needed(self, layout: Layout) -> int:
        return layout.target_length // (layout.row or 1) + (layout.row or 1) + 1

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
