"""Certify a model that writes a table: try every context of a cell.

The model has one decoder layer and no positions, and its bias is made of lines. So the token that it writes in row
r and column c is a function of the token before it and of the tokens at the open keys, which lie on lines: each
stands at a fixed distance from the cell in rows and columns, or at a fixed place of an operand from the row or the
column, or is a symbol. Which keys are open depends on nothing but the distances of the cell from the four edges of
the table, up to the largest offset K of a line. Where a line follows the first factor from row to row, or the second
one from column to column, it also depends on how far the cell stands past the end of that factor. So sizes up to
3 (K + 2) show every shape of a step of every size: also those far past the end of a factor that has a middle. The
right cell is decided by a few tokens (`Tables.needed`). Those that no line shows are tried as well, and then no answer
would be right for all of them. If every context of every shape gives the right token, then greedy decoding writes
the right table for operands of any lengths, by induction over its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from abc_nb.bias.base import CLOSED, Attention, OpenKeys
from abc_nb.bias.lines import OUTPUT, Lines, on_lines
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.certificates.shapes import Atom, Node, Place, Shape, Token
from abc_nb.certificates.states import Columns, States, Table
from abc_nb.certificates.tried import Tried, margins
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import Automaton
from abc_nb.problems.layouts import EOS, SOS, Layout
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tables import BEFORE, PARITY, Tables, Where
from abc_nb.problems.tasks import Width
from abc_nb.training.evaluation import correct_digits, greedy, parts

RADIX = Automaton(1, *(np.empty(0, np.int64),) * 6)  # a context's tokens are numbers of their own: it has no states
TRIED = 5000  # random problems of a width, in search of one that is wrong
CHUNK = 2**16  # contexts computed at once
MOST = 10**9  # contexts of one shape
Followed = tuple[str, str, int]  # direction, span and offset of a line
EDGE = 2  # distances from an edge that count as different, beyond the largest offset


@dataclass(frozen=True)
class TableShape(Shape):
    """The tree of one step: its layer over embedded tokens, and what decides which token is right."""

    where: Where = field(compare=False, kw_only=True)
    names: tuple[Atom, ...] = field(kw_only=True)
    case: tuple[object, ...] = field(kw_only=True)  # all that the right token depends on but the values of the atoms

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        return self.names


class TableStates(States):
    """Logits of contexts: without positions the embedded vocabulary is the table of all keys."""

    def part(self, root: Node | Token, places: tuple[Place, ...], columns: Columns) -> tuple[Table, torch.Tensor]:
        assert isinstance(root, Token)
        tokens = columns.code((root.atom,)) if root.atom[0] != "token" else np.full(len(columns.values), root.atom[1])
        return self.vocabulary, torch.from_numpy(tokens).to(self.device)

    @cached_property
    def vocabulary(self) -> Table:
        count = self.model.embedding.num_embeddings
        index = torch.zeros(1, dtype=torch.long, device=self.device)
        states = self.model.embed(torch.arange(count, device=self.device)[:, None], index)[:, 0]
        return Table(states, (), np.arange(count), None)


def furthest(model: Transformer) -> int:
    """The largest offset of the model's lines; InputError for a model that has no such certificate."""
    config = model.config
    if config.decoder_layers != 1 or config.encoder_layers:
        raise InputError("no certificate of a table for a model of several layers: choose one with one decoder layer")
    if type(config.position) is not NoPosition or not isinstance(config.bias, Lines):
        raise InputError("no certificate of a table for a model with positions, or without lines: choose ABS or ABC")
    return max((abs(line.offset) for line in config.bias.lines), default=0)


def table_task(sampler: Sampler) -> Tables:
    """The task of a sampler of tables."""
    assert isinstance(sampler.task, Tables)
    return sampler.task


def sizes(task: Tables, far: int) -> Iterator[Width]:
    """Sizes that show every shape of a step."""
    yield from task.sizes(3 * (far + EDGE))


class Steps:
    """The shapes of all steps of one size."""

    def __init__(self, model: Transformer, sampler: Sampler, width: Width) -> None:
        self.task = table_task(sampler)
        self.layout: Layout = sampler.task.layout(width, sampler.arrangement)
        assert self.layout.row is not None
        self.columns, self.rows = self.layout.row, (self.layout.target_length - 1) // self.layout.row
        self.bias = model.config.bias
        self.opened = {name: self.keys_of(name, model.added(self.layout, name, 0, False)) for name in ("self", "cross")}

    def keys_of(self, name: Attention, bias: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Followed]]:
        """The keys (query, slots), their bias (query, slots, heads), the lines, and which one opens the key of a slot.

        Where lines meet, a key stands in one slot, which can be that of a line which has no key there.
        """
        if not isinstance(bias, OpenKeys) or not isinstance(self.bias, Lines):
            raise InputError("no certificate for a bias that leaves every key open to a head: choose ABS or ABC")
        chosen, heads = self.bias.of(name, 0), self.bias.heads
        lines = dict.fromkeys((line.direction, line.span, line.offset) for line in chosen)
        index, value = bias.index.cpu().numpy(), bias.value.expand(heads, -1, -1).permute(1, 2, 0).cpu().numpy()
        opening = (on_lines(chosen, self.layout, name, heads).value > CLOSED).any(0).numpy()
        first = ((index[:, :, None] == index[:, None, :]) & opening[:, None, :]).argmax(2)
        return index, value, first, [*lines]

    def where(self, step: int) -> Where:
        return Where(step // self.columns, step % self.columns, self.rows, self.columns)

    def before(self, step: int) -> Atom:
        return BEFORE if step else ("token", self.task.token(SOS), 0)

    def atom(self, name: Attention, line: Followed, key: int, step: int) -> Atom:
        """What stands at a key that a line opens."""
        direction, span, offset = line
        if name == "self":
            if key == step or key == 0:
                return self.before(key)
            assert span == OUTPUT
            return "cell", -int(direction == "above"), offset - 1
        symbols = dict(self.layout.symbols)
        if key in symbols:
            return "token", self.task.token(symbols[key]), 0
        number = int(span.split()[-1])
        by_cell = self.layout.operands[number - 1].rows
        return "by cell" if by_cell else "by row" if direction == "by row" else "by column", number, offset

    def keys(self, name: Attention, step: int) -> tuple[tuple[bytes, Token], ...]:
        index, value, first, lines = self.opened[name]
        found = []
        for slot in np.flatnonzero((value[step] > CLOSED).any(1)):
            atom = self.atom(name, lines[first[step, slot]], int(index[step, slot]), step)
            found.append((value[step, slot].tobytes(), Token(atom, 0)))
        return tuple(sorted(found, key=lambda pair: (pair[1].atom, pair[0])))

    def shape(self, step: int) -> TableShape:
        where = self.where(step)
        root = Node(1, Token(self.before(step), 0), self.keys("self", step), self.keys("cross", step))
        needed = [] if where.end else self.task.needed(where)
        names = tuple(sorted({atom for atom in root.atoms if atom[0] != "token"} | {*needed}))
        if PARITY in self.task.hidden and PARITY not in names and any(atom[0] == "cell" for atom in names):
            names = (*names, PARITY)
        label = self.task.token(EOS) if where.end else None
        counts = tuple(self.task.cells_at(where, atom) for atom in names if atom[0] == "cell")
        case = where.row == 0, where.column == 0, tuple(needed), counts
        return TableShape(root, (), label, where=where, names=names, case=case)


def check(model: Transformer, sampler: Sampler) -> None:
    """InputError for a model that has no certificate of this kind; one small table is read for that."""
    Steps(model, sampler, next(sizes(table_task(sampler), furthest(model))))


def shapes(model: Transformer, sampler: Sampler) -> dict[TableShape, list[tuple[Width, int]]]:
    """Every shape of a step, with the (size, step) that have it, smallest first."""
    found: dict[TableShape, list[tuple[Width, int]]] = {}
    for width in sizes(table_task(sampler), furthest(model)):
        steps = Steps(model, sampler, width)
        for step in range(steps.layout.target_length):
            found.setdefault(steps.shape(step), []).append((width, step))
    return found


def choices(shape: TableShape, task: Tables) -> list[tuple[np.ndarray, int]]:
    """The values that can stand at each atom, and what makes tokens of them."""
    found = []
    for atom in shape.names:
        if atom == PARITY:
            found.append((np.arange(2), 0))
        elif atom[0] == "cell":
            found.append((np.arange(task.cells_at(shape.where, atom)), task.first_cell))
        else:
            found.append((task.inputs, 0))
    return found


def contexts(shape: TableShape, task: Tables) -> Iterator[Block]:
    """All contexts of a shape in blocks: tokens in the order of its atoms, and the token that is right."""
    known = choices(shape, task)
    total = int(np.prod([len(values) for values, _ in known], dtype=object)) if known else 1
    if total > MOST:
        raise InputError(f"no certificate: a cell has {total:,} contexts, and at most {MOST:,} of one shape are tried")
    for start in range(0, total, CHUNK):
        code = np.arange(start, min(start + CHUNK, total))
        values: dict[Atom, np.ndarray] = {}
        for atom, (each, _) in zip(shape.names, known, strict=True):
            values[atom], code = each[code % len(each)], code // len(each)
        yield block_of(shape, values, [first for _, first in known], task)


def block_of(shape: TableShape, values: Mapping[Atom, np.ndarray], firsts: list[int], task: Tables) -> Block:
    if shape.label is None:
        right = task.first_cell + task.right(shape.where, values)
    else:
        right = np.full(max((len(each) for each in values.values()), default=1), shape.label)
    table = [each + first for each, first in zip(values.values(), firsts, strict=True)]
    tokens = np.stack(table, axis=1) if table else np.empty((1, 0), np.int64)
    if values:
        fine = task.possible(shape.where, values)
        tokens, right = tokens[fine], right[fine]
    return Block(tokens, right)


def try_all(model: Transformer, sampler: Sampler) -> list[Tried]:
    """What every context of a model gave, by shape; InputError for a model that has no certificate of this kind."""
    task, states, found = table_task(sampler), TableStates(model, RADIX), []
    with tqdm(unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar:
        for shape, where in shapes(model, sampler).items():
            tried = Tried(shape, where)
            for block in contexts(shape, task):
                if len(block.right):
                    right = torch.from_numpy(block.right).to(states.device)
                    tried.add(block, margins(states.logits(shape, block), right).cpu().numpy())
                    bar.update(len(block.right))
            found += [tried] * (tried.contexts > 0)
    return found


def narrowest(tried: Tried, task: Tables) -> dict[str, Any]:
    """Where the smallest margin is, and the tokens there."""
    _, values, right = tried.narrow[0]
    assert isinstance(tried.shape, TableShape)
    tokens = {
        f"{kind} {x} {y}": task.vocabulary[token] if kind != "parity" else str(token)
        for (kind, x, y), token in zip(tried.shape.names, values.tolist(), strict=True)
    }
    width, step = tried.where[0]
    return {"width": width, "step": step, "right": task.vocabulary[right], "tokens": tokens}


def statement(task: Tables) -> str:
    """What is proven, in words, if no context is wrong."""
    return (
        f"Greedy decoding writes every token of the table right for every problem of {task.title} in base {task.base}: "
        f"{task.covered(narrowest=1, zeros=True)}."
    )


def counterexamples(model: Transformer, sampler: Sampler, most: int) -> list[Counterexample]:
    """Problems that the model gets wrong, the first that random ones of training widths show; no more than `most`."""
    task, found, rng = sampler.task, list[Counterexample](), np.random.default_rng(0)
    for width in sorted(sampler.widths, key=str):
        operands = task.draw(np.empty(0, np.int64), TRIED, width, rng)
        batch = sampler.batch(operands, width)
        right = torch.cat([correct_digits(model, part) for part in parts(batch)])
        wrong = (~right.all(1)).nonzero()[: most - len(found), 0].numpy()
        if not len(wrong):
            continue
        part = sampler.batch([digits[wrong] for digits in operands], width)
        written = greedy(model, part.source.to(model.head.weight.device), part.layout, task.token(SOS)).tolist()
        for row, tokens in enumerate(zip(written, part.target[:, 1:].tolist(), strict=True)):
            problem = task.typed(part.operands(torch.tensor([row]), task), zeros=True)
            answer, wanted = (task.write(each, part.layout) for each in tokens)
            first = int((~right[wrong[row]]).nonzero()[0, 0])
            found.append(Counterexample(problem, answer, wanted, first, True))
    return found
