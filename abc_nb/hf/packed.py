"""Text with problems in it for FlexAttention: several documents in a row, and padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, OpenKeys
from abc_nb.bias.sequence import leveled
from abc_nb.bias.spans import SpanLines, matrix_of, opened, positions
from abc_nb.common.errors import InputError
from abc_nb.hf.flex import MaskMod, ScoreMod, Table, bias_at
from abc_nb.hf.text import Reader
from abc_nb.problems.spans import ProblemSpan


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
        """What is added to the logits of (row, head, query, key)."""
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
