"""Relative positions: vectors of the offset between a query and a key, which the query is multiplied with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.common.config import check_fields
from abc_nb.model.positions.base import PositionEncoding


def offsets(index: tuple[Tensor, Tensor]) -> Tensor:
    """Key position - query position: (query, key)."""
    queries, keys = index
    return keys - queries[:, None]


@dataclass(frozen=True)
class Relative(PositionEncoding):
    """A learned vector for each clipped offset is added to the keys (RPE, Shaw et al. 2018, equation 4)."""

    clip: int = 16

    def __post_init__(self) -> None:
        check_fields(self, clip=0)

    def learned(self, head_size: int, heads: int) -> nn.Module:
        return nn.ParameterDict({"table": torch.randn(2 * self.clip + 1, head_size) * head_size**-0.5})

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
        by_offset = query @ learned.table.T / query.shape[-1] ** 0.5  # (batch, head, query, 2 * clip + 1)
        table_index = offsets(index).clamp(-self.clip, self.clip) + self.clip
        return by_offset.gather(-1, table_index.expand(*query.shape[:-1], table_index.shape[-1]))
