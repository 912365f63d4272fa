"""Attention bias scaffolding (ABS): a window made by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Window(Bias):
    """Attention bias scaffolding (`000` section C.4): only a window of `w` is open.

    Self-attention: the token itself and `w` before it. Cross-attention: the digits of this place
    and `w` columns on either side; the columns slide to the left by one place at each step.
    """

    w: int = 1

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys:
        step = torch.arange(layout.target_length)[:, None]
        if attention == "self":
            index, keys = step - torch.arange(self.w + 1), layout.target_length
        else:
            offsets = window_offsets(layout, self.w)
            index, keys = layout.source_length - 1 - layout.operands[-1].stride * step + offsets, layout.source_length
        inside = (index >= 0) & (index < keys)
        value = torch.zeros(index.shape).masked_fill(~inside, CLOSED)
        return OpenKeys(index.clamp(0, keys - 1), value[None])


def window_offsets(layout: Layout, w: int) -> Tensor:
    """Open columns of step 0 relative to the last column: each operand's units and `w` on each side."""
    units = [operand.last - (layout.source_length - 1) for operand in layout.operands]
    return torch.tensor(sorted({unit + side for unit in units for side in range(-w, w + 1)}))
