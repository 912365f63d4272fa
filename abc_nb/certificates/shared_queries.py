"""Logits of many contexts at once: what contexts with the same query have in common is computed once for all.

A query of the last layer is a state of the layer below, which sees a part of the context. The contexts that have
this part in common are a group. Keys that see nothing else are the same for a whole group. Then the logits of
attention to such a key, `q_h . k_h`, are one matrix times the input of the query, and what the key adds to the
state, `W_h v_h` for each head h, is one matrix too. Only other keys are looked up for each context.
Shapes: G groups, M contexts of each, D width, H heads, d = D / H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.shapes import Node, Shape, Token
from abc_nb.certificates.states import ROWS, Columns, States, Table
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.transformer import DecoderLayer

FEW = 4  # contexts a group on average, below which sharing gains nothing


@dataclass
class Key:
    """A key of attention: its table, and the row of each group or, if it is not `common`, of each context."""

    table: Table
    rows: Tensor
    common: bool
    bias: np.ndarray  # (H,)


@dataclass
class Groups:
    """Contexts in groups, those with the most contexts first."""

    order: np.ndarray  # contexts, group by group
    first: np.ndarray  # where each group begins in `order`
    count: np.ndarray  # how many contexts it has

    @classmethod
    def of(cls, code: np.ndarray) -> Groups:
        """Contexts with the same code in one group."""
        order = np.argsort(code, kind="stable")
        first = np.flatnonzero(np.diff(code[order], prepend=-1))
        count = np.diff(first, append=len(order))
        largest = np.argsort(-count, kind="stable")
        return cls(order, first[largest], count[largest])

    def batches(self) -> list[tuple[slice, np.ndarray]]:
        """Groups that are computed together, and their contexts (G, M); short groups repeat their last one."""
        found, start = [], 0
        while start < len(self.first):
            most = int(self.count[start])
            part = slice(start, start + max(1, ROWS // most))
            within = np.minimum(np.arange(most), self.count[part, None] - 1)
            found.append((part, self.order[self.first[part, None] + within]))
            start = part.stop
        return found


class Shared(States):
    """As `States`, with the last layer computed for whole groups."""

    def logits(self, shape: Shape, block: Block) -> Tensor:
        """Logits (contexts, vocabulary) of the token after the root's step."""
        root, columns = shape.root, Columns(shape.atoms, block.values, self.automaton.base)
        if not isinstance(root, Node):
            return super().logits(shape, block)
        seen = tuple(atom for atom in shape.atoms if atom in root.before.atoms)
        groups = Groups.of(columns.code(seen))
        if len(block.right) < FEW * len(groups.first):
            return super().logits(shape, block)
        head = self.model.head
        found = head.weight.new_empty(len(block.right), head.out_features)
        own, cross = ([self.key(shape, columns, groups, key) for key in keys] for keys in (root.own, root.cross))
        table, rows = self.part(root.before, shape.places, columns)
        rows = rows[torch.from_numpy(groups.order[groups.first]).to(self.device)]
        for part, contexts in groups.batches():
            at = torch.from_numpy(contexts).to(self.device)
            states = table.states.index_select(0, rows[part])[:, None]
            x = self.last_layer(root, states, *([taken(key, part, at) for key in keys] for keys in (own, cross)))
            found[at.flatten()] = head(self.model.decoder_norm(x)).expand(*at.shape, -1).flatten(0, 1)
        return found

    def key(self, shape: Shape, columns: Columns, groups: Groups, key: tuple[bytes, Node | Token]) -> Key:
        """Where the rows of a key are in its table."""
        assert isinstance(shape.root, Node)
        bias, root = key
        common = not (root.atoms & set(shape.atoms)) - shape.root.before.atoms
        table, rows = self.part(root, shape.places, columns)
        if common:
            rows = rows[torch.from_numpy(groups.order[groups.first]).to(self.device)]
        return Key(table, rows, common, np.frombuffer(bias, np.float32))

    def last_layer(self, root: Node, x: Tensor, own: list[Key], cross: list[Key]) -> Tensor:
        """The states (G, M, D) after the last layer, from those before it (G, 1, D)."""
        number, layer = root.layer - 1, self.model.layers[root.layer - 1]
        keys = own if isinstance(layer, DecoderLayer) else [*own, *cross]
        inner = layer.self_residual.inner(x)
        x = layer.self_residual.outer(x, self.attend_all(layer.self_attention, inner, keys, number, "self"))
        if isinstance(layer, DecoderLayer):
            inner = layer.cross_residual.inner(x)
            change = self.attend_all(layer.cross_attention, inner, cross, number, "cross")
            x = layer.cross_residual.outer(x, change)
        return layer.forward_residual.outer(x, layer.feed_forward(layer.forward_residual.inner(x)))

    def attend_all(self, attention: MultiHeadAttention, x: Tensor, keys: list[Key], number: int, name: str) -> Tensor:
        """Attention (G, M, D) of queries from `x` (G, M or 1, D); a head without an open key gives nothing."""
        if not keys:
            return attention.out(torch.zeros_like(x))
        bias = torch.from_numpy(np.stack([key.bias for key in keys])).to(x)  # (keys, H)
        closed = (bias == CLOSED).all(0)
        bias = bias.masked_fill(closed, 0.0)
        pairs = [
            [each.index_select(0, key.rows.flatten()) for each in self.kept(key.table, number, name)] for key in keys
        ]
        logits = self.all_logits(attention, x, keys, [pair[0] for pair in pairs])
        logits = [each + own for each, own in zip(logits, bias, strict=True)]
        weights = softmax_of(logits)
        weights = [weight.masked_fill(closed, 0.0) for weight in weights] if closed.any() else weights
        return self.all_values(attention, weights, keys, [pair[1] for pair in pairs])

    def all_logits(
        self, attention: MultiHeadAttention, x: Tensor, keys: list[Key], vectors: list[Tensor]
    ) -> list[Tensor]:
        """`q_h . k_h / sqrt(d)` of every key, (G, M or 1, H) each."""
        heads, root = attention.heads, (x.shape[-1] / attention.heads) ** 0.5
        weight, offset = attention.query.weight.unflatten(0, (heads, -1)), attention.query.bias
        query = attention.query(x) / root if not all(key.common for key in keys) else x
        common = [vector / root for key, vector in zip(keys, vectors, strict=True) if key.common]
        found = iter(())
        if common:
            stacked = torch.cat(
                [torch.einsum("ghd,hdo->goh", each.unflatten(1, (heads, -1)), weight) for each in common], 2
            )
            extra = torch.cat([(each * offset) @ self.heads for each in common], 1)
            found = iter(torch.baddbmm(extra[:, None], x, stacked).split(heads, 2))
        return [
            next(found) if key.common else (query * vector.view(*key.rows.shape, -1)) @ self.heads
            for key, vector in zip(keys, vectors, strict=True)
        ]

    def all_values(
        self, attention: MultiHeadAttention, weights: list[Tensor], keys: list[Key], vectors: list[Tensor]
    ) -> Tensor:
        """The weighted sum of values after the output map, (G, M or 1, D)."""
        heads, total = attention.heads, None
        weight = attention.out.weight.unflatten(1, (heads, -1))  # (D, H, d)
        triples = [*zip(keys, weights, vectors, strict=True)]
        found: Tensor = attention.out.bias
        common = [(mine, vector) for key, mine, vector in triples if key.common]
        if common:
            stacked = torch.cat(
                [torch.einsum("ghd,ohd->gho", each.unflatten(1, (heads, -1)), weight) for _, each in common], 1
            )
            found = found + torch.cat([mine for mine, _ in common], 2) @ stacked
        for key, mine, vector in triples:
            if not key.common:
                part = (mine @ self.heads.T) * vector.view(*key.rows.shape, -1)
                total = part if total is None else total + part
        return found if total is None else found + total @ attention.out.weight.T


def taken(key: Key, part: slice, contexts: Tensor) -> Key:
    """A key for some groups and their contexts."""
    rows = key.rows[part] if key.common else key.rows[contexts]
    return Key(key.table, rows, key.common, key.bias)


def softmax_of(logits: list[Tensor]) -> list[Tensor]:
    """Softmax over the entries of a list."""
    largest = logits[0]
    for each in logits[1:]:
        largest = torch.maximum(largest, each)
    powers = [(each - largest).exp_() for each in logits]
    total = sum(powers[1:], powers[0])
    return [each / total for each in powers]
