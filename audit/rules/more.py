"""More rules: sorting, by odd-even transposition."""

from collections.abc import Callable
from typing import Any

import numpy as np

from abc_nb.problems.catalogue import Words
from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.rules import EDGE, Input, Rule, cell, operand

ABOVE = (cell(-1, 1), cell(-1, 0), cell(-1, -1))  # the cell of the next column, of this one and of the one before


def transposition(name: str, base: int, keyed: int, key: Callable[[Any], Any], title: str) -> Rule:
    """Odd-even transposition: the first row has the items, and in each other row neighbours in pairs change places.

    As many rows as items, after the first one, bring them in order. A cell is an item and the side of its partner in
    the next row, 1 for the next column. `key` says what an item is ordered by; a `keyed` item also holds whether it
    stands in a column of even number.
    """

    def step(state: Any, after: Digits, here: Digits, before: Digits, item: Digits, last: Digits) -> tuple[Any, Any]:
        even = np.where(last == EDGE, 1, 1 - last % 2)
        partner = np.where(here % 2, after, before)
        lower, upper = np.where(here % 2, here, partner), np.where(here % 2, partner, here)
        change = (partner != EDGE) & (key(lower // 2) > key(upper // 2))
        moved = np.where(change, partner, here) // 2
        return np.where(here == EDGE, 2 * (item + base * keyed * even) + even, 2 * moved + 1 - here % 2), state

    items = DIGITS[:base] if not keyed else [f"{side}{digit}" for side in "eo" for digit in DIGITS[:base]]
    cells = [f"{item}{side}" for item in items for side in "<>"]
    words = Words(title=title, notation="symbols", unit="items", lengths="any number of items and rows")
    words |= {"result": lambda table: table[:, -1] // 2 % base}
    inputs, reads = (Input("place", base, from_left=True), Input("row", 1)), (*ABOVE, operand(0), cell(0, -1))
    return Rule(name, step, inputs, DIGITS[:base], reads, writes=cells, **words)


def sorting(base: int = 10) -> Rule:
    """Digits in order, the smallest first."""
    return transposition("sorting", base, 0, lambda item: item, "Sorting")
