"""The trace of nested lists: a row rewrites the one above it, each cell from itself and its two neighbours.

In prefix notation, `SM 3 MAX 2 5`, an operator takes the first value on its right, then the second, and becomes their
value. A value moves to the left over blanks, one column a row, until an operator takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from abc_nb.problems.traces import DIGITS, Numbers, Trace, one_more_row

COMBINE: dict[str, Callable[[int, int, int], int]] = {  # the operators of lists, with their base
    "SM": lambda x, y, base: (x + y) % base,
    "MAX": lambda x, y, base: max(x, y),
    "MIN": lambda x, y, base: min(x, y),
}
SYMBOLS = 5  # tokens + * $ & @ between the digits and the operators of a source
BLANK = 4  # the last of them, which stands in front of a list


def kinds(base: int) -> int:
    """Blank, the digits, the operators, and operators that have taken a digit."""
    return 1 + base + len(COMBINE) * (1 + base)


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
    """What a cell becomes, from its neighbours in the row above; beyond the ends there are blanks."""
    digit, held = 0 < right <= base, operator(own, base)
    if held is None:
        taken_or_moved = 0 < own <= base and (left == 0 or left > base)
        return 0 if taken_or_moved else own if own else right if digit else 0
    name, first = held
    if not digit:
        return own
    if first is None:
        return 1 + base + len(COMBINE) + list(COMBINE).index(name) * base + right - 1
    return 1 + COMBINE[name](first, right - 1, base)


@cache
def table_of_rules(base: int) -> np.ndarray:
    """`rewritten` of every (right, own, left): a cell each."""
    count = kinds(base)
    rules = [[[rewritten(x, y, z, base) for z in range(count)] for y in range(count)] for x in range(count)]
    return np.array(rules)


def list_cells(operands: Sequence[Numbers], base: int) -> np.ndarray:
    """The first row copies the list, a token a cell; each of the others rewrites the one above it."""
    source, rules = operands[0], table_of_rules(base)
    row = np.where(source < base, source + 1, np.maximum(source - SYMBOLS + 1, 0))
    row[source == base + BLANK] = 0
    rows = [row]
    for _ in range(source.shape[1]):
        edges = np.pad(rows[-1], [(0, 0), (1, 1)])
        # At the left end a value has nowhere to go: it stays, as if an operator stood there that takes none.
        left = edges[:, 2:].copy()
        left[:, -1] = 1
        rows.append(rules[edges[:, :-2], edges[:, 1:-1], left])
    return np.stack(rows, axis=1)


def list_answer(cells: np.ndarray, base: int) -> Numbers:
    """The value that is left over in the last row: (samples, 1)."""
    last = cells[:, -1]
    return np.where((last > 0) & (last <= base), last - 1, 0).max(1, keepdims=True)


def written(cell: int, base: int) -> str:
    held = operator(cell, base)
    if held is None:
        return DIGITS[cell - 1] if cell else "."
    return held[0] + ("" if held[1] is None else DIGITS[held[1]])


# Three columns for each item: a list of n items has 2n - 1 tokens and takes 3(n - 1) rows.
COLUMNS = 3
LISTS = Trace(
    kinds=kinds,
    shape=one_more_row,
    cells=list_cells,
    answer=list_answer,
    write=written,
    trained=tuple(COLUMNS * items for items in (7, 3, 4, 5)),
    above=(-1, 0, 1),
)
