"""Logits of contexts, computed with the model's own layers, each distinct state once.

A state of a lower layer depends on a part of the context only. Its table holds one row for each of
those parts; the layer above looks rows up. The numbers are those of a pass over a whole problem up to
the order in which sums are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED
from abc_nb.certificates.contexts import Block, contexts
from abc_nb.certificates.shapes import Atom, Node, Place, Shape, Token, condensed
from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.transformer import DecoderLayer, Transformer
from abc_nb.problems.automaton import Automaton

ROWS = 2**12  # contexts computed at once: what a processor's cache holds is fastest
MOST = 2**22  # states in one table
NUMBERS = 2**28  # numbers that tables hold before they are dropped: 1 GB
DENSE = 2**24  # codes that a plain array finds rows for
Pair = tuple[Tensor, Tensor]


@dataclass
class Table:
    """States of one node, a row for each of its contexts, with what the next layer makes of them."""

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
        self.device = model.head.weight.device
        size = model.config.width // model.config.heads
        self.heads = torch.eye(model.config.heads).repeat_interleave(size, 0).to(model.head.weight)  # (D, H)
        self.tables: dict[Shape, Table] = {}

    def logits(self, shape: Shape, block: Block) -> Tensor:
        """Logits (contexts, vocabulary) of the token after the root's step."""
        state = self.compute(shape.root, shape.places, Columns(shape.atoms, block.values, self.automaton.base))
        return self.model.head(self.model.decoder_norm(state))

    def part(self, root: Node | Token, places: tuple[Place, ...], columns: Columns) -> tuple[Table, Tensor]:
        """The table of a part of a tree, and the row that each context has in it."""
        table, names = self.table(root, places)
        return table, torch.from_numpy(table.rows(columns.code(names))).to(self.device)

    def note(self, value: Tensor, terms: int, size: Callable[[], Tensor] | None = None) -> Tensor:
        """For a look at rounding: `value` is a sum of so many terms whose absolute values add up to `size`."""
        return value

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
            varies = root.atom[0] != "token"
            tokens = columns.code((root.atom,)) if varies else np.array([root.atom[1]])
            index = torch.tensor([root.index], device=self.device)
            state = self.model.embed(torch.from_numpy(tokens).to(self.device)[:, None], index)[:, 0].to(self.heads)
            return self.note(state, 3, lambda: state.abs() + 2)
        keys = [root.before, *(key for _, key in root.own), *(key for _, key in root.cross)]
        found = [self.part(key, places, columns) for key in keys]
        tables, rows = [table for table, _ in found], [row for _, row in found]
        parts = [
            self.layer(root, tables, [row[start : start + ROWS] for row in rows])
            for start in range(0, len(columns.values), ROWS)
        ]
        return torch.cat(parts)

    def layer(self, node: Node, tables: list[Table], rows: list[Tensor]) -> Tensor:
        """One decoder layer over chosen rows: what is before it, keys of self-attention, of cross-attention.

        In a decoder-only model the keys of both are under one softmax.
        """
        number, layer = node.layer - 1, self.model.layers[node.layer - 1]
        keys = node.own if isinstance(layer, DecoderLayer) else (*node.own, *node.cross)
        cross = len(keys) + 1
        query, x = (part.index_select(0, rows[0]) for part in self.kept(tables[0], number, "query"))
        pairs = [self.kept(table, number, "self") for table in tables[1:cross]]
        change = self.attend(layer.self_attention, query, pairs, rows[1:cross], keys)
        x = self.note(layer.self_residual.outer(x, change), 1)
        if isinstance(layer, DecoderLayer):
            query = layer.cross_attention.query(layer.cross_residual.inner(x))
            pairs = [self.kept(table, number, "cross") for table in tables[cross:]]
            change = self.attend(layer.cross_attention, query, pairs, rows[cross:], node.cross)
            x = self.note(layer.cross_residual.outer(x, change), 1)
        change = layer.feed_forward(layer.forward_residual.inner(x))
        return self.note(layer.forward_residual.outer(x, change), 1)

    def kept(self, table: Table, number: int, name: str) -> Pair:
        """What one layer makes of a table's rows, (rows, D) each: queries and states, or keys and values."""
        if (number, name) not in table.kept:
            layer, states = self.model.layers[number], table.states
            if name == "cross" and isinstance(layer, DecoderLayer):
                memory = self.model.encoder_norm(states)
                found = layer.cross_attention.key(memory), layer.cross_attention.value(memory)
            else:
                inner, attention = layer.self_residual.inner(states), layer.self_attention
                found = (
                    (attention.query(inner), states)
                    if name == "query"
                    else (attention.key(inner), attention.value(inner))
                )
            table.kept[number, name] = found
        return table.kept[number, name]

    def attend(
        self,
        attention: MultiHeadAttention,
        query: Tensor,
        pairs: list[Pair],
        rows: list[Tensor],
        keys: tuple[tuple[bytes, Node | Token], ...],
    ) -> Tensor:
        """Attention of queries (contexts, D) to a row of each table; `heads` sums within a head."""
        if not pairs:
            return attention.out(torch.zeros_like(query))
        bias = torch.tensor(np.stack([np.frombuffer(bias, np.float32) for bias, _ in keys])).to(query)  # (keys, H)
        key, value = (
            torch.stack([pair[part].index_select(0, row) for pair, row in zip(pairs, rows, strict=True)], 1)
            for part in (0, 1)
        )
        root, size = (query.shape[1] / attention.heads) ** 0.5, query.shape[1] // attention.heads
        logits = (query[:, None] * key) @ self.heads / root + bias
        finite = bias.masked_fill(bias == CLOSED, 0.0).abs()
        logits = self.note(logits, size + 4, lambda: (query[:, None] * key).abs() @ self.heads / root + finite)
        closed = (bias == CLOSED).all(0)  # heads without an open key
        weights = logits.masked_fill(closed, 0.0).softmax(1).masked_fill(closed, 0.0)
        weights = self.note(weights, len(pairs) + 8)
        mixed = ((weights @ self.heads.T) * value).sum(1)
        mixed = self.note(mixed, len(pairs), lambda: ((weights @ self.heads.T) * value).abs().sum(1))
        return attention.out(mixed)


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
