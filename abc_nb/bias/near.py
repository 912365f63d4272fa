"""A bias that hides far digits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, Bias, causal, check_order
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Near(Bias):
    """Far digits are closed, all else is open: to see what they do to a model that was trained with them.

    Far from an output is a digit more than `reach` places from the one that it predicts. The problem's own tokens
    predict none: in a decoder-only model they see all tokens before them.
    """

    reach: int = 2  # places

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        if attention == "source":
            return causal(layout.source_length)
        closed = far(layout, attention, self.reach)
        matrix = causal(layout.target_length) if attention == "self" else torch.zeros(1, *closed.shape)
        return matrix.masked_fill(closed, CLOSED)


def far(layout: Layout, attention: Attention, reach: int) -> Tensor:
    """Which keys are digits more than `reach` places from the one that a query predicts: booleans (query, key).

    The first key of self-attention is no digit, and the others stand one further on than their places. The
    digits of a factor of a few are near every place.
    """
    check_order(layout)
    query = torch.arange(layout.target_length)[:, None]
    if attention == "self":
        place = torch.arange(layout.target_length) - 1
    else:
        place = torch.full((layout.source_length,), -1)
        for operand in layout.operands:
            if not layout.is_short(operand):
                place[torch.from_numpy(operand.columns.copy())] = torch.arange(operand.places)
    return (place >= 0) & ((place - query).abs() > reach)
