"""Which cells of tables can stand together, computed from the rule alone.

A cell's *pattern* says which of the rule's reads hold something there: this is all that edges of a table mean for it.
For each pattern the *relation* is a set of entries: what is read together, and the cell that is then written. Begin
with no entry. Add each one whose cells that are read are written by entries of their own patterns' relations, with the
same values where both read the same token. Repeat until no entry is new. By induction over the cells, in the order in
which they are written, the relations then hold all that occurs in tables of any size, and they may hold more.

In a product a cell reads a digit of each factor, the cell above and the cell before. In the first row nothing stands
above, in the first column nothing before, and in the last column no digit of the first factor. The relation of the
corner's pattern are the 100 pairs of digits, each with the cell that it gives: 7 and 8 give 56. The next cell has one
of these before it, and so on: in the first row a cell is at most 9 * 9 + 8, and no entry with 98 enters its relation.

Beside a context's cells stand others that it does not show, and that were read for them. A context is possible if
there is such a cell for each place beside it; each place is looked at by itself, so more can pass than occur.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from abc_nb.problems.rules import EDGE, OUTPUT, Address, Rule, WrittenCell

ENTRIES, JOINED = 5 * 10**6, 2 * 10**7  # of a relation and of what is joined: in larger ones all count as possible
CellPattern = tuple[bool, ...]
Offset = tuple[int, int]  # rows down and columns on, from where a token is written
# What is read, as seen from there: an operand's token by its offset, or a cell by rows and columns.
ReadKey = tuple[int, ...]


class Relation:
    """What can be read together where the reads of a pattern hold something, and the cell that is then written."""

    def __init__(self, rule: Rule, pattern: CellPattern) -> None:
        cells, self.cell_count = np.arange(rule.cell_count), rule.cell_count
        alphabets = {
            number: cells if address.operand == OUTPUT else rule.inputs[address.operand].alphabet
            for number, address in enumerate(rule.reads)
            if pattern[number]
        }
        self.sizes = {number: int(alphabet.max()) + 1 for number, alphabet in alphabets.items()}
        total = prod(map(len, alphabets.values()))
        self.listed = total <= ENTRIES
        self.allowed = np.zeros(total * self.listed, bool)
        if self.listed:
            self.values = np.full((len(pattern), total), EDGE, np.int16)
            for number, grid in zip(alphabets, np.meshgrid(*alphabets.values(), indexing="ij"), strict=True):
                self.values[number] = grid.ravel()
            written = rule.step(rule.start, *self.values.astype(np.int64))[0]
            self.written = np.broadcast_to(written, total).astype(np.int16)

    def table(self, reads: Sequence[int]) -> np.ndarray:
        """Which values some reads can have beside which written cell: booleans (a size for each read, cells)."""
        table = np.full((*(self.sizes[number] for number in reads), self.cell_count), not self.listed)
        if self.listed:
            columns = [*self.values[[*reads]], self.written]
            table[tuple(column[self.allowed] for column in columns)] = True
        return table


class Factor(NamedTuple):
    """A constraint: what one cell reads, and the cell, are an entry of its pattern's relation. Both are variables."""

    pattern: CellPattern
    reads: tuple[tuple[int, Hashable], ...]
    cell: Hashable


Group = tuple[Factor, ...]  # factors with one hidden cell in common, called `BESIDE`
BESIDE = "beside"
Tables = tuple[list[list[Hashable]], list[np.ndarray]]  # of what can stand together: variables, and booleans
Situation = tuple[Group, ...]  # what holds at once; the first are those of cells that are shown


class Cells:
    """The relations of a rule's tables."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.reach = max(max(abs(address.rows), abs(address.columns)) for address in rule.reads)
        self.cell_reads = [(n, address) for n, address in enumerate(rule.reads) if address.operand == OUTPUT]
        self.relations = self.fixed_point()
        self.joined = cache(self.tables_of)

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def written(self, present: tuple[bool, ...]) -> np.ndarray:
        """The cells that can stand where these operands hold something, whatever cells do."""
        relations = [relation for pattern, relation in self.relations.items() if self.present(pattern) == present]
        return np.flatnonzero(np.any([relation.table([]) for relation in relations], axis=0))

    @lru_cache(maxsize=2**16)  # noqa: B019 (few of them)
    def pattern(self, cell: WrittenCell) -> CellPattern:
        return tuple(cell.reads(self.rule, address) is not None for address in self.rule.reads)

    def pattern_at(self, cell: WrittenCell, offset: Offset) -> CellPattern | None:
        """The pattern of the cell at an offset; None outside of the table."""
        row, column = cell.row + offset[0], cell.column + offset[1]
        inside = 0 <= row < cell.rows and 0 <= column < cell.columns
        return self.pattern(cell._replace(row=row, column=column)) if inside else None

    def key(self, address: Address, offset: Offset = (0, 0)) -> ReadKey:
        """What the cell at an offset reads at an address; two such are the same token only if their keys are equal."""
        rows, columns = offset[0] + address.rows, offset[1] + address.columns
        if address.operand == OUTPUT:
            return OUTPUT, rows, columns
        along = self.rule.inputs[address.operand].along
        if along == "cell":
            return address.operand, offset[0], columns
        return address.operand, rows if along == "row" else columns

    def fixed_point(self) -> dict[CellPattern, Relation]:
        """The relation of each pattern, over all neighbourhoods of a cell, which small tables show."""
        neighbourhoods: dict[CellPattern, set[tuple[CellPattern | None, ...]]] = {}
        largest, wider = 4 * self.reach + 3, self.rule.wider(1)
        for rows, columns in product(range(1, largest + 1), range(1 + wider, largest + 1 + wider)):
            for row, column in product(range(rows), range(columns)):
                cell = WrittenCell(row, column, rows, columns)
                neighbours = tuple(self.pattern_at(cell, (at.rows, at.columns)) for _, at in self.cell_reads)
                neighbourhoods.setdefault(self.pattern(cell), set()).add(neighbours)
        relations, count = {pattern: Relation(self.rule, pattern) for pattern in neighbourhoods}, -1
        while count != (count := sum(int(relation.allowed.sum()) for relation in relations.values())):
            for pattern, relation in relations.items():
                for neighbours in neighbourhoods[pattern] if relation.listed else ():
                    relation.allowed |= self.fitting(relations, relation, neighbours)
        return relations

    def fitting(
        self, relations: Mapping[CellPattern, Relation], relation: Relation, neighbours: Sequence[CellPattern | None]
    ) -> np.ndarray:
        """Which entries of a relation are possible, where the cells that are read have the patterns `neighbours`."""
        possible, numbers = relation.written >= 0, {self.key(self.rule.reads[n]): n for n in relation.sizes}
        for (number, address), pattern in zip(self.cell_reads, neighbours, strict=True):
            if pattern is None:
                continue
            keys = [self.key(read, (address.rows, address.columns)) for read in self.rule.reads]
            shared = [read for read in relations[pattern].sizes if keys[read] in numbers]
            columns = [relation.values[numbers[keys[read]]] for read in shared]
            possible &= relations[pattern].table(shared)[(*columns, relation.values[number])]
        return possible

    def present(self, pattern: CellPattern) -> tuple[bool, ...]:
        """Which operands hold something."""
        return tuple(
            present for present, address in zip(pattern, self.rule.reads, strict=False) if address.operand != OUTPUT
        )

    def situation(
        self, cell: WrittenCell, variables: Mapping[ReadKey, Hashable], cells: Mapping[Offset, Hashable]
    ) -> Situation:
        """What must hold of the `variables` that are shown at a cell, by key, and of the `cells` among them."""
        patterns = {offset: self.pattern_at(cell, offset) for offset in cells}
        factors = {o: self.factor(o, pattern, cells[o], variables) for o, pattern in patterns.items() if pattern}
        keys = [key for factor in factors.values() for _, key in factor.reads if isinstance(key, tuple)]
        hidden = {(key[1], key[2]) for key in keys if key[0] == OUTPUT}
        shown = {*variables.values()}
        alone = tuple(
            (factor._replace(reads=tuple(read for read in factor.reads if read[1] in shown)),)
            for factor in factors.values()
        )
        return (*alone, *(self.group(cell, offset, variables, factors) for offset in sorted(hidden)))

    def factor(
        self, offset: Offset, pattern: CellPattern, variable: Hashable, variables: Mapping[ReadKey, Hashable]
    ) -> Factor:
        keys = ((number, self.key(address, offset)) for number, address in enumerate(self.rule.reads))
        return Factor(pattern, tuple((n, variables.get(key, key)) for n, key in keys if pattern[n]), variable)

    def group(
        self, cell: WrittenCell, offset: Offset, variables: Mapping[ReadKey, Hashable], factors: Mapping[Offset, Factor]
    ) -> Group:
        """The factors of a hidden cell and of the shown ones that read it, without what only one of them reads."""
        pattern, key = self.pattern_at(cell, offset), (OUTPUT, *offset)
        assert pattern is not None
        group = [self.factor(offset, pattern, key, variables)]
        group += [factor for factor in factors.values() if any(variable == key for _, variable in factor.reads)]
        counts = Counter(v for factor in group for v in {*(variable for _, variable in factor.reads), factor.cell})
        shared = [v for v, count in counts.items() if count > 1 or isinstance(v, int)]
        names = {v: BESIDE if v == key else v if isinstance(v, int) else f"hidden {n}" for n, v in enumerate(shared)}
        return tuple(
            Factor(pattern, tuple((n, names[v]) for n, v in reads if v in shared), names.get(variable, variable))
            for pattern, reads, variable in group
        )

    def possible(self, situation: Situation, values: Mapping[Hashable, np.ndarray]) -> np.ndarray:
        """Which contexts are possible in a situation: booleans (contexts,)."""
        mask = np.ones(len(next(iter(values.values()))), bool)
        for group in situation:
            indices = np.flatnonzero(mask)
            compatible: np.ndarray | None = None
            for variables, table in zip(*self.joined(group), strict=True):
                index = tuple(values[variable][indices] for variable in variables)
                part = table[index] if index else np.broadcast_to(table, (len(indices), *table.shape))
                compatible = part if compatible is None else compatible & part
            if compatible is not None:
                mask[indices] = compatible if compatible.ndim == 1 else compatible.any(1)
        return mask

    def tables_of(self, group: Group) -> Tables:
        """Tables of what can stand together, each over some shown variables and, of a hidden cell, over that one last.

        Factors with a hidden variable in common are joined into one table, in which it can be anything.
        """
        variables = [(*(variable for _, variable in factor.reads), factor.cell) for factor in group]
        return join(variables, [self.relations[f.pattern].table([n for n, _ in f.reads]) for f in group])


def join(variables: Sequence[tuple[Hashable, ...]], tables: Sequence[np.ndarray]) -> Tables:
    """Tables over shown variables, which are numbers, with what is hidden summed out, and BESIDE as the last."""
    groups: list[list[int]] = []
    for number, members in enumerate(variables):
        hidden = {variable for variable in members if not isinstance(variable, int) and variable != BESIDE}
        linked = [group for group in groups if any(hidden & {*variables[other]} for other in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([number, *(other for group in linked for other in group)])
    names, results = list[list[Hashable]](), list[np.ndarray]()
    for group in groups:
        members = tuple(dict.fromkeys(variable for number in group for variable in variables[number]))
        shown = [variable for variable in members if isinstance(variable, int)]
        beside = [BESIDE] * (BESIDE in members)
        sizes = {v: size for n in group for v, size in zip(variables[n], tables[n].shape, strict=True)}
        if prod(sizes[variable] for variable in (*shown, *beside)) > JOINED or all(tables[n].all() for n in group):
            continue  # all is possible
        letters = {variable: number for number, variable in enumerate(members)}
        operands: list[Any] = []
        for number in group:
            operands += [tables[number].astype(np.float32), [letters[variable] for variable in variables[number]]]
        joined = np.einsum(*operands, [letters[variable] for variable in (*shown, *beside)], optimize=True)
        names.append([*shown])
        results.append(joined > 0)
    return names, results
