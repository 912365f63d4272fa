"""What a cell of a table must be, from the few tokens that decide it: the rule of each trace, for all cells at once.

Tokens are named by where they stand, as seen from the cell in row r and column c:

    ("by column", o, k)   the token of operand o at place c - k
    ("by row", o, k)      the token of operand o at place r - k
    ("cell", i, j)        the cell in row r + i and column c + j; (0, -1) is the token before, whatever that is
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from abc_nb.certificates.shapes import Atom
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task

BEFORE: Atom = ("cell", 0, -1)
PARITY: Atom = ("parity", 0, 0)  # whether row and column of a cell are even together: no token, but it is not seen
Values = Mapping[Atom, np.ndarray]  # digits, or cells without the offset of their tokens


@dataclass(frozen=True)
class Where:
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

    def is_last(self, atom: Atom) -> bool:
        """Whether a cell stands in the last column."""
        return (self.column + atom[2]) % self.columns == self.columns - 1


@dataclass(frozen=True)
class Rule:
    """The rule of one trace."""

    needed: Callable[[Where], list[Atom]]  # what decides the cell there
    cells: Callable[[Where, Atom, int], int]  # how many cells can stand at an atom, by base: those numbered from 0 on
    right: Callable[[Where, Values, int], np.ndarray]  # the cell, by base
    possible: Callable[[Where, Values, int], np.ndarray]  # which values can stand together
    hidden: tuple[Atom, ...] = ()  # what cells depend on and no token shows


def product_needed(where: Where) -> list[Atom]:
    """Digits of both factors, the cell above to the right, and the cell before; fewer at the edges."""
    found: list[Atom] = [BEFORE] if where.column else []
    if where.column < where.columns - 1:
        found += [("by column", 1, 0), ("by row", 2, 0)] + [where.cell(-1, 1)] * (where.row > 0)
    return found


def product_cells(where: Where, atom: Atom, base: int) -> int:
    """In the last column nothing is left to carry: it has a digit above it, or none, and no factor's digit."""
    return base if where.is_last(atom) else base**2


def product_right(where: Where, values: Values, base: int) -> np.ndarray:
    zero = np.zeros_like(next(iter(values.values())))
    factors = values.get(("by column", 1, 0), zero) * values.get(("by row", 2, 0), zero)
    above = values[where.cell(-1, 1)] if where.row and where.column < where.columns - 1 else zero
    before = values[BEFORE] if where.column else zero
    return above % base + factors * (where.column < where.columns - 1) + before // base


@cache
def product_carries(base: int, digit: int, first_row: bool) -> np.ndarray:
    """What can be carried in a row of one digit: its carries are those of its own cells."""
    above, carries = np.arange(1 if first_row else base), np.zeros(1, np.int64)
    while True:
        more = np.unique(np.add.outer(np.add.outer(above, np.arange(base) * digit), carries) // base)
        if np.isin(more, carries).all():
            return carries
        carries = np.union1d(carries, more)


@cache
def product_sums(base: int, first_row: bool) -> np.ndarray:
    """Which cells a row can have: booleans (digit of its factor, digit of the column's, cell); `base` is any digit.

    In the last column, where no digit stands, cells are as for a zero.
    """
    above, digits = np.arange(1 if first_row else base), np.arange(base)
    found = np.zeros((base + 1, base + 1, base**2), bool)
    for digit in digits:
        sums = np.add.outer(above, product_carries(base, digit, first_row)).ravel()
        found[digit, digits[:, None], np.add.outer(digits * digit, sums)] = True
    found[:, base] = found.any(1)
    found[base] = found.any(0)
    return found


@cache
def product_between(base: int) -> tuple[np.ndarray, np.ndarray]:
    """What the cell between the one above to the right and the one before can hold: it has this column's digit.

    Booleans (digit of the row above, digit of the column, cell above to the right, digit of the cell between), and
    (digit of the column before, digit of the row, digit of the cell between, cell before); `base` is any first one.
    """
    digits = np.arange(base)
    carried = np.zeros((base, base, base**2), bool)  # digit of the row, carry, cell that it goes into
    before = np.zeros((base + 1, base, base, base**2), bool)
    for digit in digits:
        for carry in product_carries(base, digit, False):
            cells = np.add.outer(digits * digit, digits) + carry
            carried[digit, carry, cells] = True
            before[digits[:, None], digit, digits, cells] = True
    between = product_sums(base, False)[:base, :base].reshape(base, base, base, base)  # rows, columns, carry, digit
    above = np.zeros((base + 1, base, base**2, base), bool)
    above[:base] = np.einsum("bku,bakd->baud", carried.astype(np.int64), between.astype(np.int64)) > 0
    above[base], before[base] = above.any(0), before.any(0)
    return above, before


def product_possible(where: Where, values: Values, base: int) -> np.ndarray:
    """Every cell that is seen holds a multiple of its row's digit and its column's, as far as those are seen, too.

    The cell above to the right is carried into by the one between it and the cell before, which adds its digit there.
    """
    fine = np.ones(len(next(iter(values.values()))), bool)
    for atom, cell in values.items():
        kind, row, column = atom
        if kind == "cell" and where.column + column >= 0:  # otherwise it is the end of a row further up
            digit = values.get(("by row", 2, -row), base)
            factor = 0 if where.is_last(atom) else values.get(("by column", 1, -column), base)
            fine &= product_sums(base, row == 0 and where.row == 0)[digit, factor, cell]
    if where.end or where.row == 0 or where.column == where.columns - 1:
        return fine
    above, before = product_between(base)
    digit = values["by column", 1, 0]
    held = above[values.get(("by row", 2, 1), base), digit, values[where.cell(-1, 1)]]  # (contexts, digits)
    if where.column:
        held = held & before[values.get(("by column", 1, 1), base), values["by row", 2, 0], :, values[BEFORE]]
    return fine & held.any(1)


def sorting_needed(where: Where) -> list[Atom]:
    """In the first row the item and whose side is whose; below, the cell above and its neighbours."""
    if where.row == 0:
        return [("by column", 1, 0), PARITY]
    return [where.cell(-1, j) for j in (-1, 0, 1) if 0 <= where.column + j < where.columns] + [PARITY]


def sorting_right(where: Where, values: Values, base: int) -> np.ndarray:
    side = values[PARITY]
    if where.row == 0:
        return values["by column", 1, 0] + base * side
    own = values[where.cell(-1, 0)] % base
    left, right = (values.get(where.cell(-1, j), own) % base for j in (1, -1))
    return np.where(side == 1, np.maximum(own, left), np.minimum(own, right)) + base * side


def sorting_possible(where: Where, values: Values, base: int) -> np.ndarray:
    """A cell's side follows from its row and column: even together, it is 0. The first cell of all is there."""
    fine = np.ones(len(values[PARITY]), bool)
    for atom, cell in values.items():
        if atom[0] == "cell" and (atom != BEFORE or where.column):  # the end of the row above can have either side
            fine &= cell // base == (values[PARITY] + atom[1] + atom[2]) % 2
    return fine & (values[PARITY] == 0) if where.row == where.column == 0 else fine


RULES = {
    "n-by-n": Rule(product_needed, product_cells, product_right, product_possible),
    "sorting": Rule(sorting_needed, lambda where, atom, base: 2 * base, sorting_right, sorting_possible, (PARITY,)),
}


def rule_of(task: Task) -> Rule:
    """The rule of a task's trace; InputError for a task that has none here."""
    if task.name not in RULES:
        raise InputError(f"{task.title} has no certificate: choose one of {', '.join(RULES)}, whose rules are known")
    return RULES[task.name]
