"""Which lines are kept, and with which values: Algorithm 1's threshold, the authors' script's, and this package's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention
from abc_nb.bias.lines import DIRECTIONS
from abc_nb.calibration.candidates import Candidates

ROUNDING = 1e-2  # of the weights of a query, which may be those of a model of half precision
Kept = tuple[Tensor, Tensor]  # (head, line) each: whether a line is kept, and its value


def above_threshold(means: Tensor, found: Candidates, kappa: float, pooled: bool) -> Kept:
    """Algorithm 1: lines whose mean d_l exceeds mu + kappa sigma of their direction, with the value d_l - d_max.

    `pooled`: of all lines together. The text compares d_l - d_max with the threshold, which is computed from d_l.
    """
    own = torch.tensor([0 if pooled else DIRECTIONS.index(direction) for direction, _, _ in found.lines])
    members = torch.zeros(len(own), len(DIRECTIONS)).scatter_(1, own[:, None], 1.0).to(means.dtype)  # (line, direction)
    count = members.sum(0).clamp(min=1)
    mean = means @ members / count
    deviation = ((means - mean[:, own]).square() @ members / count).sqrt()
    highest = torch.full_like(mean, CLOSED).scatter_reduce_(1, own.expand(len(means), -1), means, "amax")
    return means > (mean + kappa * deviation)[:, own], means - highest[:, own]


def sums_above(sums: Tensor, kappa: float) -> Kept:
    """The authors' script: of the sums (head, line) that are not zero, those above mu + kappa sigma, as they are."""
    known = sums.masked_fill(sums == 0, math.nan)
    mean = known.nanmean(1, keepdim=True)
    deviation = (known - mean).square().nanmean(1, keepdim=True).sqrt()
    return sums > mean + kappa * deviation, sums


def strongest_first(weights: Tensor, means: Tensor, found: Candidates, share: float) -> Kept:
    """This package's way: lines that carry at least `share` of their head's attention, relative to its best one.

    The strongest line is taken first and its cells count for no other line, so that a line does not
    seem strong because it crosses one that is. A head keeps its strongest line in any case, unless all the attention
    that it gives here is less than `share`: in a decoder-only model it divides its attention between two matrices.
    """
    looked_at = weights.sum(-1).mean(-1)
    rest, queries = weights.clone(), weights.shape[1]
    kept = torch.zeros(means.shape, dtype=torch.bool)
    steps = torch.arange(queries)[:, None]
    for head in range(len(rest)):
        while True:
            mass = (rest[head, steps, found.columns] * found.inside).sum(0) / queries
            mass, top = mass.masked_fill(~found.inside.any(0), CLOSED).max(0)
            if mass == CLOSED or (mass < share and (kept[head].any() or looked_at[head] < share - ROUNDING)):
                break
            kept[head, top] = True
            rest[head, steps[found.inside[:, top], 0], found.columns[found.inside[:, top], top]] = 0
    return kept, means - means.masked_fill(~kept, CLOSED).amax(1, keepdim=True)


def enough_cells(found: Candidates, name: Attention) -> Candidates:
    """Leave out lines that are seen at less than half of the steps: what they meet beyond was never seen."""
    seen = found.inside
    if name != "cross":
        seen = seen & (found.columns <= torch.arange(len(seen))[:, None])
    return found._replace(inside=seen & (2 * seen.sum(0) >= len(seen)))
