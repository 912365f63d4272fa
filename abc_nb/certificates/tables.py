"""Shapes and contexts of outputs that are tables, of models with one decoder layer, lines and no positions.

The token that such a model writes in row r and column c is a function of the token before it and of the tokens at the
open keys, which lie on lines: each stands at a fixed distance from the cell in rows and columns, or at a fixed place
of an operand from the row or the column, or is a symbol. Which keys are open depends on nothing but the distances of
the cell from the four edges of the table, up to the largest offset K of a line. Where a line follows the first factor
from row to row, or the second one from column to column, it also depends on how far the cell stands past the end of
that factor. So sizes up to 3 (K + 2) show every shape of a step of every size: also those far past the end of a
factor that has a middle. The right cell is decided by a few tokens, which the task names (`needed`). Those that no
line shows are tried as well, and then no answer would be right for all of them. Atoms are named as in
`problems.tables`.
"""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import product
from math import prod

import numpy as np

from abc_nb.bias.base import CLOSED, ENCODER_DECODER, Attention, Bias
from abc_nb.bias.lines import OUTPUT, Lines, on_lines
from abc_nb.certificates.contexts import Atom, Block, Context, Contexts, Node, Shape, Site, Token, Wrong
from abc_nb.certificates.counterexamples import Candidate, Counterexample, shortest_first, wrong_among
from abc_nb.certificates.reach import everywhere, furthest
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import EOS, SOS
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tables import BEFORE, Tables, Where
from abc_nb.problems.tasks import Width, pair

CHUNK = 2**16  # contexts computed at once
DRAWN = 5_000  # random problems of a width, in search of one that is wrong
BRED = 2_048  # problems of one generation, in search of one that holds a context
GENERATIONS = 12
EDGE = 2  # distances from an edge that count as different, beyond the largest offset
Followed = tuple[str, str, int]  # direction, span and offset of a line


class Steps:
    """The trees of all steps of one size."""

    def __init__(self, bias: Bias, sampler: Sampler, width: Width) -> None:
        assert isinstance(sampler.task, Tables)
        self.task, self.layout = sampler.task, sampler.task.layout(width, sampler.arrangement)
        assert self.layout.row is not None and isinstance(bias, Lines)
        self.columns, self.rows = self.layout.row, (self.layout.target_length - 1) // self.layout.row
        self.opened = {}
        for name in ENCODER_DECODER:
            if bias.open_keys(self.layout, name, 0) is None:
                raise everywhere("lines, where a head is open to every key")
            chosen = bias.of(name, 0)
            distinct = dict.fromkeys((line.direction, line.span, line.offset) for line in chosen)
            self.opened[name] = [*distinct], on_lines(chosen, self.layout, name, bias.heads)

    def where(self, step: int) -> Where:
        return Where(step // self.columns, step % self.columns, self.rows, self.columns)

    def root(self, step: int) -> Node:
        names = {self.digit(atom, step): atom for atom in self.needed(step) if atom[0] != "cell"}
        return Node(1, Token(self.before(step), 0), self.keys("self", step, {}), self.keys("cross", step, names))

    def before(self, step: int) -> Atom:
        return BEFORE if step else ("token", self.task.token(SOS), 0)

    def needed(self, step: int) -> list[Atom]:
        """What decides the cell there; nothing decides the end."""
        where = self.where(step)
        return [] if where.end else self.task.needed(where)

    def digit(self, atom: Atom, step: int) -> int:
        """Where the token of an operand stands."""
        kind, number, back = atom
        return self.layout.operands[number - 1].columns[self.where(step).followed(kind) - back]

    def keys(self, name: Attention, step: int, names: dict[int, Atom]) -> tuple[tuple[bytes, Token], ...]:
        """The open keys of a step with the bias of every head, named by `names` or the first line that opens each.

        A digit that decides the cell has that name alone: on a diagonal its row's digit is one of a column, too.
        """
        lines, opened = self.opened[name]
        values, names = dict[int, np.ndarray](), dict(names)
        for slot, line in enumerate(lines):
            key, value = int(opened.index[step, slot]), opened.value[:, step, slot].numpy()
            if (value > CLOSED).any():
                names.setdefault(key, self.on(line, name, key, step))
                values[key] = np.maximum(values.get(key, CLOSED), value)
        named = sorted((names[key], value.tobytes()) for key, value in values.items())
        return tuple((value, Token(atom, 0)) for atom, value in named)

    def on(self, line: Followed, name: Attention, key: int, step: int) -> Atom:
        """What stands at a key that a line opens."""
        direction, span, offset = line
        if name == "self":
            assert key in (0, step) or span == OUTPUT
            return self.before(key) if key in (0, step) else ("cell", -int(direction == "above"), offset - 1)
        symbol = dict(self.layout.symbols).get(key)
        if symbol is not None:
            return "token", self.task.token(symbol), 0
        number = int(span.split()[-1])
        by_cell = self.layout.operands[number - 1].rows
        return "by cell" if by_cell else "by row" if direction == "by row" else "by column", number, offset


class TableContexts(Contexts):
    """The contexts of a table's cells; zeros in front of a number are always a part of the problems."""

    task: Tables

    def __init__(self, config: ModelConfig, sampler: Sampler) -> None:
        assert isinstance(sampler.task, Tables)
        self.sampler, self.task = sampler, sampler.task
        if config.decoder_layers != 1 or type(config.position) is not NoPosition or not isinstance(config.bias, Lines):
            raise InputError(
                "no certificate of a table for a model with positions, without lines or of several layers: choose ABS "
                "or ABC with one decoder layer"
            )
        self.furthest, self.steps = furthest(config.bias), cache(partial(Steps, config.bias, sampler))
        self.facts = {"arrangement": sampler.arrangement, "narrowest": 1}
        self.statement = (
            f"Greedy decoding writes every token of the table right for every problem of {self.task.title} in base "
            f"{self.task.base}: {self.task.covered()}."
        )

    def sites(self) -> Iterator[Site]:
        most = 3 * (self.furthest + EDGE)
        for width in product(range(1, most + 1), range(1, most + 1)):
            for step in range(self.steps(width).layout.target_length):
                yield width, step

    def shape(self, site: Site) -> Shape:
        (width, step), task = site, self.task
        steps = self.steps(width)
        where, root, needed = steps.where(step), steps.root(step), steps.needed(step)
        names = tuple(sorted(root.atoms | {*needed}))
        label = task.token(EOS) if where.end else None
        counts = tuple(task.cells_at(where, atom) for atom in names if atom[0] == "cell")
        return Shape(root, names, label, case=(where.row == 0, where.column == 0, tuple(needed), counts))

    def where(self, shape: Shape) -> Where:
        """Where a step of this shape stands in a table."""
        width, step = self.shapes[shape][0]
        return self.steps(width).where(step)

    def choices(self, shape: Shape) -> list[np.ndarray]:
        """What can stand at each atom, cells without the offset of their tokens."""
        cells, digits = partial(self.task.cells_at, self.where(shape)), self.task.inputs
        return [np.arange(cells(atom)) if atom[0] == "cell" else digits for atom in shape.atoms]

    def count(self, shape: Shape) -> int:
        """All tokens, also those that cannot stand together."""
        return prod(map(len, self.choices(shape)))

    def blocks(self, shape: Shape) -> Iterator[Block]:
        where, first, choices = self.where(shape), self.task.first_cell, self.choices(shape)
        total, sizes = self.count(shape), [*map(len, choices)]
        for start in range(0, total, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, total))
            rows = np.unravel_index(numbers, sizes, order="F")
            values = {atom: own[row] for atom, own, row in zip(shape.atoms, choices, rows, strict=True)}
            tokens = np.stack([own + first * (atom[0] == "cell") for atom, own in values.items()], 1)
            if shape.label is None:
                right = first + self.task.right(where, values)
            else:
                right = np.full(len(numbers), shape.label)
            yield Block(tokens, right).part(self.task.possible(where, values))

    def tokens(self, batch: Batch, site: Site, atom: Atom) -> np.ndarray:
        (width, step), (kind, rows, columns) = site, atom
        if kind == "cell":
            return batch.target[:, 1 + step + rows * self.steps(width).columns + columns].numpy()
        return batch.source[:, self.steps(width).digit(atom, step)].numpy()

    def problem(self, shape: Shape, context: Context, site: Site) -> list[Digits] | None:
        """Found by breeding: random problems that have the context's digits, until one has its cells, too."""
        (width, step), rng = site, np.random.default_rng(0)
        where, given, cells = self.steps(width).where(step), list[tuple[int, int, int]](), list[tuple[int, int]]()
        for (kind, x, y), token in zip(shape.atoms, context[0].tolist(), strict=True):
            if kind == "cell":
                cells.append((step + x * where.columns + y, token))
            else:
                given.append((x - 1, where.followed(kind) - y, token))
        operands = self.sampler.draw(np.empty(0, np.int64), BRED, width, rng)
        for _ in range(GENERATIONS):
            for operand, place, token in given:
                operands[operand][:, place] = token
            answer = self.task.answer(operands)
            held = np.array([answer[:, at] == token for at, token in cells]).reshape(-1, BRED).sum(0)
            if held.max() == len(cells):
                return [digits[held.argmax()][None] for digits in operands]
            parents = rng.choice(np.flatnonzero(held == held.max()), BRED)
            fresh = self.sampler.draw(np.empty(0, np.int64), BRED, width, rng)
            operands = [
                np.where(rng.random(new.shape) < 0.4, new, old[parents])
                for new, old in zip(fresh, operands, strict=True)
            ]
        return None

    def counterexamples(self, model: Transformer, wrong: Wrong) -> list[Counterexample]:
        """Of random problems of training widths that a teacher-forced pass gets wrong."""
        found, rng = list[Candidate](), np.random.default_rng(0)
        for width in sorted(self.sampler.widths, key=str) if wrong else []:
            operands = self.sampler.draw(np.empty(0, np.int64), DRAWN, width, rng)
            found += wrong_among(model, self.sampler, operands, width, zeros=True)
        return shortest_first(model, self.sampler, found)

    def in_training(self, wanted: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """The largest sizes first: more digits, more ways to a cell."""
        most = np.max([pair(width) for width in self.sampler.widths], axis=0)
        small = {shape: [site for site in self.shapes[shape] if (np.array(site[0]) <= most).all()] for shape in wanted}
        return {shape: sorted(own, key=lambda site: (-prod(pair(site[0])), site[0])) for shape, own in small.items()}
