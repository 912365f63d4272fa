"""Rows of a batch: which tokens of each are a problem's, and the bias and positions that follow from that.

A batch can hold problems of other widths, with padding on either side, as its attention mask says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED
from abc_nb.bias.sequence import cyclic_positions, token_count
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Rows:
    """The tokens that a forward pass computes, and those before them, which are in its cache.

    A token whose index is -1 is padding, or stands behind the end of its problem. It sees nothing, and no token
    sees it.
    """

    layouts: tuple[Layout, ...]  # of each row; a single one for all rows without padding
    index: Tensor | None  # (row, token): where a token stands in its own sequence; None: there is no padding
    before: int  # tokens in the cache
    tokens: int  # tokens in all
    counts: tuple[int, ...]  # tokens of each row that are no padding, or of all rows
    shifted: Tensor | None = None  # positions (row, token) of the tokens to compute, where padding stands before some

    def bias(self, matrix: Callable[[Layout], Tensor], keys: int) -> Tensor:
        """What is added to logits, (row or 1, head, query, key), from each layout's (head, token, token)."""
        more = (0, keys - self.tokens)  # a static cache has room for tokens to come
        if self.index is None:
            part = matrix(self.layouts[0])[None, :, self.before : self.tokens, : self.tokens]
            return pad(part, more, value=CLOSED) if any(more) else part
        parts = {layout: matrix(layout) for layout in self.layouts}
        like = parts[self.layouts[0]]
        found = like.new_full((len(self.layouts), len(like), self.tokens - self.before, keys), CLOSED)
        for layout, own in parts.items():
            rows = [row for row, each in enumerate(self.layouts) if each == layout]
            index = self.index[rows].to(own.device)
            query, key = index[:, self.before :, None], index[:, None, :]
            cells = own[:, query.clamp(min=0), key.clamp(min=0)].masked_fill((query < 0) | (key < 0), CLOSED)
            found[rows, :, :, : self.tokens] = cells.transpose(0, 1)
        return found

    def positions(self, period: int) -> Tensor:
        """The cyclic index of each token that is computed (row or 1, token)."""
        if self.index is None:
            return cyclic_positions(self.layouts[0], period)[None, self.before : self.tokens]
        index = self.index[:, self.before :].cpu()
        known = [cyclic_positions(layout, period) for layout in self.layouts]
        return torch.stack([own[at.clamp(min=0)] for own, at in zip(known, index, strict=True)])


def place(
    layouts: Sequence[Layout], mask: Tensor | None, size: tuple[int, int], before: int, last: Rows | None
) -> Rows:
    """The rows of a batch of `size` (rows, tokens to compute), after `before` tokens in the cache.

    `mask` (row, token) is 0 where padding stands, also in the cache. Layouts are one for all rows or one a row; rows
    that are repeated, as for beam search, repeat theirs. `last` are the rows of the pass before this one. Raises
    InputError for rows that do not fit their layouts.
    """
    batch, tokens = size[0], before + size[1]
    if mask is None and last is not None and last.index is not None and before == last.tokens:
        raise InputError("the tokens in the cache have padding: give the attention_mask of all tokens at every step")
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != (batch, tokens)):
        raise InputError(
            f"a bias takes an attention_mask (row, token) of {batch} x {tokens}, with 1 for tokens and 0 for padding, "
            "and a cache that grows with the sequence: generate without cache_implementation"
        )
    if batch % len(layouts):
        raise InputError(f"a batch has {batch} rows and the handle {len(layouts)} layouts: give one, or one for each")
    own = tuple(layout for layout in layouts for _ in range(batch // len(layouts)))
    if mask is None or bool(mask.all()):
        if len(set(own)) < 2:
            check((tokens,), own[:1], before, last)
            return Rows(own[:1], None, before, tokens, (tokens,))
        mask = torch.ones(batch, tokens)
    real = mask.bool()
    counts = tuple(real.sum(1).tolist())
    check(counts, own, before, last)
    ends = torch.tensor([token_count(layout) for layout in own], device=real.device)[:, None]
    index = real.cumsum(1) - 1
    moved = bool((real & (index != torch.arange(tokens, device=real.device)))[:, before:].any())
    shifted = index[:, before:].clamp(min=0) if moved else None
    return Rows(own, index.masked_fill(~real | (index >= ends), -1), before, tokens, counts, shifted)


def check(counts: tuple[int, ...], layouts: tuple[Layout, ...], before: int, last: Rows | None) -> None:
    """InputError for rows that are not of their layouts.

    A prompt that is fed in token by token is one, too; several tokens that are not even the problem are too few.
    While another row is still being answered, a finished one gets tokens behind its end, one in each pass.
    """
    grown = before > 0 or (last is not None and [count - 1 for count in counts] == list(last.counts))
    over = [count > token_count(layout) for count, layout in zip(counts, layouts, strict=True)]
    few = [before == 0 and 1 < count <= layout.source_length for count, layout in zip(counts, layouts, strict=True)]
    strict = not grown or all(over)
    wrong = [less or (more and strict) for less, more in zip(few, over, strict=True)]
    if any(wrong):
        count, layout = counts[wrong.index(True)], layouts[wrong.index(True)]
        raise InputError(
            f"a sequence has {count} tokens and the layout {layout.source_length} of the problem and "
            f"{token_count(layout)} in all: set the handle's layout to that of these problems, or to one for each row "
            "with the attention_mask where widths differ, with one token for each digit, which a tokenizer must not "
            "merge"
        )
