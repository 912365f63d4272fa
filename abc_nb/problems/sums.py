"""The sum of many numbers as a table of running sums."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from abc_nb.problems.digits import DIGITS, Digits, digit_count, varied_digits, written_number
from abc_nb.problems.layouts import Layout
from abc_nb.problems.numbers import numbers_in
from abc_nb.problems.tables import BEFORE, Atom, Tables, Values, Where
from abc_nb.problems.tasks import Regime, Width, pair

HERE: Atom = ("by cell", 1, 0)


class SumOfMany(Tables, name="sum-of-many"):
    """Row `r` is the sum of the last `r + 1` numbers; a width is the digits of a number, and how many there are.

    The operand is written row by row as the table is, so that one line follows it from cell to cell: each number with
    zeros in front as far as the sum needs them, and a plus before them, in the last column. Cell (r, c) is the digit
    above it, the digit of number `r` and the carry of the cell before, together less than twice the base.
    """

    title, example, lengths = "Sum of many numbers", "12+34+56", "any number of numbers of any length"
    takes = "numbers with a + between them"

    @property
    def cells(self) -> int:
        return 2 * self.base

    def shape(self, width: Width) -> tuple[int, int]:
        """A row for each number, and as many columns as the sum can need."""
        digits, numbers = pair(width)
        return numbers, digits + digit_count(numbers, self.base)

    def needed(self, where: Where) -> list[Atom]:
        here = [HERE] * (where.column < where.columns - 1)
        return [*here, *[BEFORE] * (where.column > 0), *[where.cell(-1, 0)] * (where.row > 0)]

    def right(self, where: Where, values: Values) -> np.ndarray:
        digit = values[HERE] if where.column < where.columns - 1 else np.array(0)
        above = values[where.cell(-1, 0)] % self.base if where.row else np.array(0)
        return digit + above + (values[BEFORE] // self.base if where.column else np.array(0))

    def cells_at(self, where: Where, atom: Atom) -> int:
        """Nothing is carried in the first row, nor out of the last column."""
        first = where.row * where.columns + where.column + atom[1] * where.columns + atom[2] < where.columns
        return self.base if first or where.is_last(atom) else self.cells

    def possible(self, where: Where, values: Values) -> np.ndarray:
        """A plus stands in the last column alone, and all that can stand at one place can stand beside the others."""
        fine = np.ones(len(next(iter(values.values()))), bool)
        for (kind, _, back), token in values.items():
            if kind == "by cell":
                last = (where.column - back) % where.columns == where.columns - 1
                fine &= (token == self.token("+")) == last
        return fine

    def result(self, table: np.ndarray) -> Digits:
        return table[:, -1] % self.base

    @property
    def inputs(self) -> np.ndarray:
        return np.array([*range(self.base), self.token("+")])

    def width_of(self, operands: Sequence[Digits], regime: Regime | None = None) -> Width:
        columns = 1 + int((operands[0][0] == self.token("+")).argmax())
        numbers = operands[0].shape[1] // columns
        return columns - digit_count(numbers, self.base), numbers

    def operand_places(self, width: Width) -> list[int]:
        rows, columns = self.shape(width)
        return [rows * columns]

    def natural(self, width: Width) -> Layout:
        flat = super().natural(width)
        return replace(flat, operands=(replace(flat.operands[0], rows=True),))

    def written(self, numbers: np.ndarray) -> list[Digits]:
        """The operand of numbers (samples, numbers, digits), the last one of a problem first."""
        samples, rows, _ = numbers.shape
        zeros = np.zeros((samples, rows, digit_count(rows, self.base) - 1), np.int64)
        pluses = np.full((samples, rows, 1), self.token("+"))
        return [np.concatenate([numbers, zeros, pluses], axis=2).reshape(samples, -1)]

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        digits, numbers = pair(width)
        return self.written(varied_digits(self.base, count, numbers * digits, rng).reshape(count, numbers, digits))

    def test_operands(self, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        digits, numbers = pair(width)
        drawn = rng.integers(self.base, size=(samples, numbers, digits))
        drawn[:, :, -1] = rng.integers(1, self.base, size=(samples, numbers))
        return self.written(drawn)

    def parsed(self, text: str) -> list[Digits]:
        parts = numbers_in(text, "+", self.digits)
        size = max(map(len, parts))
        rows = [[DIGITS.index(digit) for digit in reversed(part.rjust(size, "0"))] for part in reversed(parts)]
        return self.written(np.array([rows]))

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        digits, numbers = pair(self.width_of(operands))
        rows = operands[0][0].reshape(numbers, -1)[::-1, :digits][:, ::-1].tolist()
        return "+".join("".join(self.text(row)) if zeros else written_number(self.text(row)) for row in rows)
