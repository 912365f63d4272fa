"""The bias and the positions of a text with problems in it.

Text is causal and sees everything before it. A problem sees nothing outside of itself: its tokens before the `=` see
themselves alone, and a token of its answer sees what the lines of its pattern open. Text sees problems, and a problem
counts as one position, however long its numbers are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys, causal_rows
from abc_nb.bias.lines import OUTPUT, PROBLEM_ITSELF, Line, LineKey, Lines, lines_of_keys, problem_keys
from abc_nb.bias.sequence import cyclic_positions, dense_bias, open_bias, token_count
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout
from abc_nb.problems.text import Pattern, ProblemSpan

ITSELF: tuple[LineKey, ...] = (*PROBLEM_ITSELF, ("self", "diagonal", OUTPUT, 0))
DENSE = 64  # tokens of a problem up to which its matrix is kept


@dataclass(frozen=True)
class SpanLines(Bias):
    """The lines of each pattern's answers; without patterns all is text."""

    heads: int
    patterns: tuple[Pattern, ...] = ()
    lines: tuple[Lines, ...] = ()  # of each pattern
    period: int = 1  # positions that a problem takes

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.patterns) != len(self.lines) or any(lines.heads != self.heads for lines in self.lines):
            raise InputError(f"each pattern has lines of its own, of {self.heads} heads")

    @classmethod
    def whole(cls, patterns: Sequence[Pattern], heads: int, period: int) -> "SpanLines":
        """A plain model's problems: each token sees all of its problem before it, and stands at its place."""
        return cls(heads, tuple(patterns), (Lines(heads, ()),) * len(patterns), period)

    @classmethod
    def one_key_per_head(cls, patterns: Sequence[Pattern], heads: int, layers: int) -> "SpanLines":
        """Made by hand: a head sees one digit of this place or of the place below, or the sign that names the task."""
        lines = []
        for pattern in patterns:
            layout = pattern.layout((1,) * len(pattern.short))
            sign = next(literal for literal in pattern.literals if literal)[0]
            keys: list[LineKey] = [*problem_keys(layout, 2), ("cross", "vertical", sign, 0)]
            if len(keys) > heads:
                raise InputError(f"{pattern.form} has {len(keys)} keys to deal to {heads} heads: take more heads")
            lines.append(lines_of_keys(keys, ITSELF, heads, layers))
        return cls(heads, tuple(patterns), tuple(lines))

    def lines_of(self, pattern: Pattern) -> Lines:
        return self.lines[self.patterns.index(pattern)]

    @lru_cache(maxsize=1024)  # noqa: B019 (a frozen value, and few of them)
    def same_as(self, layer: int) -> int:
        def line_sets(layer: int) -> list[set[Line]]:
            return [{replace(line, layer=0) for line in lines.lines if line.layer == layer} for lines in self.lines]

        return self.same_as(layer - 1) if layer and line_sets(layer - 1) == line_sets(layer) else layer

    @torch.inference_mode(False)
    def rows(self, spans: Sequence[ProblemSpan], layer: int, first: int, last: int) -> Tensor:
        rows = causal_rows(first, last).repeat(self.heads, 1, 1)
        for span in spans:
            begin, end = max(span.start, first), min(span.end, last)
            if begin >= end:
                continue
            block = rows[:, begin - first : end - first].fill_(CLOSED)[:, :, span.start : span.end]
            if span.finished:
                inside = slice(begin - span.start, end - span.start)
                block.copy_(matrix_of(self.lines_of(span.pattern), span.layout, layer, inside)[:, :, : block.shape[2]])
            else:
                block.diagonal(begin - span.start, 1, 2).zero_()
        return rows

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        raise InputError("this bias is of text: give its tokenizer, or take the lines of a pattern for a problem alone")


kept_matrix = lru_cache(1024)(dense_bias)
kept_open_keys = lru_cache(64)(open_bias)


def matrix_of(lines: Lines, layout: Layout, layer: int, rows: slice) -> Tensor:
    """Rows of a problem's bias: (heads, rows, token); in linear time of a long one of which no head sees all."""
    tokens = token_count(layout)
    if tokens <= DENSE:
        return kept_matrix(lines, layout, layer, lines.heads)[:, rows]
    keys = kept_open_keys(lines, layout, layer, lines.heads)
    if keys is not None:
        return keys.rows(rows).dense(tokens)
    return dense_bias(lines, layout, layer, lines.heads)[:, rows]


def positions(spans: Sequence[ProblemSpan], tokens: int, period: int = 1) -> Tensor:
    """The position of each token (tokens,), of which a problem takes one, or as many as the period of its own index.

    Inside a problem a token stands as much further on as its place in its number, modulo the period.
    """
    steps, inside = torch.ones(tokens, dtype=torch.long), torch.zeros(tokens, dtype=torch.long)
    for span in spans:
        steps[span.start + 1 : span.end] = 0
        if span.end < tokens:
            steps[span.end] = period
        if span.finished and period > 1:
            offsets = inside[span.start : span.end]
            offsets[:] = cyclic_positions(span.layout, period)[: len(offsets)]
    steps[:1] = 0
    return steps.cumsum(0) + inside
