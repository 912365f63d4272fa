"""FIRE, functional interpolation for relative positions (Li et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_nb.model.positions.base import AttentionPosition, Centred, offsets


@dataclass(frozen=True)
class Fire(Centred):
    """f(psi(i - j) / psi(max(L, i))) is added to the logits, psi(x) = log(1 + c x) (Li et al. 2024, section 3).

    f is a small network with one output a head; c and L are learned. In cross-attention a key can come
    after the query: there psi is continued as an odd function, and i becomes the position of the last key.
    The quotient stays in [-1, 1], is the paper's where j <= i, and is 0 at any length on the digit that is needed.
    """

    hidden: int = 32
    first_limit: float = 4.0  # L at first: about a quarter of the training length, as the paper's 512 of 2048

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return FireAttention(self.hidden, self.first_limit, heads)


class FireAttention(AttentionPosition):
    """`c` is 0.1 at first, and L is learned as a multiple of its first value, as the authors do."""

    def __init__(self, hidden: int, first_limit: float, heads: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, heads))
        self.first_limit = first_limit
        self.c, self.multiple = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(1.0))

    def psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c * x).abs())

    def logits(self, query: Tensor, index: tuple[Tensor, Tensor], chosen: Tensor | None = None) -> Tensor:
        offset, (queries, keys) = offsets(index, chosen), index
        length = torch.where(offset > 0, keys.max(), queries[:, None])
        limit = torch.maximum(length, (self.multiple * self.first_limit).abs())
        quotient = -offset.sign() * self.psi(offset) / (self.psi(limit) + 1e-6)
        biases: Tensor = self.network(quotient[..., None])  # (query, key, head)
        return biases.permute(2, 0, 1)[None]
