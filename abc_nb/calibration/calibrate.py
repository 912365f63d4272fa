"""Attention bias calibration: averaged attention in, lines out (v4 section 4, appendices D and F).

The six steps of Algorithm 1, and what is done here by default:

1. every line of each head and direction; here those at operands that mean the same at any length
2. the mean attention on each line
3. less the highest mean; here that of the lines that are kept
4. lines below mu + kappa sigma go; here those below a share of the attention, the strongest line taken first
5. where directions meet, the largest value counts (`Lines.dense`)
6. a head without a line is left open; here closed
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, key_count, query_count
from abc_nb.bias.lines import DIRECTIONS, Anchor, Direction, Line, anchors, whole_matrix
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout

SHARE = 0.2  # where attention alone is given, and no model to choose a threshold with
ROUNDING = 1e-2  # of the weights of a query, which may be those of a model of half precision
Kept = tuple[Tensor, Tensor]  # (head, line) each: whether a line is kept, and its value


@dataclass(frozen=True)
class Calibration:
    """How lines are read out of attention; by default this package's way.

    Several thresholds are tried, in `calibrate_model.sparsest`, and judged by the digits that the plain model gets
    right under the lines; of `Determining`, and of every language model, by whether what is seen decides the token.
    """

    # What is averaged, and so the unit of a line's value; "mask": weights, and every line's value is zero.
    source: Literal["weights", "logits", "mask"] = "weights"
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
    def padding(self) -> bool:
        """Whether attention is averaged over rows of padding too, as the text has it."""
        return self.anchor == "whole" and not self.script

    def __post_init__(self) -> None:
        check_fields(self)
        for name, possible, advice in (
            ("directions", self.directions, f"some of {', '.join(DIRECTIONS)}"),
            ("share", self.share is None or 0 < self.share <= 1, "a part of a head's attention, as in 0.2"),
            ("keep", 0 < self.keep <= 1, "a part of the model's digits, as in 0.67"),
            ("kappa", self.kappa is None or all(map(math.isfinite, self.kappa)), "two deviations, as in (4.5, 0.87)"),
            ("kappa", self.kappa is None or self.share is None, "a kappa or a share, which are two thresholds"),
            ("kappa", self.kappa is not None or not self.script, "the deviations that the authors' script wants"),
            ("floor", self.floor is None or self.floor < 0, "a negative number, as in -10.0, or None"),
        ):
            if not possible:
                raise InputError(f"a calibration cannot have {name}={getattr(self, name)}: give {advice}")


@dataclass(frozen=True)
class Determining(Calibration):
    """The sparsest lines under which what an output token sees determines it, whatever the plain model makes of it."""


@dataclass(frozen=True)
class Inherited(Calibration):
    """The lines that the parent itself has in one attention; the other attention sees all keys."""

    attention: Attention = "cross"


# Algorithm 1 (v4 appendix F): one matrix, every line, a threshold of kappa standard deviations, the last layer's lines
# for all layers. Keys off every line are closed, as in the text; the pseudo-code leaves them at 0.
PAPER = Calibration(layers="last", anchor="whole", kappa=(4.5, 0.87), empty="transparent")
# The authors' script looks at the rows of real digits, along one direction (the diagonal in self-attention, the
# anti-diagonal in cross-attention), and at sums. A step that no line reaches sees every key.
SCRIPT = replace(PAPER, script=True, floor=-1e6)


def checked_settings(settings: Calibration | None) -> Calibration:
    """The settings, or this package's if there are none; InputError for anything else."""
    if not isinstance(settings, Calibration | None):
        raise InputError(f"{settings!r} is no calibration: give one, as in Calibration(share=0.3)")
    return settings or Calibration()


def calibrate(
    attention: Tensor,
    layout: Layout | None = None,
    name: Attention = "cross",
    settings: Calibration | None = None,
    layer: int = 0,
) -> list[Line]:
    """Lines of one averaged `attention` (head, query, key); query `i` predicts output `i`.

    `layout` says where the operands sit; without one, lines run over the whole matrix, by default as in `PAPER`.
    With a layout, and settings without a share or kappa, lines that carry `SHARE` of their head's attention are kept.
    Raises InputError for a tensor of another shape, or one that is not finite.
    """
    settings = checked_settings(settings) if layout else replace(checked_settings(settings or PAPER), anchor="whole")
    attention = valid_means(attention, layout, name, settings, layer)
    runs = anchors(layout, name) if layout and settings.anchor == "operands" else [whole_matrix(attention.shape[2])]
    possible = candidates(runs, name, settings, attention.shape[1])
    means = line_means(attention, possible)
    if settings.kappa is None:
        weights = attention.softmax(-1) if settings.source == "logits" else attention
        kept, values = strongest_first(weights, means, enough_cells(possible, name), settings.share or SHARE)
    else:
        kept, values = above_threshold(means, possible, settings, settings.kappa[name != "cross"])
    lines = []
    for (head, number), value in zip(kept.nonzero().tolist(), values[kept].tolist(), strict=True):
        direction, span, offset = possible.lines[number]
        lines.append(Line(name, layer, head, direction, span, offset, 0.0 if settings.source == "mask" else value))
    return lines


def valid_means(attention: Tensor, layout: Layout | None, name: Attention, settings: Calibration, layer: int) -> Tensor:
    """Finite numbers (head, query, key) of the layout, means of weights where these are asked for, or InputError."""
    matrix = f"{name}-attention of layer {layer}"
    if name not in get_args(Attention):
        raise InputError(f"unknown attention {name!r}: choose one of {', '.join(get_args(Attention))}")
    numbers = torch.as_tensor(attention).detach().cpu()
    numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
    shape = tuple(numbers.shape)
    if len(shape) != 3 or 0 in shape:
        raise InputError(f"{matrix} has the shape {shape}: give (head, query, key), the mean over problems")
    if not numbers.isfinite().all():
        raise InputError(f"{matrix} is not finite everywhere: give the lowest logit where a mask closes a key")
    if layout is not None and shape[1:] != (expected := (query_count(layout, name), key_count(layout, name))):
        raise InputError(f"{matrix} has the shape {shape}: the layout has {expected[0]} queries and {expected[1]} keys")
    if settings.kappa is None and settings.source != "logits":
        if (numbers < 0).any():
            raise InputError("attention weights are never negative: for logits, calibrate with source='logits'")
        if (total := numbers.sum(-1).max().item()) > 1 + ROUNDING:
            raise InputError(f"a query's weights add up to {total:.3g}, not to 1: give the mean over problems")
    return numbers


# ---- steps 1 and 2: lines, and the attention on each


class Candidates(NamedTuple):
    """Lines that could be kept, and their cells."""

    lines: list[tuple[Direction, str, int]]  # direction, name of the anchor, offset
    columns: Tensor  # (query, line)
    inside: Tensor  # (query, line): where the line has a cell


def candidates(runs: Sequence[Anchor], name: Attention, settings: Calibration, queries: int) -> Candidates:
    """Every line with a cell; anchored at operands, only those that extend to any length."""
    lines, columns, inside = list[tuple[Direction, str, int]](), list[Tensor](), list[Tensor]()
    for anchor in runs:
        possible: Sequence[Direction] = anchor.along if settings.anchor == "operands" else anchor.directions
        if settings.script:  # that in which operands and outputs are written
            possible = ("antidiagonal",) if name == "cross" else ("diagonal",)
        for direction in settings.directions:
            if direction not in possible:
                continue
            start, _ = anchor.cells(direction, 0, queries)
            first, last = int(anchor.first - start.max()), int(anchor.last - start.min())
            if name != "cross" and settings.anchor == "operands" and direction == "diagonal":
                last = min(last, 0)  # those of the future are closed
            offsets = torch.arange(first, last + 1)
            keys, on_line = anchor.cells(direction, offsets, queries)
            with_cells = on_line.any(0)
            lines += [(direction, anchor.name, offset) for offset in offsets[with_cells].tolist()]
            columns.append(keys.where(on_line, 0)[:, with_cells])
            inside.append(on_line[:, with_cells])
    if not columns:
        fitting = "antidiagonal and vertical" if name == "cross" else "diagonal and vertical"
        directions = ", ".join(settings.directions)
        raise InputError(f"no line of the directions {directions} extends in {name}-attention: {fitting} lines do")
    return Candidates(lines, torch.cat(columns, dim=1), torch.cat(inside, dim=1))


def line_means(attention: Tensor, possible: Candidates) -> Tensor:
    """The mean attention d_l on each line, shape (head, line), of `attention` (head, query, key)."""
    queries, keys = attention.shape[1:]
    cells = torch.arange(0, queries * keys, keys)[:, None] + possible.columns
    inside = possible.inside.to(attention.dtype)
    sums = [(head.index_select(0, cells.flatten()).view(cells.shape) * inside).sum(0) for head in attention.flatten(1)]
    return torch.stack(sums) / inside.sum(0)


def enough_cells(possible: Candidates, name: Attention) -> Candidates:
    """Leave out lines that have keys at less than half of the steps: what they meet beyond was never seen."""
    inside = possible.inside
    if name != "cross":
        inside = inside & (possible.columns <= torch.arange(len(inside))[:, None])
    return possible._replace(inside=inside & (2 * inside.sum(0) >= len(inside)))


# ---- steps 3 and 4: which lines are kept, and with which values


def above_threshold(means: Tensor, possible: Candidates, settings: Calibration, kappa: float) -> Kept:
    """Algorithm 1: lines whose mean d_l exceeds mu + kappa sigma of their direction, with the value d_l - d_max.

    `pooled`: mu, sigma and d_max of all lines, as the text has it; the authors' code takes those of one direction. The
    text compares d_l - d_max with the threshold, which is computed from d_l. In the authors' script d_l is a line's sum
    and its value; sums of zero are left out of the threshold.
    """
    numbers = means * possible.inside.sum(0) if settings.script else means
    counted = numbers.masked_fill(numbers == 0, math.nan) if settings.script else numbers
    kept, values = torch.zeros_like(numbers, dtype=torch.bool), numbers.clone()
    groups = ["" if settings.pooled else direction for direction, _, _ in possible.lines]
    for group in {*groups}:
        members = torch.tensor([name == group for name in groups])
        mean = counted[:, members].nanmean(1, keepdim=True)
        deviation = (counted[:, members] - mean).square().nanmean(1, keepdim=True).sqrt()
        kept[:, members] = numbers[:, members] > mean + kappa * deviation
        if not settings.script:
            values[:, members] -= numbers[:, members].amax(1, keepdim=True)
    return kept, values


def strongest_first(weights: Tensor, means: Tensor, possible: Candidates, share: float) -> Kept:
    """This package's way: lines that carry at least `share` of their head's attention, relative to its best one.

    The strongest is taken first and its cells count for no other, so that no line seems strong because it crosses one.
    A head keeps its strongest line in any case, unless all the attention that it gives here is less than `share`: in a
    decoder-only model it divides its attention between two matrices.
    """
    head_mass = weights.sum(-1).mean(-1)
    rest, queries = weights.clone(), weights.shape[1]
    kept = torch.zeros(means.shape, dtype=torch.bool)
    steps = torch.arange(queries)[:, None]
    for head in range(len(rest)):
        while True:
            masses = (rest[head, steps, possible.columns] * possible.inside).sum(0) / queries
            mass, strongest = masses.masked_fill(~possible.inside.any(0), CLOSED).max(0)
            if mass == CLOSED or (mass < share and (kept[head].any() or head_mass[head] < share - ROUNDING)):
                break
            kept[head, strongest] = True
            inside = possible.inside[:, strongest]
            rest[head, steps[inside, 0], possible.columns[inside, strongest]] = 0
    return kept, means - means.masked_fill(~kept, CLOSED).amax(1, keepdim=True)
