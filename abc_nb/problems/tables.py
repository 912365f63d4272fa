"""Tasks whose output is a table that leads to the answer in steps so local that each cell follows from a few others.

A table is written row by row, a cell a token. A cell depends on the cell before it, on cells of the row above, and on
tokens of operands that are followed along a column or a row: all of these lie on lines. What it depends on is named by
where that stands, as seen from the cell in row r and column c:

    ("by column", o, k)   the token of operand o at place c - k
    ("by row", o, k)      the token of operand o at place r - k
    ("by cell", o, k)     the token k before the one that stands in operand o where the cell stands in the table
    ("cell", i, j)        the cell in row r + i and column c + j; (0, -1) is the token before, whatever that is

The same rule of a task computes its tables, a cell at a time for all samples, and certifies what models write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from abc_nb.problems.digits import DIGITS, Digits, written_number
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import Regime, Task, Width

Atom = tuple[str, int, int]
BEFORE: Atom = ("cell", 0, -1)
Values = Mapping[Atom, np.ndarray]  # digits, or cells without the offset of their tokens


class Where(NamedTuple):
    """Where a query stands in its table; the one that writes the end stands in the row after the last."""

    row: int
    column: int
    rows: int
    columns: int

    @property
    def end(self) -> bool:
        return self.row == self.rows

    def cell(self, row: int, column: int) -> Atom:
        """The name of the cell so many rows and columns away: in narrow tables it can be the one before."""
        return BEFORE if row * self.columns + column == -1 else ("cell", row, column)

    def followed(self, kind: str) -> int:
        """The place of an operand's token that is followed by column, row or cell, at offset zero."""
        return {"by column": self.column, "by row": self.row, "by cell": self.row * self.columns + self.column}[kind]

    def is_last(self, atom: Atom) -> bool:
        """Whether a cell stands in the last column."""
        return (self.column + atom[2]) % self.columns == self.columns - 1


class Tables(Task):
    """A table of cells, each a carry times the base and a digit; its operands are those of another family."""

    lengths: ClassVar[str]  # the problems that a certificate covers, in words
    can_pad = False

    @property
    def cells(self) -> int:
        """How many different cells there are."""
        raise NotImplementedError

    def shape(self, width: Width) -> tuple[int, int]:
        """Rows and columns of a problem's table."""
        raise NotImplementedError

    def needed(self, where: Where) -> list[Atom]:
        """What decides the cell there."""
        raise NotImplementedError

    def right(self, where: Where, values: Values) -> np.ndarray:
        """The cell there, from what decides it."""
        raise NotImplementedError

    def result(self, table: np.ndarray) -> Digits:
        """What finished tables (samples, rows, columns) say, least significant first."""
        raise NotImplementedError

    def cell_text(self, cell: int) -> str:
        """Carry and digit."""
        return DIGITS[cell // self.base] + DIGITS[cell % self.base]

    def cells_at(self, where: Where, atom: Atom) -> int:
        """How many cells can stand at an atom: those numbered from 0 on."""
        return self.cells

    def possible(self, where: Where, values: Values) -> np.ndarray:
        """Which values can stand together."""
        raise NotImplementedError

    @property
    def words(self) -> tuple[str, ...]:
        return (*super().words, *(self.cell_text(cell) for cell in range(self.cells)))

    @property
    def first_cell(self) -> int:
        """The token of cell 0."""
        return len(self.vocabulary) - self.cells

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """To a plain model the first one alone."""
        return ((4, 3), (5, 4), (6, 3), (3, 5), (6, 6))[: None if count > 1 else 1]

    def width_for(self, places: int, regime: Regime) -> Width:
        return places, places

    def natural(self, width: Width) -> Layout:
        middle = Where(2, 2, 5, 5)
        above = sorted(column for kind, row, column in self.needed(middle) if (kind, row) == ("cell", -1))
        rows, columns = self.shape(width)
        return replace(super().natural(width), target_length=rows * columns + 1, row=columns, above=tuple(above))

    def answer(self, operands: Sequence[Digits]) -> Digits:
        return self.first_cell + self.table(operands).reshape(len(operands[0]), -1)

    def table(self, operands: Sequence[Digits]) -> np.ndarray:
        """The cells (samples, rows, columns)."""
        rows, columns = self.shape(self.width_of(operands))
        cells = np.empty((rows * columns, len(operands[0])), np.int64)
        tokens = [np.ascontiguousarray(digits.T) for digits in operands]
        for number in range(rows * columns):
            where = Where(*divmod(number, columns), rows, columns)
            values = {
                (kind, x, y): cells[number + x * columns + y]
                if kind == "cell"
                else tokens[x - 1][where.followed(kind) - y]
                for kind, x, y in self.needed(where)
            }
            cells[number] = self.right(where, values)
        return np.moveaxis(cells.reshape(rows, columns, -1), -1, 0)

    def covered(self) -> str:
        return f"{self.lengths}, with any number of zeros in front of a number"

    def read_table(self, tokens: Sequence[int], row: int) -> np.ndarray:
        """The cells that output tokens stand for, (rows, columns): -1 for a token that is no cell."""
        cells = np.array(tokens[: len(tokens) // row * row], np.int64).reshape(-1, row) - self.first_cell
        return np.where(cells < 0, -1, cells)

    def write(self, tokens: Sequence[int], layout: Layout | None = None) -> str:
        """The answer that a table leads to; `?` where it has a token that is no cell."""
        table = self.read_table(tokens, (layout.row if layout else None) or len(tokens) or 1)
        if not table.size or (table < 0).any():
            return "?"
        return written_number(self.text(self.result(table[None])[0, ::-1].tolist()))
