"""The relative encoding of Transformer-XL (Dai et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import AttentionPosition, PositionEncoding, offsets
from abc_nb.model.positions.sinusoidal import Sinusoidal


@dataclass(frozen=True)
class TransformerXL(PositionEncoding):
    """(q + u) k_j + (q + v) W R_(i-j): keys of sinusoids, learned u and v (Dai et al. 2019, section 3.3).

    In cross-attention i - j takes both signs; the sinusoids R do, too.
    """

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return TransformerXLAttention(head_size, heads)


class TransformerXLAttention(AttentionPosition):
    """The second term. The first one is there: here queries have a bias, which is u.

    So q + v is the query, with its bias u, plus `v_minus_u`.
    """

    def __init__(self, head_size: int, heads: int) -> None:
        super().__init__()
        self.key = nn.Linear(head_size * heads, head_size * heads, bias=False)  # W
        self.v_minus_u = nn.Parameter(torch.zeros(heads, 1, head_size))

    def logits(self, query: Tensor, index: tuple[Tensor, Tensor], chosen: Tensor | None = None) -> Tensor:
        distance, column = (-offsets(index, chosen)).unique(return_inverse=True)
        heads, _, size = self.v_minus_u.shape
        query = query + self.v_minus_u
        if chosen is None and len(distance) > heads * size:
            return self.turned(query, *index) / size**0.5
        key = self.key(Sinusoidal().embedding(distance, heads * size)).unflatten(-1, (heads, size)).transpose(0, 1)
        by_distance = query @ key.mT / size**0.5  # (batch, head, query, distance): few, not one a cell
        return by_distance.gather(-1, column.expand(*query.shape[:-1], column.shape[-1]))

    def turned(self, query: Tensor, index: Tensor, keys: Tensor) -> Tensor:
        """The same where distances are many: sinusoids of i - j are those of j, turned by i."""
        heads, _, size = self.v_minus_u.shape
        by_sinusoid = query @ self.key.weight.unflatten(0, (heads, size))  # (batch, head, query, width)
        sine, cosine = by_sinusoid[..., ::2], by_sinusoid[..., 1::2]
        here, there = (Sinusoidal().embedding(places, heads * size) for places in (index, keys))
        turned = [cosine * here[:, ::2] - sine * here[:, 1::2], sine * here[:, ::2] + cosine * here[:, 1::2]]
        return torch.stack(turned, -1).flatten(-2) @ there.mT
