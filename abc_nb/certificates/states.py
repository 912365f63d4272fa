"""The states that the tokens of many contexts lead to, computed with the model's own layers, each distinct one once.

A state of a lower layer depends on a part of the context only. Of those contexts that agree in this part it is
computed once; the layer above looks it up. The numbers are those of a pass over a whole problem up to the order in
which sums are taken. Shapes: N contexts or distinct states, K keys, H heads, d numbers a head, D = H d.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from abc_nb.certificates.shapes import Atom, Node, Token
from abc_nb.model.attention import MultiHeadAttention, over_open_keys
from abc_nb.model.transformer import DecoderLayer, Transformer

ROWS = 2**12  # contexts computed at once: what a processor's cache holds is fastest
Key = tuple[bytes, Node | Token]  # the bias of every head, and what stands at the key


@dataclass(frozen=True)
class Part:
    """Distinct states of one part of a tree."""

    states: Tensor  # (distinct states, D)
    rows: Tensor  # (N,): which of them each context has


@dataclass(frozen=True)
class Keys:
    """The keys of one attention of a node."""

    key: Tensor  # (R, H, d): all that can be one
    value: Tensor  # (R, H, d)
    rows: Tensor  # (N, K): which of them each context has
    bias: Tensor  # (1, K, H)


class States:
    """Computes the logits of the contexts of one block."""

    def __init__(self, model: Transformer, atoms: Sequence[Atom], values: np.ndarray) -> None:
        """`values`: the tokens at `atoms`, (N, atoms)."""
        self.model, self.device, self.count = model, model.head.weight.device, len(values)
        self.columns = {atom: values[:, number].astype(np.int64) for number, atom in enumerate(atoms)}
        self.head_size = model.config.width // model.config.heads
        self.parts: dict[Node | Token, Part] = {}

    def logits(self, root: Node) -> Tensor:
        """Logits (N, vocabulary) of the token after the root's step."""
        state = self.layer(root, torch.arange(self.count, device=self.device))
        return self.model.head(self.model.decoder_norm(state))

    def part(self, root: Node | Token) -> Part:
        if root not in self.parts:
            self.parts[root] = self.embedded(root) if isinstance(root, Token) else self.computed(root)
        return self.parts[root]

    def embedded(self, token: Token) -> Part:
        """The whole vocabulary, embedded with the token's index."""
        every = torch.arange(self.model.embedding.num_embeddings, device=self.device)
        index = torch.tensor([token.index], device=self.device)
        rows = self.columns.get(token.atom, np.full(self.count, token.atom[1]))
        return Part(self.model.embed(every[:, None], index)[:, 0], torch.from_numpy(rows).to(self.device))

    def computed(self, node: Node) -> Part:
        first, rows = self.distinct(sorted(node.atoms))
        return Part(self.layer(node, torch.from_numpy(first).to(self.device)), torch.from_numpy(rows).to(self.device))

    def distinct(self, atoms: Sequence[Atom]) -> tuple[np.ndarray, np.ndarray]:
        """A context for each way in which the tokens at some atoms differ, and which of them each context is like."""
        code, limit = np.zeros(self.count, np.int64), 1
        for atom in atoms:
            base = int(self.columns[atom].max(initial=0)) + 1
            code, limit = code * base + self.columns[atom], limit * base
        if limit > 8 * self.count:
            _, first, rows = np.unique(code, return_index=True, return_inverse=True)
            return first, rows
        number = np.full(limit, -1)
        number[code] = np.arange(self.count)
        present = np.flatnonzero(number >= 0)
        first = number[present]
        number[present] = np.arange(len(present))
        return first, number[code]

    def layer(self, node: Node, chosen: Tensor) -> Tensor:
        """What a decoder layer makes of the chosen contexts, (chosen, D): some at a time.

        In a decoder-only model all keys are under one softmax.
        """
        layer, before = self.model.layers[node.layer - 1], self.part(node.before)
        norm, own, cross = layer.self_residual.inner, (*node.own, *node.cross), None
        if isinstance(layer, DecoderLayer):
            own, cross = node.own, self.keys(layer.cross_attention, node.cross, self.model.encoder_norm)
        keys = self.keys(layer.self_attention, own, norm)
        queries, found = layer.self_attention.query(norm(before.states)), []
        for some in chosen.split(ROWS):
            rows = before.rows[some]
            change = self.attend(layer.self_attention, queries.index_select(0, rows), keys, some)
            x = self.added(layer.self_residual.outer(before.states.index_select(0, rows), change))
            if isinstance(layer, DecoderLayer):
                query = layer.cross_attention.query(layer.cross_residual.inner(x))
                change = self.attend(layer.cross_attention, query, cross, some)
                x = self.added(layer.cross_residual.outer(x, change))
            change = layer.feed_forward(layer.forward_residual.inner(x))
            found.append(self.added(layer.forward_residual.outer(x, change)))
        return torch.cat(found)

    def keys(self, attention: MultiHeadAttention, keys: Sequence[Key], norm: Callable[[Tensor], Tensor]) -> Keys | None:
        """The keys and values of normed states; None without any."""
        if not keys:
            return None
        parts = [self.part(root) for _, root in keys]
        states, shape = norm(torch.cat([part.states for part in parts])), (-1, attention.heads, self.head_size)
        first = np.cumsum([0, *(len(part.states) for part in parts)])
        rows = torch.stack([part.rows + start for part, start in zip(parts, first.tolist(), strict=False)], 1)
        bias = torch.tensor(np.stack([np.frombuffer(own, np.float32) for own, _ in keys])).to(states)
        return Keys(attention.key(states).view(shape), attention.value(states).view(shape), rows, bias[None])

    def attend(self, attention: MultiHeadAttention, query: Tensor, keys: Keys | None, chosen: Tensor) -> Tensor:
        """What attention of queries (chosen, D) adds to the states: (chosen, D)."""
        if keys is None:
            return attention.out(torch.zeros_like(query))
        rows = keys.rows[chosen]
        key, value = (each.index_select(0, rows.flatten()).unflatten(0, rows.shape) for each in (keys.key, keys.value))
        return attention.out(self.mixed(query.unflatten(1, key.shape[2:]), key, value, keys.bias).flatten(1))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attention of queries (chosen, H, d) over their own keys: see `over_open_keys`."""
        return over_open_keys(query, key, value, bias)

    def added(self, total: Tensor) -> Tensor:
        """For a look at rounding: the sum of a state and what is added to it."""
        return total
