"""The states that the tokens of many contexts lead to, computed with the model's own layers, each distinct one once.

A state of a lower layer depends on a part of the context only. Of those contexts that agree in this part it is
computed once; the layer above looks it up. The numbers are those of a pass over a whole problem up to the order in
which sums are taken. Beside each state stands what rounding can change it by: see `rounding`.
Shapes: N contexts or distinct states, K keys, H heads, d numbers a head, D = H d.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.certificates.contexts import Leaf, Node, Token
from abc_nb.certificates.few_keys import mixed
from abc_nb.certificates.rounding import Rounding, Sizes, by_head
from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.layers import DecoderLayer, Layer

CONTEXTS_AT_ONCE = 2**11  # contexts computed at once: what a processor's cache holds is fastest
# So many times as many states as contexts are too many to make keys and queries of all: that takes time and memory.
MANY_STATES = 4
T = TypeVar("T")

State = tuple[Tensor, Tensor]  # numbers (N, D) and errors (N,)
KeySeen = tuple[bytes, Node | Token]  # the bias of every head, and what stands at the key


@dataclass(frozen=True)
class Part:
    """Distinct states of one part of a tree."""

    states: Tensor  # (distinct states, D)
    errors: Tensor  # (distinct states,)
    rows: Tensor | None = None  # (N,): which of them each context has; None where these are all that can be


@dataclass(frozen=True)
class Keys:
    """All that the keys of one attention of a node can be."""

    table: Tensor  # see `States.table`
    moved: Tensor  # (R, 2): how far key and value can be off
    bias: Tensor  # (K, H)
    sizes: Sizes


Seen = tuple[Keys, Tensor]  # and which of them each context has: (N, K)


@dataclass(frozen=True)
class Layered:
    """A layer in two steps, each for some contexts of a block."""

    first: Callable[[Tensor], tuple[State, State]]  # states after attention to outputs, and normed for what is next
    rest: Callable[[State, State, Tensor], State]  # of both: the layer's states

    def __call__(self, some: Tensor) -> State:
        return self.rest(*self.first(some), some)


class Map(NamedTuple):
    """A linear map."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def heads_last(linear: nn.Linear, heads: int, given: bool = False) -> Map:
    """The same map with the first numbers of all heads first: those that it gives, or those that it is `given`.

    So all heads are computed together: see `few_keys`.
    """
    order = torch.arange(linear.out_features, device=linear.weight.device).view(heads, -1).T.flatten()
    weight, bias = (linear.weight[:, order], linear.bias) if given else (linear.weight[order], linear.bias[order])
    return Map(weight, bias)


def in_threads(threads: int, step: Callable[[Tensor], T], parts: Sequence[Tensor]) -> Iterator[T]:
    """What a step makes of each part, in order; on several threads without gradients."""
    if min(threads, len(parts)) == 1:
        yield from map(step, parts)
    else:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(torch.inference_mode()(step), parts)


class States:
    """Computes the states of contexts of one shape, in the arithmetic of the weights of `rounding.model`.

    States of a part of a tree with at most `most` contexts of tokens below `base` are computed once for all blocks.
    """

    def __init__(
        self,
        rounding: Rounding,
        leaves: Sequence[Leaf],
        base: int = 1,
        most: float = 0,
        threads: int = 1,
        kept: dict[object, Any] | None = None,
    ) -> None:
        self.rounding, self.model = rounding, rounding.model
        self.leaves, self.base, self.most, self.threads = leaves, base, most, threads
        self.device = rounding.weight.device
        self.kept: dict[object, Any] = {} if kept is None else kept  # what is the same for all blocks
        self.own: dict[object, Any] = {}  # what is of this block

    def take(self, values: np.ndarray) -> Self:
        """Go on with a block of contexts: `values` are the tokens at the leaves, (N, leaves)."""
        self.count, self.own = len(values), {}
        self.columns = {leaf: values[:, number].astype(np.int64) for number, leaf in enumerate(self.leaves)}
        return self

    def margins(self, root: Node, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """By how much the right token after the root's step leads, and what rounding leaves of that: some at a time."""
        layer, norm, head = self.layer(root), self.model.decoder_norm, self.model.head

        def margins_of(some: Tensor) -> tuple[Tensor, Tensor]:
            normed = self.rounding.normed(norm, *layer(some))
            return self.rounding.margins(head, norm, normed, head(normed[0]), right[some])

        return in_threads(self.threads, margins_of, self.every.split(CONTEXTS_AT_ONCE))

    def logits(self, root: Node) -> Tensor:
        """Logits (N, vocabulary) of the token after the root's step."""
        return self.model.head(self.model.decoder_norm(self.layer(root)(self.every)[0]))

    @property
    def every(self) -> Tensor:
        return torch.arange(self.count, device=self.device)

    # ---- parts of the tree, each distinct state once

    def is_kept(self, root: Node | Token) -> bool:
        """Whether all states of a part are computed once for all blocks."""
        return isinstance(root, Token) or self.base ** len(root.leaves) <= self.most

    def once(self, name: object, kept: bool, make: Callable[[], T]) -> T:
        """What `make` gives, computed once for all blocks or for this one."""
        known = self.kept if kept else self.own
        if name not in known:
            known[name] = make()
        found: T = known[name]
        return found

    def part(self, root: Node | Token) -> Part:
        return self.once(root, self.is_kept(root), lambda: self.computed(root))

    def computed(self, root: Node | Token) -> Part:
        if isinstance(root, Token):
            return self.embedded(root)
        leaves, rows = sorted(root.leaves), None
        if self.is_kept(root):
            powers = self.base ** np.arange(len(leaves))[::-1]
            values = np.arange(self.base ** len(leaves))[:, None] // powers % self.base
        else:
            first, rows = self.distinct(leaves)
            values = np.array([self.columns[leaf][first] for leaf in leaves], np.int64).reshape(-1, len(first)).T
        below = type(self)(self.rounding, leaves, self.base, self.most, self.threads, self.kept).take(values)
        made = in_threads(self.threads, below.layer(root), below.every.split(CONTEXTS_AT_ONCE))
        states, errors = map(torch.cat, zip(*made, strict=True))
        return Part(states, errors, None if rows is None else torch.from_numpy(rows).to(self.device))

    def embedded(self, token: Token) -> Part:
        """The whole vocabulary, embedded with the token's index."""
        every = torch.arange(self.model.embedding.num_embeddings, device=self.device)
        index = torch.tensor([token.residue], device=self.device, dtype=self.rounding.weight.dtype)
        states = self.model.embed(every[:, None], index)[:, 0]
        return Part(states, self.rounding.embedded(states, token.residue))

    def rows(self, root: Node | Token) -> Tensor:
        """Which state of a part each context has: (N,)."""
        known = self.part(root).rows
        if known is not None:
            return known
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
        """A part, which of its states each context has, and whether the part is kept: all of it unless few are used."""
        part, rows = self.part(root), self.rows(root)
        if len(part.states) <= max(CONTEXTS_AT_ONCE, MANY_STATES * self.count):
            return part, rows, self.is_kept(root)
        own, rows = rows.unique(return_inverse=True)
        return Part(part.states[own], part.errors[own]), rows, False

    def distinct(self, leaves: Sequence[Leaf]) -> tuple[np.ndarray, np.ndarray]:
        """A context for each way in which the tokens at some leaves differ, and which of them each context is like."""
        code = np.zeros(self.count, np.int64)
        for leaf in leaves:
            code = code * (int(self.columns[leaf].max(initial=0)) + 1) + self.columns[leaf]
        _, first, rows = np.unique(code, return_index=True, return_inverse=True)
        return first, rows

    # ---- one layer

    def turned(self, attention: MultiHeadAttention, name: str) -> Map:
        """A map of an attention, to or from numbers of which the first ones of all heads come first."""
        return self.rounding.once(heads_last, getattr(attention, name), attention.heads, name == "out")

    def layer(self, node: Node) -> Layered:
        """A decoder layer for the contexts of a block."""
        layer = self.model.decoder.layers[node.layer - 1]
        norm, crossed = layer.forward_residual.norm, isinstance(layer, DecoderLayer)
        first = self.first(node)
        keys = self.keys(layer.cross_attention, node.cross, self.model.encoder_norm) if crossed else None

        def rest(state: State, normed: State, some: Tensor) -> State:
            if crossed:
                asked = self.query(layer.cross_attention, layer.cross_residual.norm, normed)
                state = self.attend(layer.cross_attention, state, asked, keys, some)
                normed = self.rounding.normed(norm, *state)
            return self.forward(layer, state, normed)

        return Layered(first, rest)

    def first(self, node: Node) -> Callable[[Tensor], tuple[State, State]]:
        """A layer's first step; in a decoder-only model all keys are under one softmax."""
        layer, (before, at, kept) = self.model.decoder.layers[node.layer - 1], self.used(node.before)
        crossed = isinstance(layer, DecoderLayer)
        norm, after = layer.self_residual.norm, layer.cross_residual.norm if crossed else layer.forward_residual.norm
        keys = self.keys(layer.self_attention, node.own if crossed else (*node.own, *node.cross), norm)
        queries, errors = self.once((layer, node.before), kept, lambda: self.queries(layer, before))

        def first(some: Tensor) -> tuple[State, State]:
            rows = at[some]
            state = before.states.index_select(0, rows), before.errors[rows]
            asked = queries.index_select(0, rows), errors[rows]
            state = self.attend(layer.self_attention, state, asked, keys, some)
            return state, self.rounding.normed(after, *state)

        return first

    def queries(self, layer: DecoderLayer | Layer, part: Part) -> State:
        norm = layer.self_residual.norm
        return self.query(layer.self_attention, norm, self.rounding.normed(norm, part.states, part.errors))

    def query(self, attention: MultiHeadAttention, norm: nn.Module, normed: State) -> State:
        """Queries of normed states, and how far they can be off."""
        moved = self.rounding.mapped(attention.query, norm, normed, attention.heads)
        return self.turned(attention, "query")(normed[0]), moved

    def forward(self, layer: DecoderLayer | Layer, state: State, normed: State) -> State:
        """The feed-forward network with its residual."""
        (up, _, _, down), norm = layer.feed_forward, layer.forward_residual.norm
        assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
        hidden = up(normed[0]).relu_()
        x, off = state[0] + down(hidden), self.rounding.forward((up, down), norm, normed, hidden)
        return x, self.rounding.added(x, state[1] + off)

    def keys(self, attention: MultiHeadAttention, keys: Sequence[KeySeen], norm: nn.Module) -> Seen | None:
        """The keys and values of normed states, and which of them each context has (N, K); None without any."""
        if not keys:
            return None
        bias = torch.tensor(np.stack([np.frombuffer(own, np.float32) for own, _ in keys]))
        parts, rows, kept = zip(*(self.used(root) for _, root in keys), strict=True)
        if not (bias < torch.inf).all():
            raise InputError("no certificate: the bias has a value that is neither finite nor minus infinity")
        table = self.once((attention, keys), all(kept), lambda: self.table(attention, parts, bias, norm))
        starts = np.cumsum([0, *(len(part.states) for part in parts)]).tolist()
        return table, torch.stack([row + start for row, start in zip(rows, starts, strict=False)], 1)

    def table(self, attention: MultiHeadAttention, parts: Sequence[Part], bias: Tensor, norm: nn.Module) -> Keys:
        """All that the keys can be: key, value and the squared lengths of both by head, (R, 2 D + 2 H).

        Where no head sees two, what a key adds to a state instead: (R, D). The bias of the slots is (K, H).
        """
        states, errors = torch.cat([part.states for part in parts]), torch.cat([part.errors for part in parts])
        heads, bias = attention.heads, bias.to(states)
        opened = bias > -torch.inf
        several = bool((opened.sum(0) > 1).any())
        sizes = torch.tensor([len(part.states) for part in parts], device=self.device)
        slots = torch.arange(len(parts), device=self.device).repeat_interleave(sizes)

        def some(chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            normed = self.rounding.normed(norm, states[chosen], errors[chosen])
            moved = torch.cat([self.rounding.mapped(x, norm, normed) for x in (attention.key, attention.value)], 1)
            key, value = (self.turned(attention, name)(normed[0]) for name in ("key", "value"))
            squares = torch.cat([by_head(x.square(), heads) for x in (key, value)], 1)
            if several:
                return torch.cat([key, value, squares], 1), moved, squares
            seen = opened[slots[chosen]].to(value).repeat(1, value.shape[1] // heads)
            return (value * seen) @ self.turned(attention, "out").weight.T, moved, squares

        made = in_threads(self.threads, some, torch.arange(len(states), device=self.device).split(CONTEXTS_AT_ONCE))
        table, moved, squares = map(torch.cat, zip(*made, strict=True))
        return Keys(table, moved, bias, Sizes.of(squares, bias))

    def attend(
        self, attention: MultiHeadAttention, state: State, query: State, seen: Seen | None, chosen: Tensor
    ) -> State:
        """States (chosen, D) with what attention of queries (chosen, D) adds to them."""
        (x, error), rounding, out = state, self.rounding, attention.out
        if seen is None:
            x = x + out.bias
            return x, rounding.added(x, error)
        keys, rows = seen[0], seen[1][chosen]
        moved = keys.moved[rows]
        if keys.sizes.many.any():
            means, *seen_by = mixed(query[0], keys.table, rows, keys.bias)
            change = rounding.of_means(attention, keys.sizes, query[1], moved, seen_by)
            x = x + self.turned(attention, "out")(means)
        else:
            change = rounding.of_values(out, keys.sizes, moved[..., 1])
            added = keys.table.index_select(0, rows.flatten()).unflatten(0, rows.shape).sum(1)
            x = x + (added + out.bias)
        return x, rounding.added(x, error + change)
