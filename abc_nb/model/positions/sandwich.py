"""Sandwich (Chi et al. 2023): a bias of sinusoids' inner products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_nb.model.positions.base import AttentionPosition, Centred, offsets


@dataclass(frozen=True)
class Sandwich(Centred):
    """p_i p_j = sum over m of cos((i - j) / 10000^(2m / size)), divided by 8h / H in head h of H (Chi et al. 2023)."""

    size: int = 128  # of the sinusoids, whatever the model's is

    def attention(self, head_size: int, heads: int) -> AttentionPosition:
        return SandwichAttention(self.size, heads)


class SandwichAttention(AttentionPosition):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.size, self.heads = size, heads

    def logits(self, query: Tensor, index: tuple[Tensor, Tensor], chosen: Tensor | None = None) -> Tensor:
        offset = offsets(index, chosen)
        frequency = 10000 ** (-torch.arange(0, self.size, 2, device=offset.device) / self.size)
        product = (offset[..., None] * frequency).cos().sum(-1)
        head = torch.arange(1, self.heads + 1, device=offset.device)[:, None, None]
        return (product / (8 * head / self.heads))[None]
