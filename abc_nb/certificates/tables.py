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

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from abc_nb.bias.base import CLOSED, ENCODER_DECODER, Attention, OpenKeys
from abc_nb.bias.lines import OUTPUT, Lines, on_lines
from abc_nb.certificates.contexts import Block, Candidate, Context, Contexts, Site
from abc_nb.certificates.shapes import Atom, Node, Shape, Token
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import EOS, SOS, Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tables import BEFORE, Tables, Where
from abc_nb.problems.tasks import Width
from abc_nb.training.evaluation import exact_match

CHUNK = 2**16  # contexts computed at once
DRAWN = 5_000  # random problems of a width, in search of one that is wrong
BRED = 2_048  # problems of one generation, in search of one that holds a context
GENERATIONS = 12
EDGE = 2  # distances from an edge that count as different, beyond the largest offset
Followed = tuple[str, str, int]  # direction, span and offset of a line


def furthest(model: Transformer) -> int:
    """The largest offset of the model's lines; InputError for a model that has no such certificate."""
    config = model.config
    if config.decoder_layers != 1 or config.encoder_layers:
        raise InputError("no certificate of a table for a model of several layers: choose one with one decoder layer")
    if type(config.position) is not NoPosition or not isinstance(config.bias, Lines):
        raise InputError("no certificate of a table for a model with positions, or without lines: choose ABS or ABC")
    return max((abs(line.offset) for line in config.bias.lines), default=0)


@dataclass(frozen=True)
class Keys:
    """The keys of one attention in one size, and the lines that open them."""

    index: np.ndarray  # (query, slots)
    value: np.ndarray  # (query, slots, heads)
    line: np.ndarray  # (query, slots): the number of the line that opens the key of a slot
    lines: list[Followed]

    @classmethod
    def of(cls, name: Attention, bias: object, lines: Lines, layout: Layout) -> Keys:
        """Where lines meet, a key stands in one slot, which can be that of a line which has no key there."""
        if not isinstance(bias, OpenKeys):
            raise InputError("no certificate for a bias that leaves every key open to a head: choose ABS or ABC")
        chosen = lines.of(name, 0)
        index, value = bias.index.cpu().numpy(), bias.value.expand(lines.heads, -1, -1).permute(1, 2, 0).cpu().numpy()
        opening = (on_lines(chosen, layout, name, lines.heads).value > CLOSED).any(0).numpy()
        line = ((index[:, :, None] == index[:, None, :]) & opening[:, None, :]).argmax(2)
        followed = dict.fromkeys((line.direction, line.span, line.offset) for line in chosen)
        return cls(index, value, line, [*followed])


class Steps:
    """The trees of all steps of one size."""

    def __init__(self, model: Transformer, sampler: Sampler, width: Width) -> None:
        self.task = sampler.task
        self.layout: Layout = sampler.task.layout(width, sampler.arrangement)
        assert self.layout.row is not None and isinstance(model.config.bias, Lines)
        self.columns, self.rows = self.layout.row, (self.layout.target_length - 1) // self.layout.row
        self.opened = {
            name: Keys.of(name, model.added(self.layout, name, 0, False), model.config.bias, self.layout)
            for name in ENCODER_DECODER
        }

    def where(self, step: int) -> Where:
        return Where(step // self.columns, step % self.columns, self.rows, self.columns)

    def root(self, step: int) -> Node:
        return Node(1, Token(self.before(step), 0), self.keys("self", step), self.keys("cross", step))

    def before(self, step: int) -> Atom:
        return BEFORE if step else ("token", self.task.token(SOS), 0)

    def keys(self, name: Attention, step: int) -> tuple[tuple[bytes, Token], ...]:
        opened, found = self.opened[name], []
        for slot in np.flatnonzero((opened.value[step] > CLOSED).any(1)):
            line, key = opened.lines[opened.line[step, slot]], int(opened.index[step, slot])
            atom = self.cell(line, key, step) if name == "self" else self.given(line, key)
            found.append((opened.value[step, slot].tobytes(), Token(atom, 0)))
        return tuple(sorted(found, key=lambda pair: (pair[1].atom, pair[0])))

    def cell(self, line: Followed, key: int, step: int) -> Atom:
        """What stands at a key of the table that a line opens."""
        direction, span, offset = line
        if key in (0, step):
            return self.before(key)
        assert span == OUTPUT
        return "cell", -int(direction == "above"), offset - 1

    def given(self, line: Followed, key: int) -> Atom:
        """What stands at a key of the problem that a line opens."""
        direction, span, offset = line
        symbol = dict(self.layout.symbols).get(key)
        if symbol is not None:
            return "token", self.task.token(symbol), 0
        number = int(span.split()[-1])
        by_cell = self.layout.operands[number - 1].rows
        return "by cell" if by_cell else "by row" if direction == "by row" else "by column", number, offset


class TableContexts(Contexts):
    """The contexts of a table's cells; zeros in front of a number are always a part of the problems."""

    task: Tables
    narrowest = 1

    def __init__(self, model: Transformer, sampler: Sampler) -> None:
        super().__init__(model, sampler)
        self.far = furthest(model)
        self.reach = {"furthest": self.far}
        self.known: dict[Width, Steps] = {}

    def steps(self, width: Width) -> Steps:
        if width not in self.known:
            self.known[width] = Steps(self.model, self.sampler, width)
        return self.known[width]

    @property
    def sizes(self) -> list[Width]:
        """Sizes that show every shape of a step."""
        return [*self.task.sizes(3 * (self.far + EDGE))]

    def check(self) -> None:
        """One small table is read for that."""
        self.steps(self.sizes[0])

    @cached_property
    def shapes(self) -> dict[Shape, list[Site]]:
        found: dict[Shape, list[Site]] = {}
        for width in self.sizes:
            for step in range(self.steps(width).layout.target_length):
                found.setdefault(self.shape(width, step), []).append((width, step))
        return found

    def shape(self, width: Width, step: int) -> Shape:
        steps, task = self.steps(width), self.task
        where, root = steps.where(step), steps.root(step)
        needed = [] if where.end else task.needed(where)
        names = tuple(sorted(root.atoms | {*needed}))
        label = task.token(EOS) if where.end else None
        counts = tuple(task.cells_at(where, atom) for atom in names if atom[0] == "cell")
        return Shape(root, names, (where.row == 0, where.column == 0, tuple(needed), counts), label)

    def where(self, shape: Shape) -> Where:
        """Where a step of this shape stands in a table."""
        width, step = self.shapes[shape][0]
        return self.steps(width).where(step)

    def choices(self, shape: Shape) -> list[np.ndarray]:
        """What can stand at each atom, cells without the offset of their tokens."""
        where = self.where(shape)

        def values(atom: Atom) -> np.ndarray:
            return np.arange(self.task.cells_at(where, atom)) if atom[0] == "cell" else self.task.inputs

        return [values(atom) for atom in shape.atoms]

    def count(self, shape: Shape) -> int:
        """All tokens, also those that cannot stand together."""
        return int(np.prod([len(values) for values in self.choices(shape)], dtype=object))

    def blocks(self, shape: Shape) -> Iterator[Block]:
        choices, total = self.choices(shape), self.count(shape)
        for start in range(0, total, CHUNK):
            code = np.arange(start, min(start + CHUNK, total))
            values: dict[Atom, np.ndarray] = {}
            for atom, each in zip(shape.atoms, choices, strict=True):
                values[atom], code = each[code % len(each)], code // len(each)
            yield self.block(shape, values, len(code))

    def block(self, shape: Shape, values: Mapping[Atom, np.ndarray], size: int) -> Block:
        """Those of some contexts that can occur, as tokens."""
        where, first = self.where(shape), self.task.first_cell
        right = first + self.task.right(where, values) if shape.label is None else np.full(size, shape.label)
        if not values:
            return Block(np.empty((size, 0), np.int64), right)
        tokens = np.stack([each + first * (atom[0] == "cell") for atom, each in values.items()], axis=1)
        fine = self.task.possible(where, values)
        return Block(tokens[fine], right[fine])

    def seen(self, batch: Batch, step: int) -> tuple[Shape, Block]:
        first, *second = (operand.places for operand in batch.layout.operands)
        width: Width = (first, second[0]) if second else first
        shape, where = self.shape(width, step), self.steps(width).where(step)

        def tokens(kind: str, x: int, y: int) -> np.ndarray:
            if kind == "cell":
                return batch.target[:, 1 + step + x * where.columns + y].numpy()
            return batch.source[:, batch.layout.operands[x - 1].columns[where.followed(kind) - y]].numpy()

        values = np.empty((len(batch.source), len(shape.atoms)), np.int64)
        for number, atom in enumerate(shape.atoms):
            values[:, number] = tokens(*atom)
        return shape, Block(values, batch.target[:, step + 1].numpy())

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

    def candidates(self, wrong: Iterable[Any]) -> list[Candidate]:
        """Random problems of training widths that a teacher-forced pass gets wrong."""
        found, rng = list[Candidate](), np.random.default_rng(0)
        for width in sorted(self.sampler.widths, key=str) if [*wrong] else []:
            operands = self.sampler.draw(np.empty(0, np.int64), DRAWN, width, rng)
            right = exact_match(self.model, self.sampler.batch(operands, width))
            for row in torch.nonzero(~right)[:, 0].tolist():
                found.append(Candidate(width, [digits[row : row + 1] for digits in operands], True))
        return found

    def in_training(self, wanted: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """The largest sizes first: more digits, more ways to a cell."""
        most = np.max([np.atleast_1d(width) for width in self.sampler.widths], axis=0)

        def fits(width: Width) -> bool:
            return bool((np.atleast_1d(width) <= most).all())

        def size(site: Site) -> tuple[int, Width]:
            return -int(np.prod(site[0])), site[0]

        return {shape: sorted(filter(lambda site: fits(site[0]), self.shapes[shape]), key=size) for shape in wanted}

    def named(self, shape: Shape, values: np.ndarray) -> dict[str, Any]:
        names = [f"{kind} {x} {y}" for kind, x, y in shape.atoms]
        return dict(zip(names, self.task.text(values.tolist()), strict=True))

    def statement(self) -> str:
        return (
            f"Greedy decoding writes every token of the table right for every problem of {self.task.title} in base "
            f"{self.task.base}: {self.task.covered(self.narrowest, self.zeros)}."
        )
