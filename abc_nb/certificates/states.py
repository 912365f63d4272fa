"""Logits of contexts, computed with the model's own layers, each distinct state once.

A state of a lower layer depends on a part of the context only. Its table holds one row for each of
those parts; the layer above looks rows up. The numbers are those of a pass over a whole problem up to
the order in which sums are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, OpenKeys
from abc_nb.certificates.automaton import Automaton
from abc_nb.certificates.contexts import Block, contexts
from abc_nb.certificates.shapes import Atom, Node, Place, Shape, Token, condensed
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Frame, Transformer

ROWS = 2**12  # contexts computed at once: what a processor's cache holds is fastest
MOST = 2**22  # states in one table
NUMBERS = 2**28  # numbers that tables hold before they are dropped: 1 GB
DENSE = 2**24  # codes that a plain array finds rows for
Pair = tuple[Tensor, Tensor]


@dataclass
class Table:
    """States of one node, a row for each of its contexts, with the keys and values that were asked for."""

    states: Tensor  # (rows, D)
    atoms: tuple[Atom, ...]
    codes: np.ndarray  # sorted, one a row
    lookup: np.ndarray | None  # the row of each code, where codes are small
    kept: dict[tuple[int, str], Pair] = field(default_factory=dict)

    def rows(self, code: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.codes, code) if self.lookup is None else self.lookup[code]


@dataclass
class Columns:
    """The tokens of some contexts: a column for each atom of their shape."""

    atoms: tuple[Atom, ...]
    values: np.ndarray
    base: int

    def code(self, atoms: tuple[Atom, ...]) -> np.ndarray:
        code = np.zeros(len(self.values), np.int64)
        for atom in atoms:
            code = code * self.base + self.values[:, self.atoms.index(atom)]
        return code


class States:
    """Computes logits of contexts; keeps tables between shapes."""

    def __init__(self, model: Transformer, automaton: Automaton) -> None:
        self.model, self.automaton = model, automaton
        self.device, self.heads = model.head.weight.device, model.config.heads
        self.tables: dict[Shape, Table] = {}

    def logits(self, shape: Shape, block: Block) -> Tensor:
        """Logits (contexts, vocabulary) of the token after the root's step."""
        state = self.compute(shape.root, shape.places, Columns(shape.atoms, block.values, self.automaton.base))
        return self.model.head(self.model.decoder_norm(state))

    def table(self, root: Node | Token, places: tuple[Place, ...]) -> tuple[Table, tuple[Atom, ...]]:
        """The table of a part of a tree, and its atoms as that tree names them, in the table's order."""
        shape = condensed(root, [place.kind for place in places], None, self.automaton.settled)
        names = Shape(root, bare(root, places), None).atoms
        if shape not in self.tables:
            if sum(table.states.numel() for table in self.tables.values()) > NUMBERS:
                self.tables.clear()
            self.tables[shape] = self.made(shape)
        return self.tables[shape], names

    def made(self, shape: Shape) -> Table:
        if isinstance(shape.root, Token) and shape.atoms:
            values = np.arange(self.automaton.base, dtype=np.uint8)[:, None]
        else:
            values = all_values(shape, self.automaton)
        columns = Columns(shape.atoms, values, self.automaton.base)
        codes = columns.code(shape.atoms)
        order = np.argsort(codes)
        columns.values, codes = values[order], codes[order]
        states = self.compute(shape.root, shape.places, columns)
        lookup = None
        if codes[-1] < DENSE:
            lookup = np.zeros(codes[-1] + 1, np.int32)
            lookup[codes] = np.arange(len(codes))
        return Table(states, shape.atoms, codes, lookup)

    def compute(self, root: Node | Token, places: tuple[Place, ...], columns: Columns) -> Tensor:
        """States (contexts, D) of a node or an embedded token."""
        if isinstance(root, Token):
            tokens = columns.values[:, 0].astype(np.int64) if columns.atoms else np.array([root.atom[1]])
            index = torch.tensor([root.index], device=self.device)
            return self.model.embed(torch.from_numpy(tokens).to(self.device)[:, None], index)[:, 0]
        keys = [root.before, *(key for _, key in root.own), *(key for _, key in root.cross)]
        found = [self.table(key, places) for key in keys]
        rows = [torch.from_numpy(table.rows(columns.code(names))).to(self.device) for table, names in found]
        tables = [table for table, _ in found]
        parts = [
            self.layer(root, tables, [row[start : start + ROWS] for row in rows])
            for start in range(0, len(columns.values), ROWS)
        ]
        return torch.cat(parts)

    def layer(self, node: Node, tables: list[Table], rows: list[Tensor]) -> Tensor:
        """One decoder layer over gathered rows: what is before it, the keys of self-attention, those of cross-attention."""
        number, own = node.layer - 1, len(node.own) + 1
        layer = self.model.decoder_layers[number]
        x = tables[0].states[rows[0]][:, None]
        pairs = [
            gathered([self.pair(table, number, name) for table in part], chosen)
            for name, part, chosen in (("self", tables[1:own], rows[1:own]), ("cross", tables[own:], rows[own:]))
        ]
        biases = {"self": self.bias(node.own), "cross": self.bias(node.cross)}
        index = torch.zeros(1, dtype=torch.long, device=self.device)
        frame = Frame(*(index.expand(max(len(keys), 1)) for keys in (node.cross, node.own)), index, (biases,) * own_layers(number))
        return layer.mix(x, layer.self_residual.inner(x), *pairs, frame, None)[:, 0]

    def pair(self, table: Table, number: int, name: str) -> Pair:
        """Keys and values of a table's rows in one attention, (1, H, rows, d) each."""
        if (number, name) not in table.kept:
            layer = self.model.decoder_layers[number]
            index = torch.zeros(len(table.states), dtype=torch.long, device=self.device)
            if name == "self":
                inner = layer.self_residual.inner(table.states)[None]
                table.kept[number, name] = layer.self_attention.keys_values(inner, index)
            else:
                memory = self.model.encoder_norm(table.states)[None]
                table.kept[number, name] = layer.cross_attention.keys_values(memory, index)
        return table.kept[number, name]

    def bias(self, keys: tuple[tuple[bytes, Node | Token], ...]) -> OpenKeys:
        """The bias of a node's keys; one closed key where there is none."""
        values = [np.frombuffer(bias, np.float32) for bias, _ in keys] or [np.full(self.heads, CLOSED, np.float32)]
        value = torch.tensor(np.stack(values, axis=1), device=self.device, dtype=self.model.head.weight.dtype)
        return OpenKeys(torch.arange(len(values), device=self.device)[None], value[:, None])


def own_layers(number: int) -> int:
    """A frame that serves layer `number` has as many entries as that."""
    return number + 1


def bare(root: Node | Token, places: tuple[Place, ...]) -> tuple[Place, ...]:
    """The places of a larger tree with what one part of it sees."""
    return tuple(
        Place(
            place.kind,
            tuple(operand for operand in place.digits if ("digit", operand, number) in root.atoms),
            ("output", 0, number) in root.atoms,
            False,
        )
        for number, place in enumerate(places)
    )


def all_values(shape: Shape, automaton: Automaton) -> np.ndarray:
    """The contexts of a node as one array; InputError where they are too many to keep."""
    parts, count = [], 0
    for block in contexts(shape, automaton):
        parts.append(block.values)
        count += len(block.values)
        if count > MOST:
            raise InputError(f"no certificate: a state below the last layer has more than {MOST:,} contexts to try")
    return np.concatenate(parts)


def gathered(pairs: list[Pair], rows: list[Tensor]) -> Pair:
    """Keys and values (contexts, H, keys, d) of chosen rows."""
    keys = torch.stack([key[0].index_select(1, row) for (key, _), row in zip(pairs, rows, strict=True)], 2)
    values = torch.stack([value[0].index_select(1, row) for (_, value), row in zip(pairs, rows, strict=True)], 2)
    return keys.transpose(0, 1), values.transpose(0, 1)
