"""Rows of a batch: which tokens are a row's own and no padding, and the bias and positions that follow from that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import cyclic_positions, dense_bias, open_bias, token_count
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout

KEPT = 128  # layers' biases
# What is added to a layer's logits of a row's own tokens from a first to a last one: (head, tokens, tokens up to the
# last), like a tensor (row, head, ...).
Part = Callable[[int, Tensor, int, int], Tensor]


@dataclass(frozen=True)
class Rows:
    """The tokens that a forward pass computes, and those before them, which are in its cache.

    Padding can stand anywhere. It sees nothing, and no token sees it.
    """

    parts: tuple[Part, ...]  # of each row, or of all without padding
    real: Tensor | None  # (row, token): False where padding stands; None: nowhere
    before: int  # tokens in the cache
    tokens: int  # tokens in all
    positions: Tensor | None = None  # (row or 1, token) of those to compute; None: the model's own
    layout: Layout | None = None  # of all rows, without padding

    @property
    def counts(self) -> list[int]:
        """How many tokens of each row are no padding."""
        return [self.tokens] * len(self.parts) if self.real is None else [int(count) for count in self.real.sum(1)]

    def bias(self, layer: int, like: Tensor) -> Tensor:
        """What is added to logits: (row or 1, head, query, key)."""
        if self.real is None:
            found = [part(layer, like, self.before, self.tokens) for part in self.parts]
            return found[0][None] if len(found) == 1 else torch.stack(found)
        new = self.tokens - self.before
        padded = like.new_full((len(self.parts), like.shape[1], new, self.tokens), CLOSED)
        for row, part, real in zip(padded, self.parts, self.real.to(like.device), strict=True):
            keys = real.nonzero()[:, 0]
            first = int((keys < self.before).sum())
            row[:, (keys[first:] - self.before)[:, None], keys] = part(layer, like, first, len(keys))
        return padded


def part_of(bias: Bias, layout: Layout, layer: int, like: Tensor, first: int, last: int) -> Tensor:
    """The bias of a row that is one problem, and of what stands behind its end, as a `Part`."""
    own, tokens = values(bias, layout, layer, like.shape[1], like.device), token_count(layout)
    rows = slice(first, min(last, tokens))
    found = own.rows(rows).dense(tokens) if isinstance(own, OpenKeys) else own[:, rows]
    # Columns behind the last token are cut off, and rows and columns behind the layout are closed.
    more = last - tokens, last - first - found.shape[1]
    return pad(found, (0, more[0], 0, more[1]), value=CLOSED).to(like.dtype)


def leveled(bias: Tensor) -> Tensor:
    """A bias of the same effect: the largest number of each query is 0, so that no type is too small for them."""
    largest = bias.amax(-1, keepdim=True)
    return bias - largest.masked_fill(largest == CLOSED, 0.0)


@lru_cache(KEPT)
@torch.inference_mode(False)  # used in training later
def values(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str = "cpu") -> OpenKeys | Tensor:
    """Each token's few open keys in a layer, or else the matrix (head, token, token); the largest of a query is 0."""
    few = open_bias(bias, layout, layer, heads)
    if few is None:
        return leveled(dense_bias(bias, layout, layer, heads)).to(device)
    return OpenKeys(few.index, leveled(few.value)).to(torch.device(device))


def real_tokens(mask: object, size: tuple[int, int], before: int, last: Rows | None) -> Tensor | None:
    """Which tokens are no padding (row, token), also of those in the cache; None if all are.

    `size` is (rows, tokens to compute), and `last` are the rows of the pass before. InputError for another mask.
    """
    wanted = size[0], before + size[1]
    if mask is None and last is not None and last.real is not None and before == last.tokens:
        raise InputError("the tokens in the cache have padding: give the attention_mask of all tokens at every step")
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != wanted):
        raise InputError(
            f"a bias takes an attention_mask (row, token) of {wanted[0]} x {wanted[1]}, with 1 for tokens and 0 for "
            "padding, and a cache that grows with the sequence: generate without cache_implementation"
        )
    return None if mask is None or bool(mask.all()) else mask.bool()


def of_rows(numbers: Sequence[Tensor], real: Tensor | None, before: int) -> Tensor:
    """Numbers of rows' own tokens (token,) where these stand, from `before` on: (row, token); padding has 0.

    Tokens behind the last number have that one.
    """
    if real is None:
        return torch.stack([*numbers])[:, before:]
    found = torch.zeros(real.shape, dtype=torch.long)
    for row, own, where in zip(found, numbers, real.cpu(), strict=True):
        row[where] = own[torch.arange(int(where.sum())).clamp(max=len(own) - 1)]
    return found[:, before:]


def rows_of_layouts(
    bias: Bias,
    layouts: Sequence[Layout],
    period: int | None,
    size: tuple[int, int],
    before: int,
    real: Tensor | None,
    last: Rows | None,
) -> Rows:
    """Rows that are one problem each. Layouts are one for all, or one a row; rows that are repeated, as for beam
    search, repeat theirs. InputError for rows that do not fit them.
    """
    if size[0] % len(layouts):
        raise InputError(f"a batch has {size[0]} rows and the handle {len(layouts)} layouts: give one, or one for each")
    own = tuple(layout for layout in layouts for _ in range(size[0] // len(layouts)))
    own, count = own[:1] if real is None and len(set(own)) == 1 else own, before + size[1]
    one = own[0] if real is None and len(own) == 1 else None
    rows, where = Rows(tuple(partial(part_of, bias, layout) for layout in own), real, before, count, layout=one), None
    check(rows, own, last)
    if period is not None:
        where = of_rows([cyclic_positions(layout, period)[:count] for layout in own], real, before)
    elif real is not None and bool((real & ((~real).cumsum(1) > 0))[:, before:].any()):  # padding stands before some
        where = of_rows([torch.arange(token_count(layout)) for layout in own], real, before)
    return replace(rows, positions=where)


def check(rows: Rows, layouts: Sequence[Layout], last: Rows | None) -> None:
    """InputError for rows that are not of their layouts.

    A prompt that is fed in token by token is one, too; several tokens that are not even the problem are too few.
    While another row is still being answered, a finished one gets tokens behind its end, one in each pass.
    """
    grown = rows.before > 0 or (last is not None and [count - 1 for count in rows.counts] == last.counts)
    both = [*zip(rows.counts, layouts, strict=True)]
    answered = grown and any(count <= token_count(layout) for count, layout in both)
    for count, layout in both:
        few = not rows.before and 1 < count <= layout.source_length
        if few or (count > token_count(layout) and not answered):
            raise InputError(
                f"a sequence has {count} tokens and the layout {layout.source_length} of the problem and "
                f"{token_count(layout)} in all: set the handle's layout to that of these problems, or to one for each "
                "row with the attention_mask where widths differ, with one token for each digit, which a tokenizer "
                "must not merge"
            )
