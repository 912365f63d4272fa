"""Problems of training size whose tables hold wrong contexts: made from a context's tokens, then tried.

The digits that a context names are set. A cell that it names is a multiple of its row's digit and its column's plus
what is above and what is carried: so these two digits are drawn from the pairs that can lead to it. The other digits
are drawn at random. Of so many problems some hold the whole context.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abc_nb.certificates.tables import TableShape
from abc_nb.certificates.tried import Tried
from abc_nb.problems.digits import Digits, fit
from abc_nb.problems.products import Product, sums
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import pair

TRIED = 4_096  # problems drawn at once
ROUNDS = 4  # times that they are drawn, for each place where a context can stand
FREE = -1  # a digit that is not decided yet


class Draft:
    """Problems of one size that are to hold one context at one step."""

    def __init__(self, task: Product, shape: TableShape, values: np.ndarray, size: tuple[int, int], step: int) -> None:
        self.task, self.size, self.columns = task, size, size[0] + 1
        row, column = divmod(step, self.columns)
        self.digits: list[tuple[int, int, int]] = []  # operand, place, digit
        self.cells: list[tuple[int, int, int]] = []  # row, column, cell
        for (kind, x, y), token in zip(shape.names, values.tolist(), strict=True):
            if kind == "cell":
                where = step + y if x == 0 else (row + x) * self.columns + column + y
                self.cells.append((*divmod(where, self.columns), token - task.first_cell))
            else:
                self.digits.append((x - 1, (column if kind == "by column" else row) - y, token))

    def drawn(self, rng: np.random.Generator) -> list[Digits]:
        """Random problems in which the named digits stand, and digits that can lead to the named cells."""
        base, rows = self.task.base, np.arange(TRIED)
        found = [np.full((TRIED, places), FREE) for places in (self.size[0] + 1, self.size[1])]
        found[0][:, -1] = 0  # in the last column no digit stands
        for operand, place, digit in self.digits:
            found[operand][:, place] = digit
        for row, column, cell in self.cells:
            pairs = np.argwhere(sums(base, row == 0)[:base, :base, cell])  # (pairs, 2)
            known = np.stack([found[1][:, row], found[0][:, column]], axis=1)[:, None]
            chance = rng.random((TRIED, len(pairs))) * ((known == FREE) | (known == pairs)).all(2)
            chosen = pairs[chance.argmax(1)] if len(pairs) else known[:, 0]
            found[1][:, row], found[0][:, column] = chosen.T
        for digits in found:
            digits[digits == FREE] = rng.integers(base, size=int((digits == FREE).sum()))
        for operand, place, digit in self.digits:
            found[operand][rows, place] = digit
        return [found[0][:, :-1], found[1]]

    def problem(self, rng: np.random.Generator) -> list[Digits] | None:
        """A problem that holds the context, if one of those drawn does."""
        operands = self.drawn(rng)
        table = self.task.answer(operands).reshape(TRIED, -1, self.columns) - self.task.first_cell
        fine = np.ones(TRIED, bool)
        for row, column, cell in self.cells:
            fine &= table[:, row, column] == cell
        for operand, place, digit in self.digits:
            fine &= operands[operand][:, place] == digit
        rows = np.flatnonzero(fine)[:1]
        return [digits[rows] for digits in operands] if len(rows) else None


def held(sampler: Sampler, each: Tried, values: np.ndarray, rng: np.random.Generator) -> list[Digits] | None:
    """The operands of a problem that holds a context, of the largest training size that shows its shape, if found."""
    most, task = pair(sampler.widest), sampler.task
    assert isinstance(task, Product)
    where = [(pair(size), step) for size, step in each.where]
    sizes = [size for size, _ in where if size[0] <= most[0] and size[1] <= most[1]]
    size = max(sizes, key=lambda places: (places[0] * places[1], places), default=None)
    assert isinstance(each.shape, TableShape)
    drafts = [Draft(task, each.shape, values, size, step) for own, step in where if own == size]
    found = (draft.problem(rng) for draft in drafts * ROUNDS)
    return next((operands for operands in found if operands is not None), None)


def practice_of_tables(sampler: Sampler, results: Iterable[Tried]) -> tuple[list[Digits], int]:
    """The operands of one problem for each wrong context that is found, and how many were not found.

    After the operands, with zeros in front as in the widest training size, stand the sizes of the problems: how many
    places each factor has, no more than in training.
    """
    rng, most = np.random.default_rng(0), pair(sampler.widest)
    found, left = [], 0
    for each in results:
        problems = [held(sampler, each, values, rng) for values, _ in each.examples]
        kept = [operands for operands in problems if operands is not None]
        left += each.wrong - len(kept)
        sizes = [np.array([[digits.shape[1] for digits in operands]]) for operands in kept]
        found += [[*fit(operands, widest(most)), size] for operands, size in zip(kept, sizes, strict=True)]
    return [np.concatenate(column) for column in zip(*found, strict=True)], left


def widest(size: tuple[int, int]) -> list[Digits]:
    """No operands, of so many places."""
    return [np.empty((0, places), np.int64) for places in size]
