"""Attention bias calibration: averaged attention in, lines out (v4 section 4, appendices D and F).

The six steps of Algorithm 1 are those of `calibrate` and of what it returns:

1. For every head and direction, look at every line.    ours: lines at operands that mean the same at any length
2. Average the attention on each line.                  the same (the authors' script: its sum)
3. Subtract the highest mean.                           ours: of the lines that are kept
4. Drop lines below mu + kappa sigma.                   ours: below a share, the strongest line first
5. Merge directions: the largest value counts.          the same: `Lines.dense`
6. Leave a head without any line open.                  ours: close it
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from abc_nb.bias.base import Attention, key_count, query_count
from abc_nb.bias.lines import Line, spans, whole_matrix
from abc_nb.calibration.candidates import candidates, line_means
from abc_nb.calibration.settings import PAPER, SCRIPT, SHARE, Calibration, given
from abc_nb.calibration.thresholds import ROUNDING, above_threshold, enough_cells, strongest_first, sums_above
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout

__all__ = ["PAPER", "SCRIPT", "SHARE", "Calibration", "calibrate", "given"]


def calibrate(
    attention: Tensor,
    layout: Layout | None = None,
    name: Attention = "cross",
    settings: Calibration | None = None,
    layer: int = 0,
) -> list[Line]:
    """Lines of one averaged `attention` (head, query, key); query `i` predicts output `i`.

    `layout` says where the operands sit; without one, lines run over the whole matrix, by default as in `PAPER`.
    Without a share or kappa lines that carry `SHARE` of their head's attention are kept.
    Raises InputError for a tensor of another shape, or one that is not finite.
    """
    settings = given(settings or (PAPER if layout is None else None))
    if layout is None:
        settings = replace(settings, anchor="whole")
    attention = checked(attention, layout, name, settings, layer)
    places = spans(layout, name) if layout and not settings.whole_matrix else [whole_matrix(*attention.shape[1:])]
    found = candidates(places, name, settings, attention.shape[1])
    means = line_means(attention, found)
    if settings.kappa is None:
        weights = attention if settings.source == "weights" else attention.softmax(-1)
        kept, values = strongest_first(weights, means, enough_cells(found, name), settings.share or SHARE)
    elif settings.script:
        kept, values = sums_above(means * found.inside.sum(0), settings.kappa[name != "cross"])
    else:
        kept, values = above_threshold(means, found, settings.kappa[name != "cross"], settings.pooled)
    lines = []
    for (head, number), value in zip(kept.nonzero().tolist(), values[kept].tolist(), strict=True):
        direction, span, offset = found.lines[number]
        lines.append(Line(name, layer, head, direction, span, offset, value))
    return lines


def checked(attention: Tensor, layout: Layout | None, name: Attention, settings: Calibration, layer: int) -> Tensor:
    """Finite numbers (head, query, key) that fit the layout, from a tensor on any device or an array.

    InputError for others, and for what is no mean of weights where that is asked for.
    """
    where = f"{name}-attention of layer {layer}"
    if name not in get_args(Attention):
        raise InputError(f"unknown attention {name!r}: choose one of {', '.join(get_args(Attention))}")
    numbers = torch.as_tensor(attention).detach().cpu()
    if numbers.dtype not in (torch.float32, torch.float64):
        numbers = numbers.float()
    shape = tuple(numbers.shape)
    if len(shape) != 3 or 0 in shape:
        raise InputError(f"{where} has the shape {shape}: give (head, query, key), the mean over problems")
    if not numbers.isfinite().all():
        raise InputError(f"{where} is not finite everywhere: give the lowest logit where a mask closes a key")
    if layout is not None and shape[1:] != (wanted := (query_count(layout, name), key_count(layout, name))):
        raise InputError(f"{where} has the shape {shape}: the layout has {wanted[0]} queries and {wanted[1]} keys")
    if settings.kappa is None and settings.source == "weights":
        if (numbers < 0).any():
            raise InputError("attention weights are never negative: for logits, calibrate with source='logits'")
        if (most := numbers.sum(-1).max().item()) > 1 + ROUNDING:
            raise InputError(f"a query's weights add up to {most:.3g}, not to 1: give the mean over problems")
    return numbers
