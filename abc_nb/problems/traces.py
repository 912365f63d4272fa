"""Traces: tables that lead to an answer in steps so local that every cell follows from a few others.

A trace is written row by row. A cell is one token. It depends on the cell before it, on cells of the row above, and
on a digit that is followed along a column or a row: all of these lie on lines. Cells are numbers here, of shape
(samples, rows, columns); the task gives each its token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DIGITS = "0123456789abcdef"
Numbers = np.ndarray  # digits of operands (samples, places), least significant first


@dataclass(frozen=True)
class Trace:
    """How a task's table is made, and what it says."""

    kinds: Callable[[int], int]  # how many different cells there are, by base
    shape: Callable[[Sequence[int]], tuple[int, int]]  # rows and columns, by the operands' places
    cells: Callable[[Sequence[Numbers], int], np.ndarray]  # of operands, in a base
    answer: Callable[[np.ndarray, int], Numbers]  # what a finished table says, least significant first
    write: Callable[[int, int], str]  # a cell as a person writes it, in a base
    trained: tuple[Any, ...]  # the widths that training shows, the first one alone to a plain model
    above: tuple[int, ...]  # which cells of the row above one depends on: how many columns to the right
    by_digit: bool = False  # a row is that of a digit of the second operand, and stands a column further left


def product_shape(places: Sequence[int]) -> tuple[int, int]:
    """A row for each digit of the second factor, a column for each of the first and one for the last carry."""
    return places[1], places[0] + 1


def product_cells(operands: Sequence[Numbers], base: int) -> np.ndarray:
    """Schoolbook multiplication: row `r` adds `a * b_r` to the row above, which stands one column further left.

    Cell (r, c) is s = (digit of cell (r - 1, c + 1)) + a_c b_r + (carry of cell (r, c - 1)). Its digit is s modulo
    the base and its carry the rest, which is less than the base: s is less than its square.
    """
    first, second = operands
    samples, columns = len(first), first.shape[1] + 1
    first = np.pad(first, [(0, 0), (0, 1)])
    found = np.empty((samples, second.shape[1], columns), np.int64)
    above = np.zeros((samples, columns + 1), np.int64)
    for row in range(second.shape[1]):
        carry = np.zeros(samples, np.int64)
        for column in range(columns):
            found[:, row, column] = above[:, column + 1] + first[:, column] * second[:, row] + carry
            carry = found[:, row, column] // base
        above[:, :columns] = found[:, row] % base
    return found


def product_answer(cells: np.ndarray, base: int) -> Numbers:
    """Column 0 from the top, then what is left of the last row."""
    digits = cells % base
    return np.concatenate([digits[:, :, 0], digits[:, -1, 1:]], axis=1)


def digit_and_carry(cell: int, base: int) -> str:
    return DIGITS[cell // base] + DIGITS[cell % base]


PRODUCT = Trace(
    kinds=lambda base: base**2,
    shape=product_shape,
    cells=product_cells,
    answer=product_answer,
    write=digit_and_carry,
    trained=((4, 3), (5, 4), (6, 3), (3, 5), (6, 6)),
    above=(1,),
    by_digit=True,
)


def one_more_row(places: Sequence[int]) -> tuple[int, int]:
    """A row that copies the items, and one for each of them."""
    return places[0] + 1, places[0]


def sorting_cells(operands: Sequence[Numbers], base: int) -> np.ndarray:
    """Odd-even transposition: in each row neighbours in pairs change places if the larger one stands further left.

    A cell is an item and the side of its partner, which is on the left (0) or on the right (base is added). As many
    rows as there are items sort any list (Knuth 1973, section 5.3.4, exercise 37).
    """
    items = operands[0]
    columns = np.arange(items.shape[1])
    rows = [items + base * (columns % 2)]
    for row in range(items.shape[1]):
        side = (columns + row) % 2  # in the row above
        partner = np.where(side == 0, columns + 1, columns - 1)
        alone = (partner < 0) | (partner >= len(columns))
        other = items[:, np.where(alone, columns, partner)]
        items = np.where(side == 0, np.maximum(items, other), np.minimum(items, other))
        rows.append(items + base * (1 - side))
    return np.stack(rows, axis=1)


def sorting_answer(cells: np.ndarray, base: int) -> Numbers:
    return cells[:, -1] % base


def item_and_side(cell: int, base: int) -> str:
    return DIGITS[cell % base] + "<>"[cell // base]


SORTING = Trace(
    kinds=lambda base: 2 * base,
    shape=one_more_row,
    cells=sorting_cells,
    answer=sorting_answer,
    write=item_and_side,
    trained=(7, 3, 4, 5, 6),
    above=(-1, 0, 1),
)
