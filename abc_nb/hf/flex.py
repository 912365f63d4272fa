"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which computes only those blocks that have open keys.

Queries and keys behind the layout's tokens see nothing and are not seen, so that a sequence can be padded. `offset` is
the number of tokens before the first query, as while generating with a cache; a tensor can be changed in place.
`PackedText` is the same for rows of text with problems in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import dense_bias, leveled, open_bias, token_count
from abc_nb.bias.spans import SpanLines, matrix_of, opened, positions
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout
from abc_nb.problems.spans import ProblemSpan

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from abc_nb.hf.text import Reader

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key
Device = torch.device | str
BLOCK, LEAST = 128, 2**12  # queries and keys of a block; numbers that are looked up


def mask_mod(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", offset: int | Tensor = 0
) -> MaskMod:
    """Which keys are open in one layer, for `create_block_mask(mask_mod, None, heads, queries, keys)`."""
    added = bias_at(Table.of(values(bias, layout, layer, heads), device), offset)

    return lambda batch, head, query, key: added(head, query, key) > CLOSED


def score_mod(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", offset: int | Tensor = 0
) -> ScoreMod:
    """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
    return biased(Table.of(values(bias, layout, layer, heads), device), offset)


def block_mask(
    bias: Bias,
    layout: Layout,
    layer: int,
    heads: int,
    device: Device = "cpu",
    tokens: int | None = None,
    offset: int = 0,
) -> BlockMask:
    """What `create_block_mask` makes of `mask_mod` for a sequence of so many tokens, padding included.

    Its queries are the tokens from `offset` on. In time and memory linear in the length where the bias leaves few keys
    open; `create_block_mask` takes its square.
    """
    tokens = tokens or token_count(layout)
    mask = mask_mod(bias, layout, layer, heads, device, offset)
    return blocks(values(bias, layout, layer, heads), tokens, offset, device, mask)


def blocks(bias: OpenKeys | Tensor, tokens: int, offset: int, device: Device, mask: MaskMod | None = None) -> BlockMask:
    """The blocks in which queries from `offset` to `tokens` have open keys; without a mask all cells are computed."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, columns = (-(-count // BLOCK) for count in (tokens - offset, tokens))
    if isinstance(bias, OpenKeys):
        few = bias.rows(slice(offset, tokens))
        head, query, slot = ((few.value > CLOSED) & (few.index < tokens)).nonzero().unbind(1)
        found = torch.zeros(len(few.value), rows, columns, dtype=torch.bool)
        found[head, query // BLOCK, few.index[query, slot] // BLOCK] = True
    else:
        opened = bias[:, offset:tokens, :tokens] > CLOSED
        opened = pad(opened, (0, columns * BLOCK - opened.shape[2], 0, rows * BLOCK - opened.shape[1]))
        found = opened.unflatten(2, (-1, BLOCK)).any(3).unflatten(1, (-1, BLOCK)).any(2)
    order = found.int().argsort(dim=2, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(
        found.sum(2, dtype=torch.int32)[None].to(device),
        order[None].to(device),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask,
        seq_lengths=(tokens - offset, tokens),
    )


def values(bias: Bias, layout: Layout, layer: int, heads: int) -> OpenKeys | Tensor:
    """Each token's few open keys, or else the matrix."""
    few = open_bias(bias, layout, layer, heads)
    return dense_bias(bias, layout, layer, heads) if few is None else few


@dataclass(frozen=True)
class Table:
    """A layer's bias, as FlexAttention's kernels look numbers up."""

    value: Tensor  # along one axis, as `flat` makes it: of (head, query, slot), or of (head, query, key)
    index: Tensor | None  # the keys of (query, slot)
    slots: int  # a power of two, so that few of them are compiled
    tokens: Tensor

    @classmethod
    def of(cls, bias: OpenKeys | Tensor, device: Device) -> Table:
        if not isinstance(bias, OpenKeys):
            return cls(flat(bias, device), None, 1, torch.tensor(bias.shape[1], device=device))
        tokens, slots = bias.index.shape
        room = 1 << (slots - 1).bit_length()
        index, value = pad(bias.index, (0, room - slots)), pad(bias.value, (0, room - slots), value=CLOSED)
        return cls(flat(value, device), flat(index, device), room, torch.tensor(tokens, device=device))


def biased(table: Table, offset: int | Tensor, softcap: float | None = None) -> ScoreMod:
    """Logits, capped first if a model does that (Gemma 2), and the bias."""
    added = bias_at(table, offset)

    def changed(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        capped = score if softcap is None else softcap * (score / softcap).tanh()
        return capped + added(head, query, key)

    return changed


def bias_at(table: Table, offset: int | Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The bias of (head, query, key), given by integers of any one shape.

    Slots are gone through one by one, since FlexAttention's kernels take no sum over an axis. For a head that the bias
    does not have it is not a number.
    """
    value, index, slots, tokens = table.value, table.index, table.slots, table.tokens
    before = torch.as_tensor(offset, device=value.device)

    def added(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
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


def flat(numbers: Tensor, device: Device) -> Tensor:
    """The same numbers along one axis, whose length is a power of two and a constant of what is compiled.

    Compiled for a processor, a kernel can take another length for that of its own blocks (torch 2.13). A constant is
    no length, and since it is a power of two, few of them are compiled.
    """
    from torch._dynamo import mark_static

    room = max(LEAST, 1 << (numbers.numel() - 1).bit_length())
    behind = float("nan") if numbers.is_floating_point() else -1
    found = pad(numbers.flatten(), (0, room - numbers.numel()), value=behind).to(device)
    mark_static(found)
    return found


# ---- text with problems in it


@dataclass(frozen=True)
class PackedText:
    """Rows of tokens in which documents stand side by side, under a bias of text with problems in it.

    A token sees its own document alone. `documents` has the number of each token's document, and -1 for padding, which
    sees nothing and is not seen. A problem ends where its document ends.
    """

    bias: SpanLines
    reader: Reader
    ids: Tensor  # (row, token)
    documents: Tensor  # (row, token)
    known: dict[int, Callable[..., Tensor]] = field(default_factory=dict, init=False, repr=False)  # `added`, by layer

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.documents.shape or self.documents.is_floating_point():
            raise InputError(
                f"documents are integers (row, token), one for each of the tokens {(*self.ids.shape,)}, "
                f"not {(*self.documents.shape,)}"
            )

    @cached_property
    def texts(self) -> list[tuple[slice, list[ProblemSpan]]]:
        """Where each document stands if rows follow each other, and its problems, counted from its first token."""
        rows = torch.arange(len(self.ids))[:, None].expand_as(self.ids)
        known = torch.stack([rows, self.documents.cpu()]).flatten(1)
        (_, numbers), counts = known.unique_consecutive(dim=1, return_counts=True)
        tokens, found, first = self.ids.flatten().tolist(), list[tuple[slice, list[ProblemSpan]]](), 0
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            where = slice(first, first + count)
            if number >= 0:
                found.append((where, self.reader.spans(tokens[where])))
            first += count
        return found

    def positions(self) -> Tensor:
        """The `position_ids` (row, token); each document begins at 0, and padding has 0."""
        found = torch.zeros(self.ids.numel(), dtype=torch.long)
        for where, spans in self.texts:
            found[where] = positions(spans, where.stop - where.start, self.bias.period)
        return found.view(self.ids.shape).to(self.ids.device)

    def score_mod(self, layer: int) -> ScoreMod:
        """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
        added = self.added(layer)
        return lambda score, row, head, query, key: score + added(row, head, query, key)

    def mask_mod(self, layer: int) -> MaskMod:
        """Which keys are open, for `create_block_mask(mask_mod, rows, heads, tokens, tokens)`."""
        added = self.added(layer)
        return lambda row, head, query, key: added(row, head, query, key) > CLOSED

    def added(self, layer: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """What is added to the logits of (row, head, query, key): score and mask of a layer share its tables."""
        if layer in self.known:
            return self.known[layer]
        tokens, device = self.ids.shape[1], self.ids.device
        documents, inside = torch.full((self.ids.numel(),), -1), torch.zeros(self.ids.numel(), dtype=torch.bool)
        for number, (where, spans) in enumerate(self.texts):  # two documents of the same number are two
            documents[where] = number
            for span in spans:
                inside[where.start + span.start : where.start + span.end] = True
        documents, inside = documents.to(device), inside.to(device)
        of_problem = bias_at(Table.of(self.few(layer), device), 0)

        def bias(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            here, there = row * tokens + query, row * tokens + key
            own = (documents[here] == documents[there]) & (documents[here] >= 0)
            text = torch.where(key <= query, 0.0, CLOSED)
            return torch.where(own, torch.where(inside[here], of_problem(head, here, there), text), CLOSED)

        self.known[layer] = bias
        return bias

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
    few = opened(bias.of(span.pattern), span.layout, layer, bias.heads)
    if few is None:
        matrix = matrix_of(bias.of(span.pattern), span.layout, layer, slice(len(count)))[:, :, : len(count)]
        return OpenKeys(count.expand(len(count), -1), leveled(matrix))
    few = few.rows(slice(len(count)))
    return OpenKeys(few.index, leveled(few.value))
