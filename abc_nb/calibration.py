"""Attention bias calibration: averaged attention in, lines out (`000` section 4, appendices D and F)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from abc_nb.biases import Attention
from abc_nb.layouts import Layout
from abc_nb.lines import SLOPES, Direction, Line, Span, extends, spans, whole

DIRECTIONS: tuple[Direction, ...] = ("diagonal", "antidiagonal", "vertical")


def line_means(attention: Tensor, span: Span, direction: Direction) -> tuple[Tensor, Tensor, Tensor]:
    """Step 2.1: offsets (lines,), mean attention on each line (heads, lines), and its cells (lines,)."""
    queries = attention.shape[1]
    reach = SLOPES[direction] * span.stride * (queries - 1)
    low, high = min(0, reach), max(0, reach)
    origin = span.origins[direction]
    offsets = torch.arange(span.first - origin - high, span.last - origin - low + 1)
    columns = span.columns(direction, offsets, queries)
    inside = span.inside(columns)
    cells = inside.sum(0)
    steps = torch.arange(queries)[:, None]
    found = attention[:, steps, columns.clamp(span.first, span.last)] * inside
    return offsets, found.sum(1) / cells.clamp(min=1), cells
