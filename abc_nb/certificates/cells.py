"""Which cells of tables can stand together, computed from the rule alone.

A cell's *pattern* says which of the rule's reads hold something there: this is all that edges of a table mean for it.
For each pattern the *relation* lists what can be read together, with the cell that is then written. It is the smallest
one in which every cell that is read is one that some entry of its own pattern's relation writes, given what both read.
This is a fixed point: it begins with nothing, and grows until no entry is new. A relation holds all that occurs in
tables of any size, by induction over the cells in the order in which they are written, and may hold more.

A context is possible if each cell that it shows is one that can be written beside what else it shows. That is asked
of one cell at a time, so more can pass than occur.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from abc_nb.problems.rules import EDGE, OUTPUT, Address, Rule, Where

ENTRIES = 5 * 10**6  # of a relation: in a larger one all count as possible
Pattern = tuple[bool, ...]
Offset = tuple[int, int]  # rows down and columns on, from where a token is written
Key = tuple[int, ...]  # what is read, as seen from there: an operand's token by its offset, or a cell by rows, columns


def key_of(rule: Rule, address: Address, at: Offset = (0, 0)) -> Key:
    """What the cell at an offset reads at an address; two such are the same token only if their keys are equal."""
    rows, columns = at[0] + address.rows, at[1] + address.columns
    if address.operand == OUTPUT:
        return OUTPUT, rows, columns
    along = rule.inputs[address.operand].along
    if along == "cell":
        return address.operand, at[0], columns
    return address.operand, rows if along == "row" else columns


class Relation:
    """What can be read together where the reads of a pattern hold something, and the cell that is then written."""

    def __init__(self, rule: Rule, pattern: Pattern) -> None:
        self.read = [number for number, there in enumerate(pattern) if there]
        alphabets = [
            np.arange(rule.cells) if at.operand == OUTPUT else rule.inputs[at.operand].alphabet for at in rule.reads
        ]
        self.sizes = [int(alphabets[number].max()) + 1 for number in self.read]
        total = prod(len(alphabets[number]) for number in self.read)
        self.known = total <= ENTRIES
        self.values, self.allowed = np.empty((len(pattern), total * self.known), np.int16), np.zeros(0, bool)
        if not self.known:
            return
        grid = np.unravel_index(np.arange(total), [len(alphabets[number]) for number in self.read])
        self.values[:] = EDGE
        for number, rows in zip(self.read, grid, strict=True):
            self.values[number] = alphabets[number][rows]
        self.written = np.broadcast_to(rule.step(rule.start, *self.values.astype(np.int64))[0], total).astype(np.int16)
        self.allowed = np.zeros(total, bool)

    def table(self, reads: Sequence[int], cells: int) -> np.ndarray:
        """Which values some reads can have beside which written cell: booleans (a size for each read, cells)."""
        sizes = [self.sizes[self.read.index(number)] for number in reads]
        together = np.full((*sizes, cells), not self.known)
        if self.known:
            columns = [*self.values[[*reads]], self.written]
            together[tuple(column[self.allowed] for column in columns)] = True
        return together


class Shown(NamedTuple):
    """A cell that a context shows, and what of its reads is shown: atoms by their numbers."""

    pattern: Pattern
    reads: tuple[tuple[int, int], ...]  # (number of the read, number of the atom)
    cell: int


Situation = tuple[Shown, ...]  # all of whose cells are there at once


class Cells:
    """The relations of a rule's tables."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.reach = max(max(abs(at.rows), abs(at.columns)) for at in rule.reads)
        self.of_pattern = self.relations()
        self.table = cache(lambda pattern, reads: self.of_pattern[pattern].table(reads, rule.cells))

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def written(self, given: tuple[bool, ...]) -> np.ndarray:
        """The cells that can stand where these operands hold something, whatever cells do."""
        alike = [one for pattern, one in self.of_pattern.items() if self.given(pattern) == given]
        return np.flatnonzero(np.any([one.table([], self.rule.cells) for one in alike], axis=0))

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def pattern(self, where: Where) -> Pattern:
        return tuple(where.reads(self.rule, at) is not None for at in self.rule.reads)

    def at(self, where: Where, offset: Offset) -> Pattern | None:
        """The pattern of the cell at an offset; None outside of the table."""
        row, column = where.row + offset[0], where.column + offset[1]
        inside = 0 <= row < where.rows and 0 <= column < where.columns
        return self.pattern(where._replace(row=row, column=column)) if inside else None

    @property
    def cell_reads(self) -> list[tuple[int, Address]]:
        return [(number, at) for number, at in enumerate(self.rule.reads) if at.operand == OUTPUT]

    def relations(self) -> dict[Pattern, Relation]:
        """The fixed point, over all neighbourhoods of a cell, which small tables show."""
        around: dict[Pattern, set[tuple[Pattern | None, ...]]] = {}
        most = 4 * self.reach + 3
        for rows, columns in product(range(1, most + 1), range(1 + self.rule.wider(1), most + 1)):
            for row, column in product(range(rows), range(columns)):
                where = Where(row, column, rows, columns)
                near = tuple(self.at(where, (at.rows, at.columns)) for _, at in self.cell_reads)
                around.setdefault(self.pattern(where), set()).add(near)
        relations, before = {pattern: Relation(self.rule, pattern) for pattern in around}, -1
        while before != (before := sum(int(one.allowed.sum()) for one in relations.values())):
            for pattern, neighbours in around.items():
                relation = relations[pattern]
                for near in neighbours if relation.known else ():
                    relation.allowed |= self.fitting(relations, relation, near)
        return relations

    def fitting(self, known: Mapping[Pattern, Relation], one: Relation, near: Sequence[Pattern | None]) -> np.ndarray:
        """Which entries of a relation can be, where the cells that are read have the patterns `near`."""
        fine, numbers = one.written >= 0, {key_of(self.rule, self.rule.reads[n]): n for n in one.read}
        for (number, address), pattern in zip(self.cell_reads, near, strict=True):
            if pattern is None:
                continue
            keys = [key_of(self.rule, at, (address.rows, address.columns)) for at in self.rule.reads]
            shared = [read for read in known[pattern].read if keys[read] in numbers]
            columns = [one.values[numbers[keys[read]]] for read in shared]
            fine &= known[pattern].table(shared, self.rule.cells)[(*columns, one.values[number])]
        return fine

    def given(self, pattern: Pattern) -> tuple[bool, ...]:
        """Which operands hold something."""
        return tuple(there for there, at in zip(pattern, self.rule.reads, strict=False) if at.operand != OUTPUT)

    def situation(self, where: Where, shown: Mapping[Key, int], cells: Mapping[Offset, int]) -> Situation:
        """What the atoms that are `shown` there, by key, have to do with the `cells` among them."""
        situation = []
        for offset, number in cells.items():
            pattern = self.at(where, offset)
            assert pattern is not None
            keys = [key_of(self.rule, address, offset) for address in self.rule.reads]
            reads = tuple((n, shown[key]) for n, key in enumerate(keys) if pattern[n] and key in shown)
            situation.append(Shown(pattern, reads, number))
        return tuple(situation)

    def possible(self, situation: Situation, values: Sequence[np.ndarray]) -> np.ndarray:
        """Which contexts are possible in a situation: booleans (contexts,)."""
        fine = np.ones(len(values[0]), bool)
        for one in situation:
            table = self.table(one.pattern, tuple(number for number, _ in one.reads))
            fine &= table[tuple(values[atom] for atom in (*(atom for _, atom in one.reads), one.cell))]
        return fine
