"""Shapes and contexts of outputs that are tables, of models with one decoder layer, lines and no positions.

The token that such a model writes in row r and column c is a function of the token before it and of the tokens at the
open keys, which lie on lines: each stands at a fixed distance from the cell in rows and columns, or at a fixed place
of an operand from the row or the column, or is a symbol. Which keys are open depends on nothing but the distances of
the cell from the four edges of the table, up to the largest offset K of a line. Where a line follows the first factor
from row to row, or the second one from column to column, it also depends on how far the cell stands past the end of
that factor. So sizes up to 3 (K + 2) show every shape of a step of every size: also those far past the end of a
factor that has a middle. The right cell is decided by what the rule reads. If it reads something that no line shows,
all tokens are tried there, too, and no answer is right for all of them. Which can stand together follows from the
rule: see `table_relations`. Leaves are named by where they stand, as seen from the token in row r and column c:

    ("by column", o, k)   the token of operand o, counted from 1, at place c - k
    ("by row", o, k)      the token of operand o at place r - k
    ("by cell", o, k)     the token k before the one that stands in operand o where the cell stands in the table
    ("cell", i, j)        the cell in row r + i and column c + j; (0, -1) is the token before, whatever that is
"""

from collections.abc import Iterator
from functools import cache, lru_cache, partial
from itertools import product
from math import prod

import numpy as np

from abc_nb.bias.base import ENCODER_DECODER, Attention, Bias
from abc_nb.bias.lines import Lines, anchors, open_keys_of_lines
from abc_nb.certificates.contexts import Block, Case, Contexts, Leaf, Node, Shape, Site, Token, Wrong
from abc_nb.certificates.counterexamples import Candidate, Counterexample, shortest_first, wrong_candidates
from abc_nb.certificates.reach import by_query, furthest, unbounded_error
from abc_nb.certificates.table_relations import Cells, Offset, ReadKey, Situation
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import EOS, SOS, Layout
from abc_nb.problems.rules import EDGE, OUTPUT, Address, WrittenCell
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Width

BEFORE: Leaf = ("cell", 0, -1)
ALONG = {"place": "by column", "row": "by row", "cell": "by cell"}
CHUNK = 2**16  # contexts computed at once
CHUNKS_KEPT = 128  # chunks of which it is kept what can stand together
DRAWN = 5_000  # random problems of a width, in search of one that is wrong
EDGE_DISTANCES = 2  # distances from an edge that count as different, beyond the largest offset
NO_POOL = np.empty(0, np.int64)
Followed = tuple[str, str, int]  # direction, anchor and offset of a line


class Steps:
    """The trees of all steps of one size."""

    def __init__(self, bias: Bias, sampler: Sampler, width: Width) -> None:
        self.task, self.layout = sampler.task, sampler.task.layout(width, sampler.arrangement)
        assert self.layout.row_length is not None and isinstance(bias, Lines)
        self.columns, self.rows = self.layout.row_length, (self.layout.target_length - 1) // self.layout.row_length
        self.opened, self.symbols = {}, dict(self.layout.symbols)
        self.along = {name: {a.name: a.along for a in anchors(self.layout, name)} for name in ENCODER_DECODER}
        for name in ENCODER_DECODER:
            if bias.open_keys(self.layout, name, 0) is None:
                raise unbounded_error("lines, where a head is open to every key")
            lines = bias.of(name, 0)
            followed = dict.fromkeys((line.direction, line.span, line.offset) for line in lines)
            self.opened[name] = (
                [*followed],
                by_query(open_keys_of_lines(lines, self.layout, name, bias.heads), bias.heads),
            )

    def cell(self, step: int) -> WrittenCell:
        return WrittenCell(step // self.columns, step % self.columns, self.rows, self.columns)

    def root(self, step: int) -> Node:
        leaves = [leaf for leaf in self.read(step) if leaf]
        cells = {step + 1 + leaf[1] * self.columns + leaf[2]: leaf for leaf in leaves if leaf[0] == "cell"}
        digits = {self.digit(leaf, step): leaf for leaf in leaves if leaf[0] != "cell"}
        before = Token(self.token_before(step), 0)
        return Node(1, before, self.keys("self", step, cells), self.keys("cross", step, digits))

    def token_before(self, step: int) -> Leaf:
        return BEFORE if step else ("token", self.task.token(SOS), 0)

    def read(self, step: int) -> list[Leaf | None]:
        """What the rule reads at a step, in its order, and None where nothing stands; nothing decides the end."""
        cell, rule = self.cell(step), self.task.rule
        return [self.leaf(a) if not cell.end and cell.reads(rule, a) else None for a in rule.reads]

    def leaf(self, address: Address) -> Leaf:
        """The leaf at an address: in narrow tables a cell of the row above can be the token before."""
        if address.operand == OUTPUT:
            is_before = address.rows * self.columns + address.columns == -1
            return BEFORE if is_before else ("cell", address.rows, address.columns)
        along = self.task.rule.inputs[address.operand].along
        return ALONG[along], address.operand + 1, -(address.rows if along == "row" else address.columns)

    def digit(self, leaf: Leaf, step: int) -> int:
        """Where the token of an operand stands."""
        (kind, number, back), cell = leaf, self.cell(step)
        place = {"by column": cell.column, "by row": cell.row, "by cell": step}[kind]
        return self.layout.operands[number - 1].columns[place - back]

    def keys(self, name: Attention, step: int, names: dict[int, Leaf]) -> tuple[tuple[bytes, Token], ...]:
        """The open keys of a step with the bias of every head, named by `names` or the first line that opens each.

        What decides the cell has its name in `names` alone: on a diagonal its row's digit is one of a column, too, and
        in a narrow table a cell of the row above is the second token before.
        """
        lines, keys = self.opened[name]
        values, names = dict[int, np.ndarray](), dict(names)
        for slot, key, value in keys[step]:
            if key not in names:
                names[key] = self.leaf_on(lines[slot], name, key, step)
            values[key] = np.maximum(values[key], value) if key in values else value
        leaves = sorted((names[key], value.tobytes()) for key, value in values.items())
        return tuple((value, Token(leaf, 0)) for leaf, value in leaves)

    def leaf_on(self, line: Followed, name: Attention, key: int, step: int) -> Leaf:
        """What stands at a key that a line opens; InputError where its place follows from no distance from the cell."""
        direction, span, offset = line
        if name == "self" and key in (0, step):
            return self.token_before(key)
        if name == "cross" and key in self.symbols:
            return "token", self.task.token(self.symbols[key]), 0
        if direction not in self.along[name].get(span, ()):
            raise InputError(
                f"no certificate of a table for a line {direction!r} over {span!r}: it does not follow the cells, so "
                "that what a cell looks at grows apart with the size"
            )
        if name == "self":
            return "cell", -int(direction == "above"), offset - 1
        number = int(span.split()[-1])
        by_cell = self.layout.operands[number - 1].by_rows
        return "by cell" if by_cell else "by row" if direction == "by row" else "by column", number, offset


class TableContexts(Contexts):
    """The contexts of a table's cells; zeros in front of a number are always a part of the problems.

    No problem is looked for that holds a context: cells are not chosen but computed, and where there is none that would
    take minutes.
    """

    def __init__(self, config: ModelConfig, sampler: Sampler) -> None:
        self.sampler, self.task, self.rule = sampler, sampler.task, sampler.task.rule
        if config.decoder_layers != 1 or type(config.position) is not NoPosition or type(config.bias) is not Lines:
            raise InputError(
                "no certificate of a table for a model with positions, without lines or of several layers: choose ABS "
                "or ABC with one decoder layer"
            )
        self.config, self.furthest = config, furthest(config.bias)
        self.steps = cache(partial(Steps, config.bias, sampler))
        self.cells = Cells(self.rule)
        self.situations = cache(self.situations_of)
        self.possible = lru_cache(maxsize=CHUNKS_KEPT)(self.possible_from)
        self.facts = {"arrangement": sampler.arrangement, "narrowest": 1}
        zeros = ", with any number of zeros in front of a number" * (self.rule.notation == "number")
        self.statement = (
            f"Greedy decoding writes every token of the table right for every problem of {self.task.title} in base "
            f"{self.task.base}: {self.rule.lengths}{zeros}."
        )

    def sites(self) -> Iterator[Site]:
        largest = 3 * (max(self.furthest, self.cells.reach) + EDGE_DISTANCES)
        for width in product(range(1, largest + 1), range(1, largest + 1)):
            for step in range(self.steps(width).layout.target_length):
                yield width, step

    def width(self, layout: Layout) -> Width:
        """Places and rows."""
        assert layout.row_length is not None
        rows = (layout.target_length - 1) // layout.row_length
        return layout.row_length - self.rule.wider(rows), rows

    def shape(self, site: Site) -> Shape:
        step, steps = site[1], self.steps(site[0])
        cell, root, read = steps.cell(step), steps.root(step), steps.read(step)
        leaves = tuple(sorted(root.leaves | {leaf for leaf in read if leaf}))
        label = self.task.token(EOS) if cell.end else None
        present = tuple(self.present(cell, leaf) for leaf in leaves)
        return Shape(root, leaves, label, case=Case(cell.row == 0, cell.column == 0, tuple(read), present))

    def offset(self, cell: WrittenCell, leaf: Leaf) -> Offset:
        """How far away a leaf's cell stands; before one in the first column stands the last cell of the row above."""
        index = cell.row * cell.columns + cell.column + leaf[1] * cell.columns + leaf[2]
        return index // cell.columns - cell.row, index % cell.columns - cell.column

    def present(self, cell: WrittenCell, leaf: Leaf) -> tuple[bool, ...]:
        """Which operands hold something at a leaf's cell; of an operand written by cell, whether its mark stands."""
        if leaf[0] == "by cell":
            return ((cell.column - leaf[2]) % cell.columns == cell.columns - 1,)
        pattern = self.cells.pattern_at(cell, self.offset(cell, leaf)) if leaf[0] == "cell" else ()
        assert pattern is not None
        return self.cells.present(pattern)

    def situations_of(self, shape: Shape) -> list[Situation]:
        """What must hold of the leaves, by their numbers, in any one of the sites of a shape."""
        situations: dict[Situation, None] = {}
        for width, step in self.shapes[shape]:
            cell, variables, cells = self.steps(width).cell(step), dict[ReadKey, int](), dict[Offset, int]()
            for number, (kind, first, second) in enumerate(shape.leaves):
                if kind == "cell":
                    cells[self.offset(cell, (kind, first, second))] = number
                elif kind == ALONG[self.rule.inputs[first - 1].along]:
                    variables[(first - 1, 0, -second) if kind == "by cell" else (first - 1, -second)] = number
            variables |= {(OUTPUT, *offset): number for offset, number in cells.items()}
            situations[self.cells.situation(cell, variables, cells)] = None
        return [*situations]

    def choices(self, shape: Shape) -> list[np.ndarray]:
        """What can stand at each leaf, cells without the offset of their tokens."""
        assert shape.case is not None
        return [self.alphabet(leaf, present) for leaf, present in zip(shape.leaves, shape.case.present, strict=True)]

    def alphabet(self, leaf: Leaf, present: tuple[bool, ...]) -> np.ndarray:
        if leaf[0] == "cell":
            return self.cells.written(present)
        operand = self.rule.inputs[leaf[1] - 1]
        marked = leaf[0] == "by cell" and operand.mark is not None and present[0]
        return np.array([operand.mark]) if marked else operand.alphabet

    def count(self, shape: Shape) -> int:
        """All tokens, also those that cannot stand together."""
        return prod(map(len, self.choices(shape)))

    def blocks(self, shape: Shape) -> Iterator[Block]:
        offsets = np.array([self.task.first_cell * (leaf[0] == "cell") for leaf in shape.leaves], np.int64)
        for start in range(0, self.count(shape), CHUNK):
            values = self.values(shape, self.possible(shape, start))
            block = Block(values + offsets, self.right(shape, values))
            yield block.part(block.right >= 0)

    def values(self, shape: Shape, numbers: np.ndarray) -> np.ndarray:
        """The values of a shape's leaves with these numbers, if all were numbered in turn: (contexts, leaves)."""
        choices = self.choices(shape)
        values = np.empty((len(numbers), len(choices)), np.int64)
        for column, alphabet in enumerate(choices):
            numbers, index = np.divmod(numbers, len(alphabet))
            values[:, column] = alphabet[index]
        return values

    def possible_from(self, shape: Shape, start: int) -> np.ndarray:
        """The numbers of values that can stand together, of those of a chunk from `start` on."""
        numbers = np.arange(start, min(start + CHUNK, self.count(shape)))
        values, possible = self.values(shape, numbers), np.full(len(numbers), not shape.leaves)
        for situation in self.situations(shape) if shape.leaves else []:
            indices = np.flatnonzero(~possible)
            possible[indices] = self.cells.possible(situation, dict(enumerate(values[indices].T)))
        return numbers[possible]

    def right(self, shape: Shape, values: np.ndarray) -> np.ndarray:
        """The token that the rule writes for values of a shape's leaves, (contexts, leaves); EDGE where none can be."""
        if shape.label is not None:
            return np.full(len(values), shape.label)
        assert shape.case is not None
        edge = np.full(len(values), EDGE)
        read = (edge if leaf is None else values[:, shape.leaves.index(leaf)] for leaf in shape.case.reads)
        written = self.rule.step(self.rule.start, *read)[0]
        written = np.broadcast_to(written, len(values)).astype(np.int64)
        return np.where(written < 0, EDGE, self.task.first_cell + written)

    def tokens(self, batch: Batch, site: Site, leaf: Leaf) -> np.ndarray:
        (width, step), (kind, rows, columns) = site, leaf
        if kind == "cell":
            return batch.target[:, 1 + step + rows * self.steps(width).columns + columns].numpy()
        return batch.source[:, self.steps(width).digit(leaf, step)].numpy()

    def counterexamples(self, model: Transformer, wrong: Wrong) -> list[Counterexample]:
        """The shortest of random problems of training widths that a teacher-forced pass gets wrong."""
        candidates, rng = list[Candidate](), np.random.default_rng(0)
        for width in sorted(self.sampler.widths, key=str) if wrong else []:
            operands = self.sampler.draw(NO_POOL, DRAWN, width, rng)
            candidates += wrong_candidates(model, self.sampler, operands, width, zeros=True)
        return shortest_first(model, self.sampler, candidates)
