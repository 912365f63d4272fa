"""The states that the tokens of many contexts lead to, computed with the model's own layers, each distinct one once.

A state of a lower layer depends on a part of the context only. For all contexts that agree in this part it is
computed once, and the layer above looks it up. The numbers are those of a pass over a whole problem up to the order in
which sums are taken. Each state comes with a bound on what rounding can change it by: see `rounding`.
Shapes: N contexts or distinct states, K keys, H heads, d numbers a head, D = H d.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.certificates.contexts import Leaf, Node, Token
from abc_nb.certificates.few_keys import mixed
from abc_nb.certificates.rounding import Rounding, Sizes, State, by_head
from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.layers import DecoderLayer, Layer

CONTEXTS_AT_ONCE = 2**11  # contexts computed at once: what a processor's cache holds is fastest
# So many times as many states as contexts are too many to make keys and queries of all: that takes time and memory.
MANY_STATES = 4
T = TypeVar("T")
BiasedKey = tuple[bytes, Node | Token]  # the bias of every head, and what stands at the key


@dataclass(frozen=True)
class Part:
    """Distinct states of one part of a tree."""

    states: Tensor  # (distinct states, D)
    errors: Tensor  # (distinct states,)
    rows: Tensor | None = None  # (N,): which of them each context has; None where these are all possible states


@dataclass(frozen=True)
class Keys:
    """All possible keys of one attention of a node."""

    table: Tensor  # see `States.table`
    errors: Tensor  # (R, 2): how far key and value can be off
    bias: Tensor  # (K, H)
    sizes: Sizes


class Map(NamedTuple):
    """A linear map."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def interleaved(linear: nn.Linear, heads: int, inputs: bool) -> Map:
    """The same map with the first numbers of all heads first, of its inputs or of its outputs.

    So all heads are computed together: see `few_keys`.
    """
    order = torch.arange(linear.out_features, device=linear.weight.device).view(heads, -1).T.flatten()
    weight, bias = (linear.weight[:, order], linear.bias) if inputs else (linear.weight[order], linear.bias[order])
    return Map(weight, bias)


class States:
    """Computes the states of contexts of one shape, in the arithmetic of the weights of `rounding.model`.

    A part of a tree is computed once, and shared by all blocks, if it has at most `most_shared` contexts of tokens
    below `base`.
    """

    def __init__(
        self,
        rounding: Rounding,
        leaves: Sequence[Leaf],
        base: int = 1,
        most_shared: float = 0,
        threads: int = 1,
        shared: dict[object, Any] | None = None,
    ) -> None:
        self.rounding, self.model = rounding, rounding.model
        self.leaves, self.base, self.most_shared, self.threads = leaves, base, most_shared, threads
        self.device = rounding.weight.device
        self.shared: dict[object, Any] = {} if shared is None else shared  # results that are the same for all blocks
        self.of_block: dict[object, Any] = {}  # results for this block

    def take(self, values: np.ndarray) -> Self:
        """Go on with a block of contexts: `values` are the tokens at the leaves, (N, leaves)."""
        self.count, self.of_block = len(values), {}
        self.columns = {leaf: values[:, number].astype(np.int64) for number, leaf in enumerate(self.leaves)}
        return self

    def margins(self, root: Node, right: Tensor) -> list[Tensor]:
        """By how much the right token after the root's step leads, and what rounding leaves of that: (N,) both."""
        layer, norm, head = self.layer(root), self.model.decoder_norm, self.model.head

        def margins_of(indices: Tensor) -> tuple[Tensor, Tensor]:
            normed = self.rounding.normed(norm, *layer(indices))
            return self.rounding.margins(head, norm, normed, head(normed[0]), right[indices])

        return self.in_parts(margins_of, self.count)

    def logits(self, root: Node) -> Tensor:
        """Logits (N, vocabulary) of the token after the root's step."""
        state = self.layer(root)(torch.arange(self.count, device=self.device))
        return self.model.head(self.model.decoder_norm(state[0]))

    def in_parts(self, step: Callable[[Tensor], tuple[Tensor, ...]], count: int) -> list[Tensor]:
        """What a step gives for all indices below `count`, some at a time; on several threads without gradients."""
        parts = torch.arange(count, device=self.device).split(CONTEXTS_AT_ONCE)
        if min(self.threads, len(parts)) == 1:
            results = [*map(step, parts)]
        else:
            with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                results = [*pool.map(torch.inference_mode()(step), parts)]
        return [*map(torch.cat, zip(*results, strict=True))]

    # ---- parts of the tree, each distinct state once

    def is_shared(self, root: Node | Token) -> bool:
        """Whether all states of a part are computed once for all blocks."""
        return isinstance(root, Token) or self.base ** len(root.leaves) <= self.most_shared

    def once(self, name: object, shared: bool, make: Callable[[], T]) -> T:
        """The result of `make`, computed once for all blocks or for this one."""
        cache = self.shared if shared else self.of_block
        if name not in cache:
            cache[name] = make()
        result: T = cache[name]
        return result

    def part(self, root: Node | Token) -> Part:
        return self.once(root, self.is_shared(root), lambda: self.computed(root))

    def computed(self, root: Node | Token) -> Part:
        if isinstance(root, Token):
            return self.embedded(root)
        leaves, rows = sorted(root.leaves), None
        if self.is_shared(root):
            powers = self.base ** np.arange(len(leaves))[::-1]
            values = np.arange(self.base ** len(leaves))[:, None] // powers % self.base
        else:
            first, rows = self.distinct(leaves)
            values = np.array([self.columns[leaf][first] for leaf in leaves], np.int64).reshape(-1, len(first)).T
        below = type(self)(self.rounding, leaves, self.base, self.most_shared, self.threads, self.shared).take(values)
        states, errors = below.in_parts(below.layer(root), below.count)
        return Part(states, errors, None if rows is None else torch.from_numpy(rows).to(self.device))

    def embedded(self, token: Token) -> Part:
        """The whole vocabulary, embedded with the token's index."""
        vocabulary = torch.arange(self.model.embedding.num_embeddings, device=self.device)
        index = torch.tensor([token.residue], device=self.device, dtype=self.rounding.weight.dtype)
        states = self.model.embed(vocabulary[:, None], index)[:, 0]
        return Part(states, self.rounding.embedded(states, token.residue))

    def rows(self, root: Node | Token) -> Tensor:
        """Which state of a part each context has: (N,)."""
        distinct_rows = self.part(root).rows
        if distinct_rows is not None:
            return distinct_rows
        if isinstance(root, Token):
            rows = self.columns.get(root.leaf, np.full(self.count, root.leaf[1]))
        else:
            rows = np.zeros(self.count, np.int64)
            for leaf in sorted(root.leaves):
                if (self.columns[leaf] >= self.base).any():
                    raise InputError(f"a context has a token that is none of the {self.base} that can stand there")
                rows = rows * self.base + self.columns[leaf]
        return torch.from_numpy(rows).to(self.device)

    def used(self, root: Node | Token) -> tuple[Part, Tensor, bool]:
        """A part, which of its states each context has, and whether it is shared: all of it unless few are used."""
        part, rows = self.part(root), self.rows(root)
        if len(part.states) <= max(CONTEXTS_AT_ONCE, MANY_STATES * self.count):
            return part, rows, self.is_shared(root)
        used_rows, rows = rows.unique(return_inverse=True)
        return Part(part.states[used_rows], part.errors[used_rows]), rows, False

    def distinct(self, leaves: Sequence[Leaf]) -> tuple[np.ndarray, np.ndarray]:
        """A context for each way in which the tokens at some leaves differ, and which of them each context is like."""
        code = np.zeros(self.count, np.int64)
        for leaf in leaves:
            code = code * (int(self.columns[leaf].max(initial=0)) + 1) + self.columns[leaf]
        _, first, rows = np.unique(code, return_index=True, return_inverse=True)
        return first, rows

    # ---- one layer

    def interleaved(self, attention: MultiHeadAttention, name: str) -> Map:
        """A map of an attention, to or from numbers of which the first ones of all heads come first."""
        return self.rounding.once(interleaved, getattr(attention, name), attention.heads, name == "out")

    def layer(self, node: Node) -> Callable[[Tensor], State]:
        """A decoder layer, for contexts of the block by their indices.

        In a decoder-only model all keys are under one softmax.
        """
        layer, (before, before_rows, shared) = self.model.decoder.layers[node.layer - 1], self.used(node.before)
        crossed, norm = isinstance(layer, DecoderLayer), layer.self_residual.norm
        keys = self.keys(layer.self_attention, node.self_keys if crossed else (*node.self_keys, *node.cross_keys), norm)
        cross_keys = self.keys(layer.cross_attention, node.cross_keys, self.model.encoder_norm) if crossed else None
        queries, query_errors = self.once(
            (layer, node.before), shared, lambda: self.query(layer.self_attention, norm, (before.states, before.errors))
        )

        def of_contexts(indices: Tensor) -> State:
            rows = before_rows[indices]
            state = before.states.index_select(0, rows), before.errors[rows]
            query = queries.index_select(0, rows), query_errors[rows]
            state = self.attend(layer.self_attention, state, query, keys, indices)
            if crossed:
                query = self.query(layer.cross_attention, layer.cross_residual.norm, state)
                state = self.attend(layer.cross_attention, state, query, cross_keys, indices)
            return self.forward(layer, state)

        return of_contexts

    def query(self, attention: MultiHeadAttention, norm: nn.Module, state: State) -> State:
        """Queries of states, and how far they can be off."""
        normed = self.rounding.normed(norm, *state)
        errors = self.rounding.mapped(attention.query, norm, normed, attention.heads)
        return self.interleaved(attention, "query")(normed[0]), errors

    def forward(self, layer: DecoderLayer | Layer, state: State) -> State:
        """The feed-forward network with its residual."""
        (up, _, _, down), norm = layer.feed_forward, layer.forward_residual.norm
        assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
        normed = self.rounding.normed(norm, *state)
        hidden = up(normed[0]).relu_()
        x, error = state[0] + down(hidden), self.rounding.forward((up, down), norm, normed, hidden)
        return x, self.rounding.added(x, state[1] + error)

    def keys(
        self, attention: MultiHeadAttention, biased_keys: Sequence[BiasedKey], norm: nn.Module
    ) -> tuple[Keys, Tensor] | None:
        """The keys and values of normed states, and which of them each context has (N, K); None without any."""
        if not biased_keys:
            return None
        bias = torch.tensor(np.stack([np.frombuffer(bias, np.float32) for bias, _ in biased_keys]))
        parts, rows, shared = zip(*(self.used(root) for _, root in biased_keys), strict=True)
        if not (bias < torch.inf).all():
            raise InputError("no certificate: the bias has a value that is neither finite nor minus infinity")
        table = self.once((attention, biased_keys), all(shared), lambda: self.table(attention, parts, bias, norm))
        starts = np.cumsum([0, *(len(part.states) for part in parts)]).tolist()
        return table, torch.stack([row + start for row, start in zip(rows, starts, strict=False)], 1)

    def table(self, attention: MultiHeadAttention, parts: Sequence[Part], bias: Tensor, norm: nn.Module) -> Keys:
        """All possible keys: key, value and the squared lengths of both by head, (R, 2 D + 2 H).

        Where no head sees two, what a key adds to a state instead: (R, D). The bias of the slots is (K, H).
        """
        states, errors = torch.cat([part.states for part in parts]), torch.cat([part.errors for part in parts])
        heads, bias = attention.heads, bias.to(states)
        opened = bias > -torch.inf
        several = bool((opened.sum(0) > 1).any())
        lengths = torch.tensor([len(part.states) for part in parts], device=self.device)
        slots = torch.arange(len(parts), device=self.device).repeat_interleave(lengths)

        def of_states(indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            normed = self.rounding.normed(norm, states[indices], errors[indices])
            off = torch.cat([self.rounding.mapped(x, norm, normed) for x in (attention.key, attention.value)], 1)
            key, value = (self.interleaved(attention, name)(normed[0]) for name in ("key", "value"))
            squares = torch.cat([by_head(x.square(), heads) for x in (key, value)], 1)
            if several:
                return torch.cat([key, value, squares], 1), off, squares
            opened_numbers = opened[slots[indices]].to(value).repeat(1, value.shape[1] // heads)
            return (value * opened_numbers) @ self.interleaved(attention, "out").weight.T, off, squares

        table, key_errors, squares = self.in_parts(of_states, len(states))
        return Keys(table, key_errors, bias, Sizes.of(squares, bias))

    def attend(
        self,
        attention: MultiHeadAttention,
        state: State,
        query: State,
        keys_and_rows: tuple[Keys, Tensor] | None,
        indices: Tensor,
    ) -> State:
        """States of the contexts of these indices with what attention of their queries adds to them."""
        (x, error), rounding, out = state, self.rounding, attention.out
        if keys_and_rows is None:
            x = x + out.bias
            return x, rounding.added(x, error)
        keys, rows = keys_and_rows[0], keys_and_rows[1][indices]
        errors = keys.errors[rows]
        if keys.sizes.several.any():
            means, *lengths = mixed(query[0], keys.table, rows, keys.bias)
            change = rounding.of_means(attention, keys.sizes, query[1], errors, lengths)
            x = x + self.interleaved(attention, "out")(means)
        else:
            change = rounding.of_values(out, keys.sizes, errors[..., 1])
            added = keys.table.index_select(0, rows.flatten()).unflatten(0, rows.shape).sum(1)
            x = x + (added + out.bias)
        return x, rounding.added(x, error + change)
