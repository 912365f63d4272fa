"""Which cells of tables can stand together, computed from the rule alone.

A cell's *pattern* says which of the rule's reads hold something there: this is all that edges of a table mean for it.
For each pattern the *relation* lists what can be read together, with the cell that is then written. It is the smallest
one in which every cell that is read is one that some entry of its own pattern's relation writes, given what both read.
This is a fixed point: it begins with nothing, and grows until no entry is new. A relation holds all that occurs in
tables of any size, by induction over the cells in the order in which they are written, and may hold more.

In a product a cell reads a digit of each factor, the cell above and the cell before. In the first row nothing stands
above, in the first column nothing before, and in the last column no digit of the first factor. The relation of the
corner's pattern are the 100 pairs of digits, each with the cell that it gives: 7 and 8 give 56. The next cell has one
of these before it, and so on: in the first row a cell is at most 9 * 9 + 8, and no entry with 98 enters its relation.

Beside a context's cells stand others that it does not show, and that were read for them. A context is possible if
there is such a cell for each place beside it; that is asked of one place at a time, so more can pass than occur.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from abc_nb.problems.rules import EDGE, OUTPUT, Address, Rule, WrittenCell

ENTRIES, JOINED = 5 * 10**6, 2 * 10**7  # of a relation and of what is joined: in larger ones all count as possible
Standing = tuple[bool, ...]
Offset = tuple[int, int]  # rows down and columns on, from where a token is written
# What is read, as seen from there: an operand's token by its offset, or a cell by rows and columns.
ReadKey = tuple[int, ...]


def key_of(rule: Rule, address: Address, at: Offset = (0, 0)) -> ReadKey:
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

    def __init__(self, rule: Rule, pattern: Standing) -> None:
        self.read = [number for number, there in enumerate(pattern) if there]
        alphabets = [
            np.arange(rule.cell_count) if at.operand == OUTPUT else rule.inputs[at.operand].alphabet
            for at in rule.reads
        ]
        self.sizes = [int(alphabets[number].max()) + 1 for number in self.read]
        total = prod(len(alphabets[number]) for number in self.read)
        self.known = total <= ENTRIES
        self.values, self.allowed = np.empty((len(pattern), total * self.known), np.int16), np.zeros(0, bool)
        if not self.known:
            return
        sizes = [len(alphabets[number]) for number in self.read]
        grid = np.unravel_index(np.arange(total), sizes) if sizes else ()
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


class Factor(NamedTuple):
    """That a cell is one that its pattern can write: which reads are which variables, and which variable it is."""

    pattern: Standing
    reads: tuple[tuple[int, Hashable], ...]
    cell: Hashable


Together = tuple[Factor, ...]  # factors with one hidden cell in common, called `BESIDE`
BESIDE = "beside"
Tables = tuple[list[list[Hashable]], list[np.ndarray]]  # of what can stand together: variables, and booleans
Situation = tuple[Together, ...]  # what holds at once; the first are those of cells that are shown


class Cells:
    """The relations of a rule's tables."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.reach = max(max(abs(at.rows), abs(at.columns)) for at in rule.reads)
        self.of_pattern, self.tables = self.relations(), dict[Together, Tables]()

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def written(self, given: tuple[bool, ...]) -> np.ndarray:
        """The cells that can stand where these operands hold something, whatever cells do."""
        alike = [one for pattern, one in self.of_pattern.items() if self.given(pattern) == given]
        return np.flatnonzero(np.any([one.table([], self.rule.cell_count) for one in alike], axis=0))

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def pattern(self, where: WrittenCell) -> Standing:
        return tuple(where.reads(self.rule, at) is not None for at in self.rule.reads)

    def at(self, where: WrittenCell, offset: Offset) -> Standing | None:
        """The pattern of the cell at an offset; None outside of the table."""
        row, column = where.row + offset[0], where.column + offset[1]
        inside = 0 <= row < where.rows and 0 <= column < where.columns
        return self.pattern(where._replace(row=row, column=column)) if inside else None

    @property
    def cell_reads(self) -> list[tuple[int, Address]]:
        return [(number, at) for number, at in enumerate(self.rule.reads) if at.operand == OUTPUT]

    def relations(self) -> dict[Standing, Relation]:
        """The fixed point, over all neighbourhoods of a cell, which small tables show."""
        around: dict[Standing, set[tuple[Standing | None, ...]]] = {}
        most, more = 4 * self.reach + 3, self.rule.wider(1)
        for rows, columns in product(range(1, most + 1), range(1 + more, most + 1 + more)):
            for row, column in product(range(rows), range(columns)):
                where = WrittenCell(row, column, rows, columns)
                near = tuple(self.at(where, (at.rows, at.columns)) for _, at in self.cell_reads)
                around.setdefault(self.pattern(where), set()).add(near)
        relations, before = {pattern: Relation(self.rule, pattern) for pattern in around}, -1
        while before != (before := sum(int(one.allowed.sum()) for one in relations.values())):
            for pattern, neighbours in around.items():
                relation = relations[pattern]
                for near in neighbours if relation.known else ():
                    relation.allowed |= self.fitting(relations, relation, near)
        return relations

    def fitting(self, known: Mapping[Standing, Relation], one: Relation, near: Sequence[Standing | None]) -> np.ndarray:
        """Which entries of a relation can be, where the cells that are read have the patterns `near`."""
        fine, numbers = one.written >= 0, {key_of(self.rule, self.rule.reads[n]): n for n in one.read}
        for (number, address), pattern in zip(self.cell_reads, near, strict=True):
            if pattern is None:
                continue
            keys = [key_of(self.rule, at, (address.rows, address.columns)) for at in self.rule.reads]
            shared = [read for read in known[pattern].read if keys[read] in numbers]
            columns = [one.values[numbers[keys[read]]] for read in shared]
            fine &= known[pattern].table(shared, self.rule.cell_count)[(*columns, one.values[number])]
        return fine

    def given(self, pattern: Standing) -> tuple[bool, ...]:
        """Which operands hold something."""
        return tuple(there for there, at in zip(pattern, self.rule.reads, strict=False) if at.operand != OUTPUT)

    def situation(
        self, where: WrittenCell, shown: Mapping[ReadKey, Hashable], cells: Mapping[Offset, Hashable]
    ) -> Situation:
        """What must hold of the variables that are `shown` there, by key, and of the `cells` among them."""
        patterns = {offset: self.at(where, offset) for offset in cells}
        factors = {at: self.factor(at, pattern, cells[at], shown) for at, pattern in patterns.items() if pattern}
        beside = {hidden for one in factors.values() for _, key in one.reads if (hidden := hidden_cell(key))}
        alone = tuple((self.only(one, {*shown.values()}),) for one in factors.values())
        return (*alone, *(self.together(where, at, shown, factors) for at in sorted(beside)))

    def factor(self, at: Offset, pattern: Standing, cell: Hashable, shown: Mapping[ReadKey, Hashable]) -> Factor:
        keys = ((number, key_of(self.rule, address, at)) for number, address in enumerate(self.rule.reads))
        return Factor(pattern, tuple((n, shown.get(key, key)) for n, key in keys if pattern[n]), cell)

    def only(self, factor: Factor, kept: set[Hashable]) -> Factor:
        return factor._replace(reads=tuple(read for read in factor.reads if read[1] in kept))

    def together(
        self, where: WrittenCell, at: Offset, shown: Mapping[ReadKey, Hashable], factors: Mapping[Offset, Factor]
    ) -> Together:
        """The factors of a hidden cell and of the shown ones that read it, without what only one of them reads."""
        pattern, key = self.at(where, at), (OUTPUT, *at)
        assert pattern is not None
        chosen = [self.factor(at, pattern, key, shown)]
        chosen += [one for one in factors.values() if any(variable == key for _, variable in one.reads)]
        counts: dict[Hashable, int] = {}
        for one in chosen:
            for variable in {*(variable for _, variable in one.reads), one.cell}:
                counts[variable] = counts.get(variable, 0) + 1
        kept = [v for v, many in counts.items() if many > 1 or isinstance(v, int)]
        names = {v: BESIDE if v == key else v if isinstance(v, int) else f"hidden {n}" for n, v in enumerate(kept)}
        return tuple(
            Factor(one.pattern, tuple((n, names[v]) for n, v in one.reads if v in kept), names.get(one.cell, one.cell))
            for one in chosen
        )

    def possible(self, situation: Situation, values: Mapping[Hashable, np.ndarray]) -> np.ndarray:
        """Which contexts are possible in a situation: booleans (contexts,)."""
        fine = np.ones(len(next(iter(values.values()))), bool)
        for together in situation:
            rows = np.flatnonzero(fine)
            beside: np.ndarray | None = None
            for variables, table in zip(*self.joined(together), strict=True):
                index = tuple(values[variable][rows] for variable in variables)
                part = table[index] if index else np.broadcast_to(table, (len(rows), *table.shape))
                beside = part if beside is None else beside & part
            if beside is not None:
                fine[rows] = beside if beside.ndim == 1 else beside.any(1)
        return fine

    def joined(self, together: Together) -> Tables:
        """Tables of what can stand together, each over some shown variables and, of a hidden cell, over that one last.

        Factors with a hidden variable in common are joined into one table, in which it can be anything.
        """
        known = self.tables.get(together)
        if known is None:
            known = self.tables[together] = join(
                [(*(variable for _, variable in one.reads), one.cell) for one in together],
                [
                    self.of_pattern[one.pattern].table([n for n, _ in one.reads], self.rule.cell_count)
                    for one in together
                ],
            )
        return known


def hidden_cell(variable: Hashable) -> Offset | None:
    """How far away the cell stands that a variable is, if it is one that is not shown."""
    cell = isinstance(variable, tuple) and len(variable) == 3 and variable[0] == OUTPUT
    return (variable[1], variable[2]) if cell and isinstance(variable, tuple) else None


def join(variables: Sequence[tuple[Hashable, ...]], tables: Sequence[np.ndarray]) -> Tables:
    """Tables over shown variables, which are numbers, with what is hidden summed out, and BESIDE as the last."""
    groups: list[list[int]] = []
    for number, members in enumerate(variables):
        hidden = {variable for variable in members if not isinstance(variable, int) and variable != BESIDE}
        near = [group for group in groups if any(hidden & {*variables[other]} for other in group)]
        groups = [group for group in groups if group not in near] + [[number, *(n for group in near for n in group)]]
    names, results = list[list[Hashable]](), list[np.ndarray]()
    for group in groups:
        every = list(dict.fromkeys(variable for number in group for variable in variables[number]))
        shown = [variable for variable in every if isinstance(variable, int)]
        last = [BESIDE] * (BESIDE in every)
        sizes = {v: size for n in group for v, size in zip(variables[n], tables[n].shape, strict=True)}
        if prod(sizes[variable] for variable in (*shown, *last)) > JOINED or all(tables[n].all() for n in group):
            continue  # all is possible
        letters = {variable: number for number, variable in enumerate(every)}
        operands: list[Any] = []
        for number in group:
            operands += [tables[number].astype(np.float32), [letters[variable] for variable in variables[number]]]
        joined = np.einsum(*operands, [letters[variable] for variable in (*shown, *last)], optimize=True)
        names.append([*shown])
        results.append(joined > 0)
    return names, results
