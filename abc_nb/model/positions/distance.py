"""Encodings that add a function of the distance to the logits, whatever the query: KERPLE, Sandwich and FIRE.

Those that are the same on both sides of zero could not tell other distances apart, and FIRE shrinks all but zero as the
length grows. So the digit that a query needs stands at distance zero, as with ALiBi.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import Parameters, PositionEncoding, offsets

SMALLEST = 1e-2  # of KERPLE's r1 and r2, as in the authors' code


@dataclass(frozen=True)
class Kerple(PositionEncoding):
    """-r1 log(1 + r2 |i - j|) with r1, r2 > 0 learned by each head: KERPLE's logarithmic kind (Chi et al. 2022).

    First r1 is uniform in [0, 2], r2 in [0, 1], as in the authors' code.
    """

    from_units = True

    def learned(self, head_size: int, heads: int) -> nn.Module:
        r1, r2 = 2 * torch.rand(heads, 1, 1), torch.rand(heads, 1, 1)
        return Parameters(r1=nn.Parameter(r1), r2=nn.Parameter(r2))

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        with torch.no_grad():  # the parameters themselves: one that was clamped in passing would learn no more
            for parameter in (learned.r1, learned.r2):
                parameter.clamp_(min=SMALLEST)
        return (-learned.r1 * torch.log1p(learned.r2 * offsets(index).abs()))[None]


@dataclass(frozen=True)
class Sandwich(PositionEncoding):
    """p_i p_j = sum over m of cos((i - j) / 10000^(2m / size)), divided by 8h / H in head h of H (Chi et al. 2023)."""

    from_units = True
    size: int = 128  # of the sinusoids, whatever the model's is

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        offset, heads = offsets(index), query.shape[1]
        frequency = 10000 ** (-torch.arange(0, self.size, 2, device=offset.device) / self.size)
        product = (offset[..., None] * frequency).cos().sum(-1)
        head = torch.arange(1, heads + 1, device=offset.device)[:, None, None]
        return (product / (8 * head / heads))[None]


@dataclass(frozen=True)
class Fire(PositionEncoding):
    """f(psi(i - j) / psi(max(L, i))) with psi(x) = log(1 + c x) (FIRE, Li et al. 2024, section 3).

    f is a small network with one output a head; c, 0.1 at first, and L are learned, as the authors do. In
    cross-attention a key can come after the query: there psi is continued as an odd function, and i becomes the
    position of the last key. The quotient stays in [-1, 1], is the paper's where j <= i, and is 0 at any length on the
    digit that is needed.
    """

    from_units = True
    hidden: int = 32
    first_limit: float = 4.0  # L at first: about a quarter of the training length, as the paper's 512 of 2048

    def learned(self, head_size: int, heads: int) -> nn.Module:
        network = nn.Sequential(nn.Linear(1, self.hidden), nn.ReLU(), nn.Linear(self.hidden, heads))
        c, multiple = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(1.0))  # L as a multiple of its first
        return Parameters(network=network, c=c, multiple=multiple)

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        offset, (queries, keys) = offsets(index), index
        length = torch.where(offset > 0, keys.max(), queries[:, None])
        limit = torch.maximum(length, (learned.multiple * self.first_limit).abs())
        above, below = (torch.log1p((learned.c * x).abs()) for x in (offset, limit))
        biases: Tensor = learned.network((-offset.sign() * above / (below + 1e-6))[..., None])  # (query, key, head)
        return biases.permute(2, 0, 1)[None]
