"""A forward pass under a bias: the tokens of its rows, and what follows from where they stand: bias and positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import cyclic_positions, dense_bias, open_bias, token_count
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout

BIASES_KEPT = 128  # layers' biases


class SequenceBias:
    """What is added to the attention logits of one sequence of tokens without padding.

    The largest number of each query is 0, so that no type of numbers is too small for them.
    """

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        """Of the tokens `first` to `last` - 1: (head, last - first, last), like queries (row, head, ...)."""
        raise NotImplementedError

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        """The few open keys of all tokens, or None if they are not few."""
        return None

    def same_as(self, layer: int) -> int:
        """The first of the layers up to this one that follow each other and have the same bias."""
        return layer

    def positions(self, count: int) -> Tensor | None:
        """Where so many tokens stand (token,), or None if that is where the model counts them."""
        return None


@dataclass(frozen=True)
class OfProblem(SequenceBias):
    """A bias on a problem and its answer."""

    bias: Bias
    layout: Layout
    period: int | None = None  # of cyclic positions

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        whole, tokens = values(self.bias, self.layout, layer, like.shape[1], like.device), token_count(self.layout)
        chosen = slice(first, last)
        part = whole.rows(chosen).dense(tokens) if isinstance(whole, OpenKeys) else whole[:, chosen]
        return part[:, :, :last].to(like.dtype)

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        whole = values(self.bias, self.layout, layer, heads, device)
        return whole if isinstance(whole, OpenKeys) else None

    def positions(self, count: int) -> Tensor | None:
        return None if self.period is None else cyclic_positions(self.layout, self.period)[:count]


@lru_cache(BIASES_KEPT)
@torch.inference_mode(False)  # used in training later
def values(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str = "cpu") -> OpenKeys | Tensor:
    """Each token's few open keys in a layer, or else the matrix (head, token, token); the largest of a query is 0."""
    few = open_bias(bias, layout, layer, heads)
    if few is None:
        return leveled(dense_bias(bias, layout, layer, heads)).to(device)
    return OpenKeys(few.index, leveled(few.value)).to(torch.device(device))


def leveled(bias: Tensor) -> Tensor:
    """A bias of the same effect, of which the largest number of each query is 0."""
    largest = bias.amax(-1, keepdim=True)
    return bias - largest.masked_fill(largest == CLOSED, 0.0)


@dataclass
class Pass:
    """The tokens that a forward pass computes, and those before them, which are in its cache.

    Padding can stand anywhere. It sees nothing, and no token sees it. A pass belongs to one thread.
    """

    biases: tuple[SequenceBias, ...]  # of each row, or of all
    before: int  # tokens in the cache
    tokens: int  # tokens in all
    real: Tensor | None = None  # (row, token): False where padding stands; None: nowhere
    finish: Callable[[Any], None] | None = None  # what is done with the model's output
    weights_wanted: bool = False
    made: tuple[int, Tensor] | None = None  # the bias of the last layer, which others with the same bias share

    def bias(self, layer: int, query: Tensor, key: Tensor) -> Tensor:
        """What is added to a layer's logits: (row or 1, head, query, key), like the queries (row, head, token, size).

        InputError for queries and keys that are not those of the pass.
        """
        if query.shape[2] != self.tokens - self.before or key.shape[2] != self.tokens:
            raise InputError(
                "a bias needs the whole sequence, or a cache that grows and keeps all tokens before: give one of both"
            )
        first = self.biases[0].same_as(layer)
        if self.made is None or self.made[0] != first:
            self.made = first, self.of_layer(first, query)
        return self.made[1]

    def of_layer(self, layer: int, like: Tensor) -> Tensor:
        if self.real is None:
            return torch.stack([bias.rows(layer, like, self.before, self.tokens) for bias in self.biases])
        padded = like.new_full((len(self.biases), *like.shape[1:3], self.tokens), CLOSED)
        for row, bias, real in zip(padded, self.biases, self.real.to(like.device), strict=True):
            keys = real.nonzero()[:, 0]
            first = int((keys < self.before).sum())
            row[:, (keys[first:] - self.before)[:, None], keys] = bias.rows(layer, like, first, len(keys))
        return padded

    def positions(self) -> Tensor | None:
        """Where the tokens to compute stand (row or 1, token), padding at 0; None: where the model counts them."""
        real = torch.ones(len(self.biases), self.tokens, dtype=torch.bool) if self.real is None else self.real.cpu()
        padded = torch.zeros(real.shape, dtype=torch.long)
        for row, bias, of_row in zip(padded, self.biases, real, strict=True):
            where = bias.positions(int(of_row.sum()))
            if where is None:
                return None
            row[of_row] = where
        return padded[:, self.before :]


def of_problem(bias: Bias, layout: object, period: int | None, rows: Tensor, before: int, mask: Any) -> Pass:
    """The pass of `rows` (row, token, ...) that are a problem of one layout each, after `before` tokens in the cache.

    A prompt that is fed in token by token is one, too; several tokens that are not even the problem are too few.
    InputError for other rows, and for an attention mask with padding.
    """
    known, count = as_layout(layout), before + rows.shape[1]
    if mask is not None and not (isinstance(mask, Tensor) and mask.shape == (len(rows), count) and bool(mask.all())):
        raise InputError(
            f"under a bias of problems alone rows have no padding, and the cache grows with them: give {count} tokens "
            "of one layout in each row, or a bias of text, under which problems of any widths stand beside each other"
        )
    if (not before and 1 < count <= known.source_length) or count > token_count(known):
        raise InputError(
            f"a sequence has {count} tokens and the layout {known.source_length} of the problem and "
            f"{token_count(known)} in all: set the handle's layout to that of these problems, with one token for each "
            "digit, which a tokenizer must not merge"
        )
    return Pass((OfProblem(bias, known, period),), before, count)


def as_layout(layout: object) -> Layout:
    """The same; InputError for what is no layout."""
    if isinstance(layout, Layout):
        return layout
    raise InputError(
        f"give a Layout, not {layout!r}; with a bias of text instead the tokenizer alone: "
        "attach(model, bias, spans=tokenizer)"
    )
