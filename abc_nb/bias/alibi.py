"""Attention with linear biases (Press et al. 2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.bias.base import Attention, Bias, causal, check_order, query_count
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class ALiBi(Bias):
    """Attention with linear biases (Press et al. 2022): minus slope times distance.

    The paper's authors bias decoder self-attention alone. With `cross` the cross-attention is
    biased too, by the distance between output place and source column, both from the units.
    In a decoder-only model the attention of the problem to itself is biased as self-attention is.
    """

    cross: bool = False

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor | None:
        query = torch.arange(query_count(layout, attention))[:, None]
        if attention != "cross":
            return causal(len(query)) - slopes(heads) * (query - query.T).abs()
        if not self.cross:
            return None
        check_order(layout)
        return -slopes(heads) * (query - self.places(layout)).abs()

    def places(self, layout: Layout) -> Tensor:
        """The place of each column (source_length,): how far it is to the left of the units."""
        return layout.units - torch.arange(layout.source_length)


@dataclass(frozen=True)
class RunningALiBi(Bias):
    """ALiBi of a decoder-only model: problem and answer are one sequence, in which distance is counted."""

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        queries = torch.arange(query_count(layout, attention))[:, None]
        if attention != "cross":
            return causal(len(queries)) - slopes(heads) * (queries - queries.T).abs()
        return -slopes(heads) * (layout.source_length + queries - torch.arange(layout.source_length)).abs()


@dataclass(frozen=True)
class PlacedALiBi(ALiBi):
    """ALiBi with digits counted from the units of their own operand, as `source_index` by place."""

    def places(self, layout: Layout) -> Tensor:
        return torch.from_numpy(layout.source_index("place")) - 1


def slopes(heads: int) -> Tensor:
    """A slope for each head, from 2^(-8 / heads) down to 2^-8: (heads, 1, 1)."""
    return 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)[:, None, None]
