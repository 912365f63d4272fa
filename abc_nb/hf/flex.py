"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which computes only those blocks that have open keys.

Queries and keys behind the layout's tokens see nothing and are not seen, so that a sequence can be padded. `offset` is
the number of tokens before the first query, as while generating with a cache.
`PackedText` is the same for rows of text with problems in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import token_count
from abc_nb.bias.spans import SpanLines, positions
from abc_nb.common.errors import InputError
from abc_nb.hf.rows import values
from abc_nb.problems.layouts import Layout
from abc_nb.problems.spans import ProblemSpan

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from abc_nb.hf.text import Reader

At = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key
Device = torch.device | str
BLOCK, LEAST = 128, 2**12  # queries and keys of a block; numbers that are looked up


def score_mod(bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", offset: int = 0) -> ScoreMod:
    """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
    return biased(bias_at(values(bias, layout, layer, heads, device), offset))


def block_mask(
    bias: Bias,
    layout: Layout,
    layer: int,
    heads: int,
    device: Device = "cpu",
    tokens: int | None = None,
    offset: int = 0,
) -> BlockMask:
    """What `create_block_mask` makes of its `mask_mod` for a sequence of so many tokens, padding included.

    Its queries are the tokens from `offset` on. In time and memory linear in the length where the bias leaves few keys
    open; `create_block_mask` takes its square.
    """
    own = values(bias, layout, layer, heads, device)
    return blocks(own, tokens or token_count(layout), offset, where_open(bias_at(own, offset)))


def blocks(bias: OpenKeys | Tensor, tokens: int, offset: int, mask: At | None = None) -> BlockMask:
    """The blocks in which queries from `offset` to `tokens` have open keys; without a mask all cells are computed."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, columns = (-(-count // BLOCK) for count in (tokens - offset, tokens))
    if isinstance(bias, OpenKeys):
        few = bias.rows(slice(offset, tokens))
        head, query, slot = ((few.value > CLOSED) & (few.index < tokens)).nonzero().unbind(1)
        found = torch.zeros(len(few.value), rows, columns, dtype=torch.bool, device=few.value.device)
        found[head, query // BLOCK, few.index[query, slot] // BLOCK] = True
    else:
        opened = bias[:, offset:tokens, :tokens] > CLOSED
        opened = pad(opened, (0, columns * BLOCK - opened.shape[2], 0, rows * BLOCK - opened.shape[1]))
        found = opened.unflatten(2, (-1, BLOCK)).any(3).unflatten(1, (-1, BLOCK)).any(2)
    order = found.int().argsort(dim=2, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(
        found.sum(2, dtype=torch.int32)[None],
        order[None],
        BLOCK_SIZE=BLOCK,
        mask_mod=mask,
        seq_lengths=(tokens - offset, tokens),
    )


def where_open(added: At) -> At:
    """Where what is added to logits leaves keys open."""
    return lambda batch, head, query, key: added(batch, head, query, key) > CLOSED


def biased(added: At, softcap: float | None = None) -> ScoreMod:
    """Logits, capped first if a model does that (Gemma 2), and what is added to them."""

    def changed(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        capped = score if softcap is None else softcap * (score / softcap).tanh()
        return capped + added(batch, head, query, key)

    return changed


def bias_at(bias: OpenKeys | Tensor, offset: int = 0) -> At:
    """The bias of (any batch, head, query, key), given by integers of any one shape.

    Slots are gone through one by one, since FlexAttention's kernels take no sum over an axis; their number is a power
    of two, so that few kernels are compiled. For a head that the bias does not have it is not a number.
    """
    numbers, index, slots = bias, None, 1
    if isinstance(bias, OpenKeys):
        slots = 1 << (bias.index.shape[1] - 1).bit_length()
        more = 0, slots - bias.index.shape[1]
        index, numbers = flat(pad(bias.index, more)), pad(bias.value, more, value=CLOSED)
    assert isinstance(numbers, Tensor)
    tokens, before = (torch.as_tensor(count, device=numbers.device) for count in (numbers.shape[1], offset))
    value = flat(numbers)

    def added(_: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query = query + before
        known = (query < tokens) & (key < tokens)
        query, key = query.clamp(max=tokens - 1), key.clamp(max=tokens - 1)
        if index is None:
            return torch.where(known, value[(head * tokens + query) * tokens + key], CLOSED)
        total = torch.full_like(value[query], CLOSED)
        for slot in range(slots):
            here = known & (index[query * slots + slot] == key)
            total = torch.maximum(total, torch.where(here, value[(head * tokens + query) * slots + slot], CLOSED))
        return total

    return added


def flat(numbers: Tensor) -> Tensor:
    """The same numbers along one axis, whose length is a power of two and a constant of what is compiled.

    Compiled for a processor, a kernel can take another length for that of its own blocks (torch 2.13). A constant is
    no length, and since it is a power of two, few of them are compiled.
    """
    from torch._dynamo import mark_static

    room = max(LEAST, 1 << (numbers.numel() - 1).bit_length())
    behind = float("nan") if numbers.is_floating_point() else -1
    found = pad(numbers.flatten(), (0, room - numbers.numel()), value=behind)
    mark_static(found)
    return found


# ---- text with problems in it


class PackedText:
    """Rows of tokens in which documents stand side by side, under a bias of text with problems in it.

    A token sees its own document alone. `ids` are the tokens (row, token), and `documents` has the number of each
    token's document, and -1 for padding, which sees nothing and is not seen. A problem ends where its document ends.
    """

    def __init__(self, bias: SpanLines, reader: Reader, ids: Tensor, documents: Tensor) -> None:
        if ids.ndim != 2 or ids.shape != documents.shape or documents.is_floating_point():
            raise InputError(
                f"documents are integers (row, token), one for each of the tokens {(*ids.shape,)}, "
                f"not {(*documents.shape,)}"
            )
        self.bias, self.ids = bias, ids
        self.texts = list[tuple[slice, list[ProblemSpan]]]()  # where each document stands in all rows, and its problems
        rows = torch.arange(len(ids))[:, None].expand_as(ids)
        known = torch.stack([rows, documents.cpu()]).flatten(1)
        (_, numbers), counts = known.unique_consecutive(dim=1, return_counts=True)
        tokens, first = ids.flatten().tolist(), 0
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            where = slice(first, first + count)
            if number >= 0:
                self.texts.append((where, reader.spans(tokens[where])))
            first += count
        self.added = cache(self.of_layer)

    def positions(self) -> Tensor:
        """The `position_ids` (row, token); each document begins at 0, and padding has 0."""
        found = torch.zeros(self.ids.numel(), dtype=torch.long)
        for where, spans in self.texts:
            found[where] = positions(spans, where.stop - where.start, self.bias.period)
        return found.view(self.ids.shape).to(self.ids.device)

    def score_mod(self, layer: int) -> ScoreMod:
        """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
        return biased(self.added(layer))

    def mask_mod(self, layer: int) -> At:
        """Which keys are open, for `create_block_mask(mask_mod, rows, heads, tokens, tokens)`."""
        return where_open(self.added(layer))

    def of_layer(self, layer: int) -> At:
        """What is added to the logits of (row, head, query, key)."""
        tokens, device = self.ids.shape[1], self.ids.device
        documents, inside = torch.full((self.ids.numel(),), -1), torch.zeros(self.ids.numel(), dtype=torch.bool)
        for number, (where, spans) in enumerate(self.texts):  # two documents of the same number are two
            documents[where] = number
            for span in spans:
                inside[where.start + span.start : where.start + span.end] = True
        documents, inside = documents.to(device), inside.to(device)
        of_problem = bias_at(self.few(layer).to(device))

        def added(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            here, there = row * tokens + query, row * tokens + key
            own = (documents[here] == documents[there]) & (documents[here] >= 0)
            text = torch.where(key <= query, 0.0, CLOSED)
            return torch.where(own, torch.where(inside[here], of_problem(row, head, here, there), text), CLOSED)

        return added

    def few(self, layer: int) -> OpenKeys:
        """The open keys of the tokens in problems, of all rows one after the other."""
        parts = [
            (where.start + span.start, keys_of_span(self.bias, span, layer))
            for where, spans in self.texts
            for span in spans
        ]
        slots = max((own.index.shape[1] for _, own in parts), default=1)
        index = torch.zeros(self.ids.numel(), slots, dtype=torch.long)
        value = torch.full((self.bias.heads, self.ids.numel(), slots), CLOSED)
        for start, own in parts:
            queries, count = slice(start, start + len(own.index)), own.index.shape[1]
            index[queries, :count] = own.index + start
            value[:, queries, :count] = own.value
        return OpenKeys(index, value)


def keys_of_span(bias: SpanLines, span: ProblemSpan, layer: int) -> OpenKeys:
    """The open keys of the tokens of a problem, which are counted from its first one."""
    count = torch.arange(span.end - span.start)
    if not span.finished:  # its tokens see themselves
        return OpenKeys(count[:, None], torch.zeros(bias.heads, len(count), 1))
    own = values(bias.of(span.pattern), span.layout, layer, bias.heads)
    rows = slice(len(count))
    return own.rows(rows) if isinstance(own, OpenKeys) else OpenKeys(count.expand(len(count), -1), own[:, rows, rows])
