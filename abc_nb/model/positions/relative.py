"""Relative positions that queries are multiplied with: RPE, Transformer-XL's, and these at random positions."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.model.positions.absolute import Sinusoidal
from abc_nb.model.positions.base import Index, Parameters, PositionEncoding, offsets
from abc_nb.problems.layouts import Layout


@dataclass(frozen=True)
class Relative(PositionEncoding):
    """A learned vector for each clipped offset is added to the keys (RPE, Shaw et al. 2018, equation 4)."""

    clip: int = 16

    def learned(self, head_size: int, heads: int) -> nn.Module:
        return Parameters(table=nn.Parameter(torch.randn(2 * self.clip + 1, head_size) * head_size**-0.5))

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        by_offset = query @ learned.table.T / query.shape[-1] ** 0.5  # (batch, head, query, 2 * clip + 1)
        row = offsets(index).clamp(-self.clip, self.clip) + self.clip
        return by_offset.gather(-1, row.expand(*query.shape[:-1], row.shape[-1]))


@dataclass(frozen=True)
class ShortRelative(Relative):
    """Clipped at half the width of training problems, so that training shows every vector many times.

    The clipped vectors stand for all longer distances, and with a clip beyond those of training they stay as they
    were drawn. (In translation a clip of 2 is as good as any larger one: Shaw et al. 2018, section 4.3.)
    """

    def trained_on(self, layout: Layout) -> "ShortRelative":
        return replace(self, clip=layout.width // 2)


@dataclass(frozen=True)
class TransformerXL(PositionEncoding):
    """(q + u) k_j + (q + v) W R_(i-j): keys of sinusoids, learned u and v (Dai et al. 2019, section 3.3).

    In cross-attention i - j takes both signs; the sinusoids R do, too. The first term is there, as queries have a bias,
    u. So q + v is the query plus `v_minus_u`.
    """

    def learned(self, head_size: int, heads: int) -> nn.Module:
        key = nn.Linear(head_size * heads, head_size * heads, bias=False)  # W
        return Parameters(key=key, v_minus_u=nn.Parameter(torch.zeros(heads, 1, head_size)))

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        distance, column = (-offsets(index)).unique(return_inverse=True)
        heads, _, size = learned.v_minus_u.shape
        query = query + learned.v_minus_u
        if len(distance) > heads * size:
            return turned(learned.key.weight.unflatten(0, (heads, size)), query, *index) / size**0.5
        key = learned.key(Sinusoidal().embedding(distance, heads * size)).unflatten(-1, (heads, size)).transpose(0, 1)
        by_distance = query @ key.mT / size**0.5  # (batch, head, query, distance): few, not one a cell
        return by_distance.gather(-1, column.expand(*query.shape[:-1], column.shape[-1]))


def turned(weight: Tensor, query: Tensor, index: Tensor, keys: Tensor) -> Tensor:
    """q W R_(i-j) where distances are many: sinusoids of i - j are those of j, turned by i."""
    by_sinusoid = query @ weight  # (batch, head, query, width)
    sine, cosine = by_sinusoid[..., ::2], by_sinusoid[..., 1::2]
    here, there = (Sinusoidal().embedding(places, weight.shape[-1]) for places in (index, keys))
    both = [cosine * here[:, ::2] - sine * here[:, 1::2], sine * here[:, ::2] + cosine * here[:, 1::2]]
    return torch.stack(both, -1).flatten(-2) @ there.mT


@dataclass(frozen=True)
class Randomized(TransformerXL):
    """Tokens stand at a sorted random subset of a longer range (Ruoss et al. 2023, section 3).

    One subset for each part of a batch. Source and target share it, and the digit of a place stands where the output
    token of that place is predicted. Evaluation draws as well, as in the paper: one subset for each number of tokens,
    always the same. Under Transformer-XL's encoding, the best in that paper.
    """

    longest: int = 2048  # N
    drawn: int = 0  # seed of the subsets of evaluation

    def needed(self, layout: Layout) -> int:
        """How many positions a problem has: its source's, or more where the target goes on beyond it."""
        behind = layout.source_length - 1 - layout.units  # tokens from the end of the source to the units
        return max(layout.source_length, behind + layout.target_length)

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        super().place(index, layout, head_size, training)
        count = self.needed(layout)
        fixed = None if training else torch.Generator().manual_seed(self.drawn << 20 | count)
        chosen = torch.randperm(self.longest, generator=fixed)[:count].sort().values.to(index.source.device)
        return Index(chosen[index.source], chosen[index.target + index.source[layout.units]])
