"""Attention biases: what is added to the attention logits, as values.

A bias is a frozen dataclass. It knows, for any layout, the dense matrix of every attention and,
where few keys are open to a query, those keys alone (`OpenKeys`), so that cost is linear in length.
In self- and cross-attention row `i` is the query that predicts output token `i`. In source attention, which only a
decoder-only model has, row `i` is the token of the problem in column `i`. Minus infinity closes a key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout
from abc_nb.problems.text import Pattern, ProblemSpan, spans_in

# Outputs to outputs, outputs to the problem, and the problem to itself. In a decoder-only model "self" and "cross" are
# two parts of one attention, under one softmax.
Attention = Literal["self", "cross", "source"]
ENCODER_DECODER: tuple[Attention, ...] = ("self", "cross")  # the attentions of an encoder-decoder
CLOSED = float("-inf")


@dataclass(frozen=True)
class OpenKeys:
    """The open keys of each query; closed slots are at minus infinity.

    A key may stand in several slots of a query: attention sees it once, with the largest of their values.
    """

    index: Tensor  # (query, slots), integer: the keys, the same for all heads
    value: Tensor  # (heads or 1, query, slots), added to the logits

    def dense(self, keys: int) -> Tensor:
        """The same as a matrix (heads or 1, query, keys); of a key in several slots the largest value counts."""
        matrix = self.value.new_full((*self.value.shape[:2], keys), CLOSED)
        return matrix.scatter_reduce(2, self.index.expand_as(self.value), self.value, "amax")

    def distinct(self) -> "OpenKeys":
        """The same with each key in one slot: its largest value stands in the first one, and the others are closed."""
        first = (self.index[:, :, None] == self.index[:, None, :]).int().argmax(-1)  # (query, slots)
        closed = torch.full_like(self.value, CLOSED)
        return OpenKeys(self.index, closed.scatter_reduce(2, first.expand_as(closed), self.value, "amax"))

    def few(self, keys: int) -> bool:
        """Whether gathering is faster than the dense matrix (measured: from three keys a slot on)."""
        return 3 * self.index.shape[1] <= keys

    def rows(self, rows: slice) -> "OpenKeys":
        return OpenKeys(self.index[rows], self.value[:, rows])

    def to(self, device: torch.device) -> "OpenKeys":
        return OpenKeys(self.index.to(device), self.value.to(device))


Added = Tensor | OpenKeys | None  # what is added to logits: a matrix (heads or 1, query, key), open keys or nothing


def key_count(layout: Layout, attention: Attention) -> int:
    if not isinstance(layout, Layout) or attention not in get_args(Attention):
        possible = ", ".join(get_args(Attention))
        raise InputError(f"a bias is made for a Layout and one of {possible}, not for {layout!r} and {attention!r}")
    return layout.target_length if attention == "self" else layout.source_length


def query_count(layout: Layout, attention: Attention) -> int:
    return layout.source_length if attention == "source" else layout.target_length


def check_order(layout: Layout) -> None:
    """InputError for a layout in which a bias that slides to the left by a place at each step goes the wrong way."""
    if layout.answer != "units first" or any(operand.stride < 0 for operand in layout.operands):
        raise InputError("this bias wants operands with the units last and answers with the units first: take Lines")


@dataclass(frozen=True)
class Bias:
    """The interface of all biases; this one adds nothing, but no token sees one that comes after it.

    A bias of problems, as `Window` and `Lines`, has `open_keys` or `dense` of its own. A bias of text, as `SpanLines`,
    has `rows`, `patterns` and `period`.
    """

    # ---- of a problem, by its layout

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        """The open keys, or None if a query's open keys are not few."""
        return None

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor | None:
        """The bias as a (heads or 1, query, key) matrix, or None if it is zero everywhere."""
        keys = self.open_keys(layout, attention, layer)
        if keys is not None:
            return keys.dense(key_count(layout, attention))
        return None if attention == "cross" else causal(query_count(layout, attention))

    def opened(self, layout: Layout, attention: Attention, layer: int) -> Tensor:
        """Which keys a query may look at: booleans (heads or 1, query, key)."""
        matrix = self.dense(layout, attention, layer, heads=1)
        if matrix is None:
            return torch.ones(1, query_count(layout, attention), key_count(layout, attention), dtype=torch.bool)
        return matrix > CLOSED

    # ---- of a row of text, in which problems are found

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The forms of problems that it finds in a text."""
        return ()

    @property
    def period(self) -> int:
        """The positions that a problem takes in a text."""
        return 1

    def spans(self, text: str) -> list[ProblemSpan]:
        """The problems of a text that this bias is about."""
        return spans_in(text, self.patterns)

    def rows(self, spans: Sequence[ProblemSpan], layer: int, first: int, last: int) -> Tensor:
        """What is added to the logits of the tokens `first` to `last` - 1 of a text: (heads or 1, last - first, last).

        `spans` are the problems in the text. Raises InputError for a bias of problems alone.
        """
        raise InputError(f"{type(self).__name__} is no bias of text: it needs the layout of a problem")

    def lines_of(self, pattern: Pattern) -> Any:
        """The `Lines` of a pattern's problems in a text; InputError for a bias that has none."""
        raise InputError(f"{type(self).__name__} is no bias of text: it knows no problems as {pattern.form}")

    def same_as(self, layer: int) -> int:
        """The lowest layer whose bias in a text is that of this layer, and of all layers between."""
        return layer


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept, and used in training later
def causal(length: int) -> Tensor:
    """Zero on and below the diagonal, minus infinity above: (1, length, length)."""
    return causal_rows(0, length)


def causal_rows(first: int, last: int) -> Tensor:
    """The same of the tokens `first` to `last` - 1 alone: (1, last - first, last)."""
    return torch.full((last - first, last), CLOSED).triu(first + 1)[None]


@dataclass(frozen=True)
class Causal(Bias):
    """No bias beyond causality: no token sees one that comes after it, neither in a problem nor in a text."""

    def rows(self, spans: Sequence[ProblemSpan], layer: int, first: int, last: int) -> Tensor:
        return causal_rows(first, last)
