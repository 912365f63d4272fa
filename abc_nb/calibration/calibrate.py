"""Attention bias calibration: averaged attention in, lines out (v4 section 4, appendices D and F).

`Calibration()` is this project's way: every layer's own attention, lines anchored at operands, only
those that mean the same at any length, strongest first. `PAPER` is Algorithm 1: one matrix, every
line, a threshold of kappa standard deviations, the last layer's lines for all layers. Mean, deviation
and maximum are those of one direction, as in the authors' code; `pooled` takes those of all lines, as
the text has it. Keys off every line are closed, as in the text; the pseudo-code leaves them at 0. The
threshold mu + kappa sigma is compared with d_l, from which it is computed; the text writes d_l - d_max.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, key_count, query_count
from abc_nb.bias.lines import DIRECTIONS, Direction, Line, Span, spans, whole_matrix
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout

ROUNDING = 1e-2  # of the weights of a query, which may be those of a model of half precision
SHARE = 0.2  # where attention alone is given, and no model to choose a threshold with


@dataclass(frozen=True)
class Calibration:
    """How lines are read out of attention."""

    source: Literal["weights", "logits"] = "weights"  # what is averaged, and so the unit of a line's value
    layers: Literal["each", "last"] = "each"  # whose attention a layer is biased with
    anchor: Literal["operands", "whole"] = "operands"  # what lines run over
    directions: tuple[Direction, ...] = DIRECTIONS
    share: float | None = None  # of its head's attention; None: `SHARE`, where a model is asked chosen by `keep`
    keep: float = 2 / 3  # of the model's digits that must survive when all keys off the lines are closed
    kappa: tuple[float, float] | None = None  # threshold in deviations (cross, self) instead of the share
    pooled: bool = False  # mean and deviation of all lines together, not of each direction
    script: bool = False  # as the authors' script has Algorithm 1: rows of digits, one direction, sums (see SCRIPT)
    floor: float | None = None  # bias off the lines; None: minus infinity
    empty: Literal["transparent", "closed"] = "closed"  # a head without any line

    @property
    def whole_matrix(self) -> bool:
        """Whether lines run through the whole matrix, as in the paper."""
        return self.anchor == "whole"

    @property
    def padding(self) -> bool:
        """Whether attention is averaged over rows of padding too, as the text has it."""
        return self.whole_matrix and not self.script

    def __post_init__(self) -> None:
        known = isinstance(self.directions, tuple) and all(each in DIRECTIONS for each in self.directions)
        if not known or not self.directions:
            choice = f"choose from {', '.join(DIRECTIONS)}, in a tuple"
            raise InputError(f"directions {self.directions!r} are not possible: {choice}")
        check_fields(self)
        if self.kappa is not None and not all(map(math.isfinite, self.kappa)):
            raise InputError(f"a kappa of {self.kappa} is not possible: give two deviations, as in (4.5, 0.87)")
        if self.floor is not None and not self.floor < 0:
            raise InputError(f"a floor of {self.floor} is not possible: give a negative number, as in -10.0, or None")
        if self.share is not None and self.kappa is not None:
            raise InputError("share and kappa are two thresholds: give one of them")
        if not 0 < self.keep <= 1:
            raise InputError(f"a keep of {self.keep} is not possible: give a part of the model's digits, as in 0.67")
        if self.share is not None and not 0 < self.share <= 1:
            raise InputError(f"a share of {self.share} is not possible: give a part of a head's attention, as in 0.2")


PAPER = Calibration(layers="last", anchor="whole", kappa=(4.5, 0.87), empty="transparent")
# The authors' script looks at the rows of real digits, along one direction (the diagonal in self-attention, the
# anti-diagonal in cross-attention). A line's value is the sum of its cells; the threshold is that of the sums that are
# not zero. A step that no line reaches sees every key.
SCRIPT = replace(PAPER, script=True, floor=-1e6)


def given(settings: Calibration | None) -> Calibration:
    """The settings, or this project's if there are none; InputError for anything else."""
    if not isinstance(settings, Calibration | None):
        raise InputError(f"{settings!r} is no calibration: give one, as in Calibration(share=0.3)")
    return settings or Calibration()


class Candidates(NamedTuple):
    """Lines that could be kept, and their cells."""

    span: Tensor  # (line,), which of the spans that lines run over
    direction: Tensor  # (line,), which of DIRECTIONS
    offsets: Tensor  # (line,)
    columns: Tensor  # (query, line)
    inside: Tensor  # (query, line): where the line has a cell


def calibrate(
    attention: Tensor,
    layout: Layout | None = None,
    name: Attention = "cross",
    settings: Calibration | None = None,
    layer: int = 0,
) -> list[Line]:
    """Steps 2.1 and 2.2: lines of one averaged `attention` (head, query, key); query `i` predicts output `i`.

    `layout` says where the operands sit; without one, lines run over the whole matrix. Without a share or kappa
    lines that carry `SHARE` of their head's attention are kept.
    Raises InputError for a tensor of another shape, or one that is not finite.
    """
    settings = settings or (Calibration() if layout else PAPER)
    if not isinstance(settings, Calibration) or not isinstance(layout, Layout | None):
        raise InputError("give a Layout, or None, and a Calibration, as in Calibration(share=0.3)")
    if layout is None:
        settings = replace(settings, anchor="whole")
    if name not in get_args(Attention):
        raise InputError(f"unknown attention {name!r}: choose one of {', '.join(get_args(Attention))}")
    attention = as_attention(attention, name, layer)
    check(attention, layout, name, settings)
    places = spans(layout, name) if layout and not settings.whole_matrix else [whole_matrix(*attention.shape[1:])]
    found = candidates(places, name, settings, attention.shape[1])
    means = line_means(attention, found)
    if settings.script:
        means = means * found.inside.sum(0)
    if settings.kappa is None:
        weights = attention if settings.source == "weights" else attention.softmax(-1)
        kept = strongest_first(weights, enough_cells(found, name), settings.share or SHARE)
        values = means - means.masked_fill(~kept, CLOSED).amax(1, keepdim=True)
    else:
        kappa = settings.kappa[name != "cross"]
        kept, values = (
            sums_above(means, kappa) if settings.script else above_threshold(means, found, kappa, settings.pooled)
        )
    heads, lines = kept.nonzero(as_tuple=True)
    facts = zip(*(x[lines].tolist() for x in (found.direction, found.span, found.offsets)), strict=True)
    named = ((DIRECTIONS[direction], places[span].name, offset) for direction, span, offset in facts)
    return [
        Line(name, layer, head, *own, value)
        for head, own, value in zip(heads.tolist(), named, values[kept].tolist(), strict=True)
    ]


def as_attention(attention: Tensor, name: Attention, layer: int) -> Tensor:
    """Finite numbers (head, query, key) from a tensor on any device, or an array; InputError for anything else."""
    where = f"{name}-attention of layer {layer}"
    try:
        found = torch.as_tensor(attention).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{where} must be a tensor or an array of numbers (head, query, key)") from error
    if found.dtype not in (torch.float32, torch.float64):
        found = found.float()
    if found.ndim != 3 or 0 in found.shape:
        shape = tuple(found.shape)
        raise InputError(f"{where} has the shape {shape}: give (head, query, key), the mean over problems")
    if not found.isfinite().all():
        raise InputError(f"{where} is not finite everywhere: give the lowest logit where a mask closes a key")
    return found


def check(attention: Tensor, layout: Layout | None, name: Attention, settings: Calibration) -> None:
    """InputError for attention that does not fit the layout, or is no mean of weights where that is asked for."""
    shape = tuple(attention.shape)
    if layout is not None and shape[1:] != (query_count(layout, name), key_count(layout, name)):
        wanted = f"{query_count(layout, name)} queries and {key_count(layout, name)} keys"
        raise InputError(f"attention of shape {shape} does not fit the layout, which has {wanted}")
    if settings.kappa is None and settings.source == "weights":
        if (attention < 0).any():
            raise InputError("attention weights are never negative: for logits, calibrate with source='logits'")
        if (most := attention.sum(-1).max().item()) > 1 + ROUNDING:
            raise InputError(f"a query's weights add up to {most:.3g}, not to 1: give the mean over problems")


def candidates(places: Sequence[Span], name: Attention, settings: Calibration, queries: int) -> Candidates:
    """Every line with a cell; anchored at operands, only those that extend to any length."""
    lines, cells = [], []
    for i, span in enumerate(places):
        # Of the whole matrix, the authors' script reads the direction in which operands and outputs are written.
        along = span.along if not settings.whole_matrix else ("antidiagonal",) if name == "cross" else ("diagonal",)
        for direction in settings.directions:
            if direction in span.origins and (settings.padding or direction in along):
                start, _ = span.cells(direction, 0, queries)
                last = int(span.last - start.min())
                ahead = not settings.whole_matrix and name != "cross" and direction == "diagonal"
                offset = torch.arange(int(span.first - start.max()), (min(last, 0) if ahead else last) + 1)
                facts = torch.tensor([i, DIRECTIONS.index(direction)])
                lines.append(torch.cat([facts[:, None].expand(-1, len(offset)), offset[None]]))
                cells.append(span.cells(direction, offset, queries))
    if not cells:
        fitting = "antidiagonal and vertical" if name == "cross" else "diagonal and vertical"
        wanted = ", ".join(settings.directions)
        raise InputError(f"no line of the directions {wanted} extends in {name}-attention: {fitting} lines do")
    columns, inside = (torch.cat(parts, dim=1) for parts in zip(*cells, strict=True))
    found = inside.any(0)
    owner, direction_of, offset = torch.cat(lines, dim=1)[:, found]
    inside = inside[:, found]
    return Candidates(owner, direction_of, offset, columns[:, found].where(inside, 0), inside)


def enough_cells(found: Candidates, name: Attention) -> Candidates:
    """Leave out lines that are seen at less than half of the steps: what they meet beyond was never seen."""
    seen = found.inside
    if name != "cross":
        seen = seen & (found.columns <= torch.arange(len(seen))[:, None])
    return found._replace(inside=seen & (2 * seen.sum(0) >= len(seen)))


def line_means(attention: Tensor, found: Candidates) -> Tensor:
    """Step 2.1: the mean attention d_l on each line, shape (head, line)."""
    queries, keys = attention.shape[1:]
    cells = torch.arange(0, queries * keys, keys)[:, None] + found.columns
    inside = found.inside.to(attention.dtype)
    sums = [(head.index_select(0, cells.flatten()).view(cells.shape) * inside).sum(0) for head in attention.flatten(1)]
    return torch.stack(sums) / inside.sum(0)


def above_threshold(means: Tensor, found: Candidates, kappa: float, pooled: bool = False) -> tuple[Tensor, Tensor]:
    """Step 2.2: lines whose mean exceeds mu + kappa sigma of their direction, and d_l - d_max; (head, line).

    `pooled`: of all lines together.
    """
    own, heads = found.direction if not pooled else torch.zeros_like(found.direction), len(means)
    members = torch.zeros(len(own), len(DIRECTIONS)).scatter_(1, own[:, None], 1.0).to(means.dtype)  # (line, direction)
    count = members.sum(0).clamp(min=1)
    mean = means @ members / count
    deviation = ((means - mean[:, own]).square() @ members / count).sqrt()
    kept = means > (mean + kappa * deviation)[:, own]
    highest = torch.full_like(mean, CLOSED).scatter_reduce_(1, own.expand(heads, -1), means, "amax")
    return kept, means - highest[:, own]


def sums_above(sums: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """The threshold of the authors' script: of the sums that are not zero, which exceed mu + kappa sigma; the sums."""
    known = sums.masked_fill(sums == 0, math.nan)
    mean = known.nanmean(1, keepdim=True)
    deviation = (known - mean).square().nanmean(1, keepdim=True).sqrt()
    return sums > mean + kappa * deviation, sums


def strongest_first(weights: Tensor, found: Candidates, share: float) -> Tensor:
    """Lines that carry at least `share` of their head's attention, booleans (head, line).

    The strongest line is taken first and its cells count for no other line, so that a line does not
    seem strong because it crosses one that is. A head keeps its strongest line in any case, unless all the attention
    that it gives here is less than `share`: in a decoder-only model it divides its attention between two matrices.
    """
    looked_at = weights.sum(-1).mean(-1)
    rest, queries = weights.clone(), weights.shape[1]
    kept = torch.zeros(len(weights), len(found.offsets), dtype=torch.bool)
    steps = torch.arange(queries)[:, None]
    for head in range(len(rest)):
        while True:
            mass = (rest[head, steps, found.columns] * found.inside).sum(0) / queries
            mass, top = mass.masked_fill(~found.inside.any(0), CLOSED).max(0)
            if mass == CLOSED or (mass < share and (kept[head].any() or looked_at[head] < share - ROUNDING)):
                break
            kept[head, top] = True
            rest[head, steps[found.inside[:, top], 0], found.columns[found.inside[:, top], top]] = 0
    return kept
