"""Functions of the distance between a query and a key, and rotations that are stretched beyond the training length.

Functions that are the same on both sides of zero (KERPLE, Sandwich) could not tell other distances apart, and FIRE
shrinks all but zero as the length grows. So the digit that a query needs stands at distance zero, as with ALiBi.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.bias.alibi import ALiBi, by_distance
from abc_nb.bias.base import Attention, Bias, causal, key_count, query_count
from abc_nb.model.positions import Index, PositionEncoding, Sinusoidal
from abc_nb.model.positions.relative import Relative, offsets
from abc_nb.model.positions.rotary import Rotary
from abc_nb.problems.layouts import Layout
from audit.positions.digits import Limited, longer_side

SMALLEST = 1e-2  # of KERPLE's r1 and r2; as how they are drawn, from the authors' code


@dataclass(frozen=True)
class ShortRelative(Relative):
    """Clipped at half the width of training problems: training shows every vector often (cf. Shaw et al. 2018, 4.3)."""

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
        return nn.ParameterDict({"key": key, "v_minus_u": torch.zeros(heads, 1, head_size)})

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
    projected = query @ weight  # (batch, head, query, width)
    sine, cosine = projected[..., ::2], projected[..., 1::2]
    at_query, at_key = (Sinusoidal().embedding(places, weight.shape[-1]) for places in (index, keys))
    query_sine, query_cosine = at_query[:, ::2], at_query[:, 1::2]
    parts = [cosine * query_sine - sine * query_cosine, sine * query_sine + cosine * query_cosine]
    return torch.stack(parts, -1).flatten(-2) @ at_key.mT


@dataclass(frozen=True)
class Randomized(TransformerXL, Limited):
    """Tokens stand at a sorted random subset of a longer range (Ruoss et al. 2023, section 3).

    One subset for each part of a batch, of source and target; the digit of a place stands where the output token of
    that place is predicted. Evaluation draws as well, as in the paper: one subset for each number of tokens, always the
    same. Under Transformer-XL's encoding, the best in that paper.
    """

    longest: int = 2048  # N
    drawn: int = 0  # seed of the subsets of evaluation

    def needed(self, layout: Layout) -> int:
        """The source's positions, or more where the target goes on beyond it."""
        behind = layout.source_length - 1 - layout.units  # tokens from the end of the source to the units
        return max(layout.source_length, behind + layout.target_length)

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        super().place(index, layout, head_size, training)
        count = self.needed(layout)
        generator = None if training else torch.Generator().manual_seed(self.drawn << 20 | count)
        subset = torch.randperm(self.longest, generator=generator)[:count].sort().values.to(index.source.device)
        return Index(subset[index.source], subset[index.target + index.source[layout.units]])


@dataclass(frozen=True)
class FromUnits(PositionEncoding):
    """The source is counted from its units: a place's digit stands where the output token of that place is written."""

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        return Index(index.source - index.source[layout.units], index.target)


@dataclass(frozen=True)
class Kerple(FromUnits):
    """-r1 log(1 + r2 |i - j|) with r1, r2 > 0 learned by each head: KERPLE's logarithmic kind (Chi et al. 2022)."""

    def learned(self, head_size: int, heads: int) -> nn.Module:
        return nn.ParameterDict({"r1": 2 * torch.rand(heads, 1, 1), "r2": torch.rand(heads, 1, 1)})

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        with torch.no_grad():  # the parameters themselves: one that was clamped in passing would learn no more
            for parameter in (learned.r1, learned.r2):
                parameter.clamp_(min=SMALLEST)
        return (-learned.r1 * torch.log1p(learned.r2 * offsets(index).abs()))[None]


@dataclass(frozen=True)
class Sandwich(FromUnits):
    """p_i p_j = sum over m of cos((i - j) / 10000^(2m / size)), divided by 8h / H in head h of H (Chi et al. 2023)."""

    size: int = 128  # of the sinusoids, whatever the model's is

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        offset, heads = offsets(index), query.shape[1]
        frequency = 10000 ** (-torch.arange(0, self.size, 2, device=offset.device) / self.size)
        product = (offset[..., None] * frequency).cos().sum(-1)
        head = torch.arange(1, heads + 1, device=offset.device)[:, None, None]
        return (product / (8 * head / heads))[None]


@dataclass(frozen=True)
class Fire(FromUnits):
    """f(psi(i - j) / psi(max(L, i))) with psi(x) = log(1 + c x) (FIRE, Li et al. 2024, section 3).

    f is a small network with one output a head; c, 0.1 at first, and L are learned, as the authors do. In
    cross-attention a key can come after the query: there psi is continued as an odd function, and i becomes the
    position of the last key.
    """

    hidden: int = 32
    first_limit: float = 4.0  # L at first: about a quarter of the training length, as the paper's 512 of 2048

    def learned(self, head_size: int, heads: int) -> nn.Module:
        network = nn.Sequential(nn.Linear(1, self.hidden), nn.ReLU(), nn.Linear(self.hidden, heads))
        # L is `multiple` times its first value.
        return nn.ParameterDict({"network": network, "c": torch.tensor(0.1), "multiple": torch.tensor(1.0)})

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        offset, (queries, keys) = offsets(index), index
        length = torch.where(offset > 0, keys.max(), queries[:, None])
        limit = torch.maximum(length, (learned.multiple * self.first_limit).abs())
        numerator, denominator = (torch.log1p((learned.c * x).abs()) for x in (offset, limit))
        ratio = -offset.sign() * numerator / (denominator + 1e-6)
        biases: Tensor = learned.network(ratio[..., None])  # (query, key, head)
        return biases.permute(2, 0, 1)[None]


@dataclass(frozen=True)
class InterpolatedRotary(Rotary, FromUnits):
    """Beyond the training length, positions are squeezed into it (Chen et al. 2023, section 2.3).

    A problem s times as long as any in training has its positions divided by s. The paper goes on training then; here
    nothing is. The source is counted from the units: the distance zero is the only one that stays what it was.
    """

    trained: int = 21  # tokens of the longest training problem (here: Addition's, at three widths)

    def trained_on(self, layout: Layout) -> "InterpolatedRotary":
        return replace(self, trained=longer_side(layout))

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        index = super().place(index, layout, head_size, training)
        factor = self.factor(max(1.0, longer_side(layout) / self.trained), head_size).to(index.source.device)
        return Index(index.source[:, None] * factor, index.target[:, None] * factor)

    def factor(self, stretch: float, head_size: int) -> Tensor:
        """What positions are multiplied with: one number, or one a pair of coordinates."""
        return torch.tensor([1 / stretch])


@dataclass(frozen=True)
class NTKRotary(InterpolatedRotary):
    """The base 10000 becomes 10000 s^(d / (d - 2)) for heads of size d (bloc97 2023, "NTK-Aware Scaled RoPE").

    That divides the position of pair m by s^(2m / (d - 2)): the fastest pair turns as in training,
    the slowest is interpolated. As s follows the length, this is the variant called dynamic.
    """

    def factor(self, stretch: float, head_size: int) -> Tensor:
        return stretch ** (-torch.arange(0, head_size, 2) / max(1, head_size - 2))


@dataclass(frozen=True)
class PlacedALiBi(ALiBi):
    """ALiBi with digits counted from the units of their own operand, as `source_index` by place."""

    def places(self, layout: Layout) -> Tensor:
        return torch.from_numpy(layout.source_index("place")) - 1


@dataclass(frozen=True)
class RunningALiBi(Bias):
    """ALiBi of a decoder-only model: problem and answer are one sequence, in which distance is counted."""

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        queries, keys = torch.arange(query_count(layout, attention)), torch.arange(key_count(layout, attention))
        if attention == "cross":
            return by_distance(layout.source_length + queries, keys, heads)
        return causal(len(queries)) + by_distance(queries, keys, heads)
