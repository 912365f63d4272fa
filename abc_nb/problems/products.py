"""The product of two long numbers as a table: schoolbook multiplication."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from abc_nb.problems.digits import Digits, digit_count, varied_digits
from abc_nb.problems.layouts import Layout
from abc_nb.problems.numbers import Numbers
from abc_nb.problems.tables import BEFORE, Atom, Tables, Values, Where
from abc_nb.problems.tasks import NUMBERS, Regime, Width, pair


class Product(Tables, Numbers, name="n-by-n"):
    """Row `r` adds `a * b_r` to the row above, which stands one column further left.

    Cell (r, c) is s = (digit of cell (r - 1, c + 1)) + a_c b_r + (carry of cell (r, c - 1)). Its digit is s modulo
    the base and its carry the rest, which is less than the base: s is less than its square. A width is the places of
    both factors.
    """

    title, example, operator, lengths = "N x N", "123*456", "*", "factors of any two lengths"

    @property
    def cells(self) -> int:
        return self.base**2

    def shape(self, width: Width) -> tuple[int, int]:
        """A row for each digit of the second factor, a column for each of the first and one for the last carry."""
        first, second = pair(width)
        return second, first + 1

    def needed(self, where: Where) -> list[Atom]:
        """Digits of both factors, the cell above to the right, and the cell before; fewer at the edges."""
        atoms: list[Atom] = [BEFORE] if where.column else []
        if where.column < where.columns - 1:
            atoms += [("by column", 1, 0), ("by row", 2, 0)] + [where.cell(-1, 1)] * (where.row > 0)
        return atoms

    def right(self, where: Where, values: Values) -> np.ndarray:
        carry = values[BEFORE] // self.base if where.column else np.array(0)
        if where.column == where.columns - 1:
            return carry
        above = values[where.cell(-1, 1)] % self.base if where.row else np.array(0)
        return above + values["by column", 1, 0] * values["by row", 2, 0] + carry

    def cells_at(self, where: Where, atom: Atom) -> int:
        """In the last column nothing is left to carry: it has a digit above it, or none, and no factor's digit."""
        return self.base if where.is_last(atom) else self.cells

    def possible(self, where: Where, values: Values) -> np.ndarray:
        """Cells hold multiples of the digits that are seen, too; what stands between two carries into one of them."""
        base, fine = self.base, np.ones(len(next(iter(values.values()))), bool)
        for atom, cell in values.items():
            kind, row, column = atom
            if kind == "cell" and where.column + column >= 0:  # otherwise it is the end of a row further up
                digit = values.get(("by row", 2, -row), base)
                factor = 0 if where.is_last(atom) else values.get(("by column", 1, -column), base)
                fine &= sums(base, row == 0 and where.row == 0)[digit, factor, cell]
        if where.end or where.row == 0 or where.column == where.columns - 1:
            return fine
        above, before = between(base)
        digit = values["by column", 1, 0]
        held = above[values.get(("by row", 2, 1), base), digit, values[where.cell(-1, 1)]]  # (contexts, digits)
        if where.column:
            held = held & before[values.get(("by column", 1, 1), base), values["by row", 2, 0], :, values[BEFORE]]
        return fine & held.any(1)

    def result(self, table: np.ndarray) -> Digits:
        """Column 0 from the top, then what is left of the last row."""
        digits = table % self.base
        return np.concatenate([digits[:, :, 0], digits[:, -1, 1:]], axis=1)

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """No number is larger than 2^20: factors have five digits at most in the bases from 11 to 16."""
        most = digit_count(NUMBERS + 1, self.base) - 1
        widths = [pair(width) for width in super().training_widths(regime, count)]
        return tuple(dict.fromkeys((min(first, most), min(second, most)) for first, second in widths))

    def width_of(self, operands: Sequence[Digits], regime: Regime | None = None) -> Width:
        return operands[0].shape[1], operands[1].shape[1]

    def operand_places(self, width: Width) -> list[int]:
        return [*pair(width)]

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        return [varied_digits(self.base, count, places, rng) for places in pair(width)]

    def written_table(self, tokens: Sequence[int], layout: Layout, operands: Sequence[Digits]) -> str:
        """The first factor, and the rows below it, each behind its digit of the second factor."""
        assert layout.row is not None
        rows = self.read_table(tokens, layout.row)[:, ::-1].tolist()
        lines = [" ".join(self.cell_text(cell) if cell >= 0 else " ?" for cell in row) for row in rows]
        first, second = (self.text(digits[0].tolist()) for digits in operands)
        head = " ".join(f"{digit:>2}" for digit in ("", *reversed(first)))
        products = [f"x {digit} | {line}" for digit, line in zip(second, lines, strict=False)]
        return "\n".join([" " * len("x 0 | ") + head, *products])


@cache
def sums(base: int, first_row: bool) -> np.ndarray:
    """Which cells a row can have: booleans (digit of its factor, digit of the column's, cell); `base` is any digit.

    To the product a digit above it is added, and a carry up to the row's digit; in the first row one below that alone.
    """
    digits, cells = np.arange(base), np.arange(base**2)
    least = np.multiply.outer(digits, digits)[:, :, None]
    more = np.maximum(digits - 1, 0) if first_row else digits + base - 1
    possible = (least <= cells) & (cells <= least + more[:, None, None])
    return with_any(with_any(possible, 1), 0)


@cache
def between(base: int) -> tuple[np.ndarray, np.ndarray]:
    """What the cell between the one above to the right and the one before can hold: it has this column's digit.

    Booleans (digit of the row above, digit of the column, cell above to the right, digit of the cell between), and
    (digit of the column before, digit of the row, digit of the cell between, cell before); `base` is any first one.
    """
    digits, cells = np.arange(base), np.arange(base**2)
    least = np.add.outer(np.multiply.outer(digits, digits), digits)[..., None]  # a product, and what is added to it
    before = (least <= cells) & (cells <= least + digits[:, None, None])  # and a carry up to the row's digit
    carried = ((least <= cells) & (cells < least + base)).any(1)  # digit of the row, carry, cell that it goes into
    held = sums(base, False)[:base, :base].reshape(base, base, base, base)  # rows, columns, carry, digit
    above = np.einsum("bku,bakd->baud", carried.astype(np.int64), held.astype(np.int64)) > 0
    return with_any(above, 0), with_any(before, 0)


def with_any(possible: np.ndarray, axis: int) -> np.ndarray:
    """One more along an axis: what is possible with any of the others."""
    return np.concatenate([possible, possible.any(axis, keepdims=True)], axis)
