"""The mask of attention bias scaffolding (ABS): a window that moves along with the answer."""

from dataclasses import dataclass
from typing import Literal

import torch

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys, check_order, query_count
from abc_nb.common.config import check_fields
from abc_nb.problems.layouts import Layout

Sides = Literal["none", "one", "both"]


@dataclass(frozen=True)
class Window(Bias):
    """Attention bias scaffolding (v4 section C.4): only a window of `w` is open.

    Self-attention: the token itself and `w` before it. Cross-attention: the digits of this place (of two numbers a
    pair) and the `w` columns to their right, as in the authors' code, or to either side, or none beside them. The
    columns slide to the left by one place at each step. At the first step the column to the right of the units holds
    the end token. In a decoder-only model a token of the problem looks at itself alone, as under the identity encoder
    of the authors' code.
    """

    w: int = 1
    sides: Sides = "one"

    def __post_init__(self) -> None:
        check_fields(self, w=0)

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys:
        step = torch.arange(query_count(layout, attention))[:, None]
        if attention == "source":
            return OpenKeys(step, torch.zeros(1, *step.shape))
        if attention == "self":
            index, keys = step - torch.arange(self.w + 1), layout.target_length
        else:
            check_order(layout)
            left, right = {"none": (0, 0), "one": (0, self.w), "both": (self.w, self.w)}[self.sides]
            beside = range(-left, right + 1)
            first = torch.tensor(sorted({operand.last + side for operand in layout.operands for side in beside}))
            index, keys = first - layout.operands[-1].stride * step, layout.source_length
        inside = (index >= 0) & (index < keys)
        value = torch.zeros(index.shape).masked_fill(~inside, CLOSED)
        return OpenKeys(index.clamp(0, keys - 1), value[None])
