"""Text with problems in it for FlexAttention: several documents in a row, and padding."""

from __future__ import annotations

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
    def spans(self) -> list[tuple[int, int, int, list[ProblemSpan]]]:
        """Row, first and last token plus one, and the problems of each document, counted from its first token."""
        found = list[tuple[int, int, int, list[ProblemSpan]]]()
        for row, (tokens, numbers) in enumerate(zip(self.ids.cpu(), self.documents.cpu(), strict=True)):
            first = 0
            runs, counts = numbers.unique_consecutive(return_counts=True)
            for number, count in zip(runs.tolist(), counts.tolist(), strict=True):
                if number >= 0:
                    spans = self.reader.spans(tokens[first : first + count].tolist())
                    found.append((row, first, first + count, spans))
                first += count
        return found

    def positions(self) -> Tensor:
        """The `position_ids` (row, token); each document begins at 0, and padding has 0."""
        found = torch.zeros(self.ids.shape, dtype=torch.long)
        for row, first, last, spans in self.spans:
            found[row, first:last] = positions(spans, last - first, self.bias.period)
        return found.to(self.ids.device)

    def score_mod(self, layer: int) -> ScoreMod:
        """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
        table, inside = Table.of(self.few(layer), self.ids.device), self.inside
        added, numbers, tokens = bias_at(table, 0), self.numbers, self.ids.shape[1]

        def changed(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            here, there = row * tokens + query, row * tokens + key
            own = (numbers[here] == numbers[there]) & (numbers[here] >= 0)
            text = torch.where(key <= query, 0.0, CLOSED)
            return score + torch.where(own, torch.where(inside[here], added(head, here, there), text), CLOSED)

        return changed

    def mask_mod(self, layer: int) -> MaskMod:
        """Which keys are open, for `create_block_mask(mask_mod, rows, heads, tokens, tokens)`."""
        score = self.score_mod(layer)

        def opened(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score(torch.zeros((), device=self.ids.device), row, head, query, key) > CLOSED

        return opened

    def few(self, layer: int) -> OpenKeys:
        """The open keys of the tokens in problems, of all rows one after the other."""
        rows, tokens = self.ids.shape
        parts = [
            (row * tokens + first + span.start, keys_of_span(self.bias, span, layer))
            for row, first, _, spans in self.spans
            for span in spans
        ]
        slots = max((own.index.shape[1] for _, own in parts), default=1)
        index = torch.zeros(rows * tokens, slots, dtype=torch.long)
        value = torch.full((self.bias.heads, rows * tokens, slots), CLOSED)
        for start, own in parts:
            queries, count = slice(start, start + len(own.index)), own.index.shape[1]
            index[queries, :count] = own.index + start
            value[:, queries, :count] = own.value
        return OpenKeys(index, value)

    @cached_property
    def numbers(self) -> Tensor:
        """The documents of all rows one after the other, counted; two with the same number are two."""
        found = torch.full(self.ids.shape, -1)
        for number, (row, first, last, _) in enumerate(self.spans):
            found[row, first:last] = number
        return found.flatten().to(self.ids.device)

    @cached_property
    def inside(self) -> Tensor:
        """Whether a token stands in a problem, of all rows one after the other."""
        found = torch.zeros(self.ids.shape, dtype=torch.bool)
        for row, first, _, spans in self.spans:
            for span in spans:
                found[row, first + span.start : first + span.end] = True
        return found.flatten().to(self.ids.device)


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
