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
        """Those of the tokens `first` to `last` - 1: (head, last - first, last), like the queries (row, head, ...)."""
        raise NotImplementedError

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        """The few open keys of all tokens, or None if they are not few."""
        return None

    def same_as(self, layer: int) -> int:
        """The first of the layers up to this one that follow each other and have the same bias."""
        return layer

    def positions(self, count: int) -> Tensor | None:
        """The positions of so many tokens (token,), or None if they are those that the model counts."""
        return None


@dataclass(frozen=True)
class ProblemBias(SequenceBias):
    """A bias on a problem and its answer."""

    bias: Bias
    layout: Layout
    period: int | None = None  # of cyclic positions

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        added, tokens = values(self.bias, self.layout, layer, like.shape[1], like.device), token_count(self.layout)
        rows = slice(first, last)
        part = added.rows(rows).dense(tokens) if isinstance(added, OpenKeys) else added[:, rows]
        return part[:, :, :last].to(like.dtype)

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        added = values(self.bias, self.layout, layer, heads, device)
        return added if isinstance(added, OpenKeys) else None

    def positions(self, count: int) -> Tensor | None:
        return None if self.period is None else cyclic_positions(self.layout, self.period)[:count]


@lru_cache(BIASES_KEPT)
@torch.inference_mode(False)  # used in training later
def values(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device) -> OpenKeys | Tensor:
    """Each token's few open keys in a layer, or else the matrix (head, token, token); the largest of a query is 0."""
    keys = open_bias(bias, layout, layer, heads)
    if keys is None:
        return leveled(dense_bias(bias, layout, layer, heads)).to(device)
    return OpenKeys(keys.index, leveled(keys.value)).to(device)


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
    cached: int  # tokens in the cache
    length: int  # tokens in all
    mask: Tensor | None = None  # (row, token): False where padding stands; None: nowhere
    finish: Callable[[Any], None] | None = None  # what is done with the model's output
    output_attentions: bool = False
    last_bias: tuple[int, Tensor] | None = None  # a layer and its bias, which the next ones with the same bias share

    def bias(self, layer: int, query: Tensor, key: Tensor) -> Tensor:
        """What is added to a layer's logits: (row or 1, head, query, key), like the queries (row, head, token, size).

        InputError for queries and keys that are not those of the pass.
        """
        if query.shape[2] != self.length - self.cached or key.shape[2] != self.length:
            raise InputError(
                "a bias needs the whole sequence, or a cache that grows and keeps all tokens before: give one of both"
            )
        first = self.biases[0].same_as(layer)
        if self.last_bias is None or self.last_bias[0] != first:
            self.last_bias = first, self.bias_of_layer(first, query)
        return self.last_bias[1]

    def bias_of_layer(self, layer: int, like: Tensor) -> Tensor:
        if self.mask is None:
            return torch.stack([bias.rows(layer, like, self.cached, self.length) for bias in self.biases])
        padded = like.new_full((len(self.biases), *like.shape[1:3], self.length), CLOSED)
        for row, bias, mask in zip(padded, self.biases, self.mask.to(like.device), strict=True):
            keys = mask.nonzero()[:, 0]
            first = int((keys < self.cached).sum())
            row[:, (keys[first:] - self.cached)[:, None], keys] = bias.rows(layer, like, first, len(keys))
        return padded

    def positions(self) -> Tensor | None:
        """The positions of the tokens to compute (row or 1, token), 0 for padding; None for those the model counts."""
        masks = torch.ones(len(self.biases), self.length, dtype=torch.bool) if self.mask is None else self.mask.cpu()
        padded = torch.zeros(masks.shape, dtype=torch.long)
        for row, bias, mask in zip(padded, self.biases, masks, strict=True):
            positions = bias.positions(int(mask.sum()))
            if positions is None:
                return None
            row[mask] = positions
        return padded[:, self.cached :]


def pass_of_problems(bias: Bias, layout: object, period: int | None, rows: Tensor, cached: int, mask: Any) -> Pass:
    """The pass of `rows` (row, token, ...) that are a problem of one layout each, after `cached` tokens in the cache.

    A prompt that is fed in token by token is one, too; several tokens that are not even the problem are too few.
    InputError for other rows, and for an attention mask with padding.
    """
    layout, count = as_layout(layout), cached + rows.shape[1]
    if mask is not None and not (isinstance(mask, Tensor) and mask.shape == (len(rows), count) and bool(mask.all())):
        raise InputError(
            f"under a bias of problems alone rows have no padding, and the cache grows with them: give {count} tokens "
            "of one layout in each row, or a bias of text, under which problems of any widths stand beside each other"
        )
    if (not cached and 1 < count <= layout.source_length) or count > token_count(layout):
        raise InputError(
            f"a sequence has {count} tokens and the layout {layout.source_length} of the problem and "
            f"{token_count(layout)} in all: set the handle's layout to that of these problems, with one token for each "
            "digit, which a tokenizer must not merge"
        )
    return Pass((ProblemBias(bias, layout, period),), cached, count)


def as_layout(layout: object) -> Layout:
    """The layout itself; InputError for what is none."""
    if isinstance(layout, Layout):
        return layout
    raise InputError(
        f"give a Layout, not {layout!r}; with a bias of text instead the tokenizer alone: "
        "attach(model, bias, tokenizer=tokenizer)"
    )
