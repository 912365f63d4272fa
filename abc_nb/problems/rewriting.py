"""Nested lists as a table: a row rewrites the one above it, each cell from itself and its two neighbours.

In prefix notation, `SM 3 MAX 2 5`, an operator takes the first value on its right, then the second, and becomes their
value. A value moves to the left over blanks, one column a row, until an operator takes it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.lists import COMBINE, Nested
from abc_nb.problems.tables import Atom, Tables, Values, Where
from abc_nb.problems.tasks import PAD, SYMBOLS, Width, single

COLUMNS = 3  # for each item: a list of n items has 2n - 1 tokens and takes 3(n - 1) rows
BLANK, WALL = 0, 1  # what stands beyond the right end of a row, and a cell that takes no value beyond its left end


class NestedLists(Tables, Nested, name="listops-nested"):
    """Cells are a blank, the digits, the operators, and operators that have taken a digit."""

    title, lengths = "ListOps, nested", "lists of any length"
    trained = tuple(COLUMNS * items for items in (7, 3, 4, 5))

    @property
    def cells(self) -> int:
        return 1 + self.base + len(COMBINE) * (1 + self.base)

    def columns(self, items: int) -> int:
        return COLUMNS * items

    def items_of(self, width: int) -> int:
        return width // COLUMNS

    def shape(self, width: Width) -> tuple[int, int]:
        """A row that copies the list, and one for each of its columns."""
        return single(width) + 1, single(width)

    def needed(self, where: Where) -> list[Atom]:
        if where.row == 0:
            return [("by column", 1, 0)]
        return [where.cell(-1, j) for j in (-1, 0, 1) if where.holds(j)]

    def right(self, where: Where, values: Values) -> np.ndarray:
        """At the left end a value has nowhere to go: it stays, as if an operator stood there that takes none."""
        if where.row == 0:
            return copies(self.base, self.token(PAD))[values["by column", 1, 0]]
        right = values[where.cell(-1, -1)] if where.holds(-1) else np.array(BLANK)
        left = values[where.cell(-1, 1)] if where.holds(1) else np.array(WALL)
        return rules(self.base)[right, values[where.cell(-1, 0)], left]

    def result(self, table: np.ndarray) -> Digits:
        """The value that is left over in the last row: (samples, 1)."""
        last = table[:, -1]
        return np.where((last > 0) & (last <= self.base), last - 1, 0).max(1, keepdims=True)

    def cell_text(self, cell: int) -> str:
        held = operator(cell, self.base)
        if held is None:
            return DIGITS[cell - 1] if cell else "."
        return held[0] + ("" if held[1] is None else DIGITS[held[1]])


def operator(cell: int, base: int) -> tuple[str, int | None] | None:
    """The operator that a cell holds, and the digit that it has taken; None for a blank or a digit."""
    number = cell - 1 - base
    if number < 0:
        return None
    if number < len(COMBINE):
        return list(COMBINE)[number], None
    name, digit = divmod(number - len(COMBINE), base)
    return list(COMBINE)[name], digit


def rewritten(right: int, own: int, left: int, base: int) -> int:
    """What a cell becomes, from its neighbours in the row above."""
    digit, held = 0 < right <= base, operator(own, base)
    if held is None:
        taken_or_moved = 0 < own <= base and (left == 0 or left > base)
        return 0 if taken_or_moved else own if own else right if digit else 0
    name, first = held
    if not digit:
        return own
    if first is None:
        return 1 + base + len(COMBINE) + list(COMBINE).index(name) * base + right - 1
    return 1 + int(COMBINE[name](first, right - 1, base))


@cache
def rules(base: int) -> np.ndarray:
    """`rewritten` of every (right, own, left): a cell each."""
    cells = range(NestedLists("listops-nested", base).cells)
    return np.array([[[rewritten(x, y, z, base) for z in cells] for y in cells] for x in cells])


@cache
def copies(base: int, blank: int) -> np.ndarray:
    """The cell that copies each token of a source."""
    tokens = np.arange(base + len(SYMBOLS) + len(COMBINE))
    cells = np.where(tokens < base, tokens + 1, np.maximum(tokens - len(SYMBOLS) + 1, 0))
    cells[blank] = BLANK
    return cells
