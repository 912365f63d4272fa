"""Rows of a batch: which tokens are a row's own and no padding, and the bias and positions that follow from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Bias
from abc_nb.bias.sequence import token_count
from abc_nb.common.errors import InputError
from abc_nb.hf.sequences import OfProblem, SequenceBias
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Rows:
    """The tokens that a forward pass computes, and those before them, which are in its cache.

    Padding can stand anywhere. It sees nothing, and no token sees it.
    """

    biases: tuple[SequenceBias, ...]  # of each row, or of all without padding
    real: Tensor | None  # (row, token): False where padding stands; None: nowhere
    before: int  # tokens in the cache
    tokens: int  # tokens in all

    @property
    def counts(self) -> list[int]:
        """How many tokens of each row are no padding."""
        return [self.tokens] * len(self.biases) if self.real is None else [int(count) for count in self.real.sum(1)]

    @property
    def alone(self) -> SequenceBias | None:
        """The bias of all rows, if it is one and there is no padding."""
        return self.biases[0] if self.real is None and len(self.biases) == 1 else None

    def bias(self, layer: int, like: Tensor) -> Tensor:
        """What is added to logits: (row or 1, head, query, key), like the queries (row, head, token, size)."""
        if self.real is None:
            return torch.stack([own.rows(layer, like, self.before, self.tokens) for own in self.biases])
        new = self.tokens - self.before
        padded = like.new_full((len(self.biases), like.shape[1], new, self.tokens), CLOSED)
        for row, own, real in zip(padded, self.biases, self.real.to(like.device), strict=True):
            keys = real.nonzero()[:, 0]
            first = int((keys < self.before).sum())
            row[:, (keys[first:] - self.before)[:, None], keys] = own.rows(layer, like, first, len(keys))
        return padded

    def positions(self) -> Tensor | None:
        """Where the tokens to compute stand (row or 1, token), padding at 0; None: where the model counts them."""
        known = [own.positions(count) for own, count in zip(self.biases, self.counts, strict=True)]
        of_rows = [own for own in known if own is not None]
        if self.real is None:
            return torch.stack(of_rows)[:, self.before :] if of_rows else None
        if not of_rows:
            if not (self.real & ((~self.real).cumsum(1) > 0))[:, self.before :].any():
                return None  # no padding stands before a token
            of_rows = [torch.arange(count) for count in self.counts]
        found = torch.zeros(self.real.shape, dtype=torch.long)
        for row, own, real in zip(found, of_rows, self.real.cpu(), strict=True):  # a token behind the end stays there
            row[real] = own[torch.arange(int(real.sum())).clamp(max=len(own) - 1)]
        return found[:, self.before :]


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


def as_layouts(layout: object) -> tuple[Layout, ...]:
    """One layout for all rows, or one for each; InputError for none."""
    many = layout if isinstance(layout, Sequence) else [layout]
    found = tuple(each for each in many if isinstance(each, Layout))
    if not found or len(found) < len(many):
        raise InputError(
            f"give a Layout, or a list of one for each row, not {layout!r}; with a bias of text instead the tokenizer "
            "alone: attach(model, bias, spans=tokenizer)"
        )
    return found


def rows_of_layouts(
    bias: Bias,
    layout: object,
    period: int | None,
    size: tuple[int, int],
    before: int,
    real: Tensor | None,
    last: Rows | None,
) -> Rows:
    """Rows that are one problem each; `size` is (rows, tokens to compute), and `last` are the rows of the pass before.

    Layouts are one for all, or one a row; rows that are repeated, as for beam search, repeat theirs. InputError for
    rows that do not fit them.
    """
    known = as_layouts(layout)
    if size[0] % len(known):
        raise InputError(f"a batch has {size[0]} rows and the handle {len(known)} layouts: give one, or one for each")
    layouts = [each for each in known for _ in range(size[0] // len(known))]
    if real is None and len(set(layouts)) == 1:
        layouts = layouts[:1]
    rows = Rows(tuple(OfProblem(bias, each, period) for each in layouts), real, before, before + size[1])
    check_lengths(rows, layouts, last)
    return rows


def check_lengths(rows: Rows, layouts: Sequence[Layout], last: Rows | None) -> None:
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
