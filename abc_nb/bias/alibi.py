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
        queries = torch.arange(query_count(layout, attention))
        if attention != "cross":
            return causal(len(queries)) + by_distance(queries, queries, heads)
        if not self.cross:
            return None
        check_order(layout)
        return by_distance(queries, self.places(layout), heads)

    def places(self, layout: Layout) -> Tensor:
        """The place of each column (source_length,): how far it is to the left of the units."""
        return layout.units - torch.arange(layout.source_length)


def by_distance(queries: Tensor, keys: Tensor, heads: int) -> Tensor:
    """Minus a slope for each head, from 2^(-8 / heads) down to 2^-8, times distance: (heads, query, key)."""
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    return -slopes[:, None, None] * (queries[:, None] - keys).abs()
