"""The lines that calibration looks at, and the mean attention on each (v4 appendix D, step 2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Direction, Span
from abc_nb.calibration.settings import Calibration
from abc_nb.common.errors import InputError


class Candidates(NamedTuple):
    """Lines that could be kept, and their cells."""

    lines: list[tuple[Direction, str, int]]  # direction, name of the span, offset
    columns: Tensor  # (query, line)
    inside: Tensor  # (query, line): where the line has a cell


def candidates(places: Sequence[Span], name: Attention, settings: Calibration, queries: int) -> Candidates:
    """Every line with a cell; anchored at operands, only those that extend to any length."""
    lines, columns, inside = list[tuple[Direction, str, int]](), list[Tensor](), list[Tensor]()
    for span in places:
        for direction in searched(span, name, settings):
            offsets = offsets_of(span, direction, queries, ahead=settings.whole_matrix or name == "cross")
            key, there = span.cells(direction, offsets, queries)
            some = there.any(0)
            lines += [(direction, span.name, offset) for offset in offsets[some].tolist()]
            columns.append(key[:, some].where(there[:, some], 0))
            inside.append(there[:, some])
    if not columns:
        fitting = "antidiagonal and vertical" if name == "cross" else "diagonal and vertical"
        wanted = ", ".join(settings.directions)
        raise InputError(f"no line of the directions {wanted} extends in {name}-attention: {fitting} lines do")
    return Candidates(lines, torch.cat(columns, dim=1), torch.cat(inside, dim=1))


def searched(span: Span, name: Attention, settings: Calibration) -> list[Direction]:
    """The directions in which lines of a span are looked for."""
    if settings.padding:
        possible: tuple[Direction, ...] = tuple(span.origins)
    elif settings.whole_matrix:  # that in which operands and outputs are written, as in the authors' script
        possible = ("antidiagonal",) if name == "cross" else ("diagonal",)
    else:
        possible = span.along
    return [direction for direction in settings.directions if direction in possible and direction in span.origins]


def offsets_of(span: Span, direction: Direction, queries: int, ahead: bool) -> Tensor:
    """Offsets of the lines that could have a cell in the span, in order; `ahead`: also of diagonals of the future."""
    start, _ = span.cells(direction, 0, queries)
    last = int(span.last - start.min())
    return torch.arange(int(span.first - start.max()), (last if ahead or direction != "diagonal" else min(last, 0)) + 1)


def line_means(attention: Tensor, found: Candidates) -> Tensor:
    """The mean attention d_l on each line, shape (head, line), of `attention` (head, query, key)."""
    queries, keys = attention.shape[1:]
    cells = torch.arange(0, queries * keys, keys)[:, None] + found.columns
    inside = found.inside.to(attention.dtype)
    sums = [(head.index_select(0, cells.flatten()).view(cells.shape) * inside).sum(0) for head in attention.flatten(1)]
    return torch.stack(sums) / inside.sum(0)
