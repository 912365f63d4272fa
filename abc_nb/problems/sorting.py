"""Sorting as a table: each row swaps neighbours of the one above it."""

from __future__ import annotations

import numpy as np

from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.lists import Lists
from abc_nb.problems.tables import BEFORE, PARITY, Atom, Tables, Values, Where
from abc_nb.problems.tasks import Width, single


class Sorting(Tables, Lists, name="sorting"):
    """Odd-even transposition: in each row neighbours in pairs change places if the larger one stands further left.

    A cell is an item and the side of its partner, which is on the left (0) or on the right (base is added). As many
    rows as there are items sort any list (Knuth 1973, section 5.3.4, exercise 37).
    """

    title, example, lengths = "Sorting", "3 9 4", "lists of any length"
    trained = (7, 3, 4, 5, 6)
    hidden = (PARITY,)

    @property
    def cells(self) -> int:
        return 2 * self.base

    def shape(self, width: Width) -> tuple[int, int]:
        """A row that copies the items, and one for each of them."""
        return single(width) + 1, single(width)

    def needed(self, where: Where) -> list[Atom]:
        """In the first row the item and whose side is whose; below, the cell above and its neighbours."""
        if where.row == 0:
            return [("by column", 1, 0), PARITY]
        return [where.cell(-1, j) for j in (-1, 0, 1) if where.holds(j)] + [PARITY]

    def right(self, where: Where, values: Values) -> np.ndarray:
        side = values[PARITY]
        if where.row == 0:
            return values["by column", 1, 0] + self.base * side
        own = values[where.cell(-1, 0)] % self.base
        left, right = (values[where.cell(-1, j)] % self.base if where.holds(j) else own for j in (1, -1))
        return np.where(side == 1, np.maximum(own, left), np.minimum(own, right)) + self.base * side

    def possible(self, where: Where, values: Values) -> np.ndarray:
        """A cell's side follows from its row and column: even together, it is 0. The first cell of all is there."""
        fine = np.ones(len(values[PARITY]), bool)
        for atom, cell in values.items():
            if atom[0] == "cell" and (atom != BEFORE or where.column):  # the end of the row above can have either side
                fine &= cell // self.base == (values[PARITY] + atom[1] + atom[2]) % 2
        return fine & (values[PARITY] == 0) if where.row == where.column == 0 else fine

    def parsed_answer(self, text: str) -> str:
        return self.joined(self.digits_in(text))

    def result(self, table: np.ndarray) -> Digits:
        return table[:, -1] % self.base

    def cell_text(self, cell: int) -> str:
        return DIGITS[cell % self.base] + "<>"[cell // self.base]
