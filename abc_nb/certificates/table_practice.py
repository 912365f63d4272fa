"""Training problems whose tables hold wrong contexts: found among random products of the widest training size."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abc_nb.certificates.local import BEFORE, Where
from abc_nb.certificates.shapes import Atom
from abc_nb.certificates.tables import TableShape
from abc_nb.certificates.tried import Tried
from abc_nb.problems.sampling import Sampler, draw_operands
from abc_nb.problems.tasks import Digits

PROBLEMS, ROUNDS = 20_000, 60  # random problems of a round, and rounds at most
ABSENT = -1


class Tables:
    """Random problems with their tables, and what stands at an atom of each cell."""

    def __init__(self, sampler: Sampler, rng: np.random.Generator) -> None:
        assert sampler.task.trace is not None
        task, width = sampler.task, max(sampler.widths)
        self.operands: list[Digits] = draw_operands(task, np.empty(0, np.int64), PROBLEMS, width, rng)
        self.first_cell = task.first_cell
        self.cells = task.first_cell + task.trace.cells(self.operands, task.base)
        self.known: dict[Atom, np.ndarray] = {}

    def at(self, atom: Atom) -> np.ndarray:
        """The token at an atom, seen from every cell: (problems, rows, columns), or broadcast to it."""
        if atom not in self.known:
            self.known[atom] = self.token(*atom)
        return self.known[atom]

    def token(self, kind: str, x: int, y: int) -> np.ndarray:
        rows, columns = self.cells.shape[1:]
        if kind == "cell":
            flat = self.cells.reshape(len(self.cells), -1)
            target = np.arange(rows)[:, None] * columns + np.arange(columns) + x * columns + y
            inside = (target >= 0) & (target < flat.shape[1])
            if (kind, x, y) != BEFORE:
                inside &= (np.arange(columns) + y >= 0) & (np.arange(columns) + y < columns)
            return np.where(inside, flat[:, target.clip(0, flat.shape[1] - 1)], ABSENT)
        places = np.arange(columns if kind == "by column" else rows) - y
        digits = self.operands[x - 1]
        found = np.where(
            (places >= 0) & (places < digits.shape[1]), digits[:, places.clip(0, digits.shape[1] - 1)], ABSENT
        )
        return found[:, None, :] if kind == "by column" else found[:, :, None]

    def like(self, where: Where) -> np.ndarray:
        """The cells that stand at the same edges: (rows, columns)."""
        row, column = np.indices(self.cells.shape[1:])
        first = (row == 0) == (where.row == 0)
        return (
            first
            & ((column == 0) == (where.column == 0))
            & ((column == column.max()) == (where.column == where.columns - 1))
        )

    def holding(self, shape: TableShape, values: np.ndarray) -> int | None:
        """A problem that holds a context, if one does."""
        found: np.ndarray = np.broadcast_to(self.like(shape.where), self.cells.shape)
        for atom, token in zip(shape.names, values.tolist(), strict=True):
            found = found & (self.at(atom) == token)
        rows = np.flatnonzero(found.any((1, 2)))
        return int(rows[0]) if len(rows) else None


def practice_of_tables(sampler: Sampler, results: Iterable[Tried]) -> tuple[list[Digits], int]:
    """The operands of one problem for each wrong context that is found, and how many contexts were not found."""
    rng = np.random.default_rng(0)
    wanted = [(each.shape, values) for each in results for values, _ in each.examples]
    more = sum(each.wrong for each in results) - len(wanted)
    found: list[list[Digits]] = []
    for _ in range(ROUNDS):
        if not wanted:
            break
        tables, left = Tables(sampler, rng), wanted[:0]
        for shape, values in wanted:
            assert isinstance(shape, TableShape)
            row = None if shape.where.end else tables.holding(shape, values)
            if row is None:
                left.append((shape, values))
            else:
                found.append([digits[row : row + 1] for digits in tables.operands])
        wanted = left
    return [np.concatenate(column) for column in zip(*found, strict=True)], more + len(wanted)
