"""Multi-head attention with an additive bias (Vaswani et al. 2017, section 3.2).

Shapes: B batch, H heads, L queries, D width, d = D / H. Attention is (B, H, query, key).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.bias.base import CLOSED, Attention, OpenKeys
from abc_nb.model import compiled
from abc_nb.model.dropout import drop
from abc_nb.model.positions import PositionEncoding

BLOCK = 2**20  # numbers gathered at once: about 4 MB


@dataclass
class Record:
    """Attention that a forward pass leaves behind on request: (B, H, query, key), or its mean (H, query, key)."""

    average: bool = False  # over the batch
    weights: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)
    logits: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)  # bias included


class Place(NamedTuple):
    """Where one attention's weights go in a record."""

    record: Record
    name: Attention
    layer: int

    def keep(self, logits: Tensor, weights: Tensor) -> None:
        average = self.record.average
        self.record.logits[self.name, self.layer] = logits.mean(0) if average else logits
        self.record.weights[self.name, self.layer] = weights.mean(0) if average else weights


class MultiHeadAttention(nn.Module):
    """Multi-head attention with an additive bias, dense or given by open keys."""

    def __init__(self, width: int, heads: int, dropout: float, position: PositionEncoding) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.position = position.attention(width // heads, heads)

    def split(self, x: Tensor) -> Tensor:  # (B, L, D) -> (B, H, L, d)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Keys, rotated to their index if the position encoding does that, and values."""
        return self.position.rotate(self.split(self.key(memory)), index), self.split(self.value(memory))

    def attend(
        self,
        x: Tensor,
        keys_values: tuple[Tensor, Tensor],
        bias: Tensor | OpenKeys | None,
        index: tuple[Tensor, Tensor],
        record: Place | None = None,
    ) -> Tensor:
        """Queries from `x` (B, L, D) over given keys and values; `index` = positions of queries and keys."""
        query = self.position.rotate(self.split(self.query(x)), index[0])
        if isinstance(bias, OpenKeys):
            mixed = self.in_blocks(query, *keys_values, bias, index)
        else:
            mixed = self.over_all_keys(query, *keys_values, bias, index, record)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def over_all_keys(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        index: tuple[Tensor, Tensor],
        record: Place | None,
    ) -> Tensor:
        extra = self.position.logits(query, index[1] - index[0][:, None], index)
        bias = None if bias is None else bias[None]  # (1, H or 1, L, S): three dimensions miss the fast path
        total = bias if extra is None else extra if bias is None else extra + bias
        dropout = self.dropout if self.training else 0.0
        fast = record is None and (query.is_cuda or not dropout)  # PyTorch's path knows no dropout on a processor,
        if fast and not dropout and compiled.fits(query, key.shape[2]):
            return compiled.attend(query, key, value, total)
        closed = None if fast and not query.is_cuda else without_key(bias, dim=-1)  # and on a GPU no closed query
        if fast and closed is None:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=total, dropout_p=dropout)
        logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        logits = logits if total is None else logits + total
        weights = softmax_or_zero(logits, closed)
        if record is not None:
            record.keep(logits, weights)
        return drop(weights, self.dropout, self.training) @ value

    def in_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, bias: OpenKeys, index: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Over open keys, in blocks of queries small enough that what is gathered stays in the cache."""
        rows = max(1, BLOCK // (query.shape[0] * bias.index.shape[1] * query.shape[1] * query.shape[3]))
        if torch.is_grad_enabled() or rows >= len(bias.index):
            return self.over_open_keys(query, key, value, bias, index)
        parts = []
        for start in range(0, len(bias.index), rows):
            block = slice(start, start + rows)
            here = (index[0][block], index[1])
            parts.append(self.over_open_keys(query[:, :, block], key, value, bias.rows(block), here))
        return torch.cat(parts, dim=2)

    def over_open_keys(
        self, query: Tensor, key: Tensor, value: Tensor, bias: OpenKeys, index: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Gather each query's few keys: time and memory are linear in length."""
        by_token = [x.transpose(1, 2) for x in (query, key, value)]  # (B, L or S, H, d), as it lies in memory
        slots = bias.index.shape
        near_key, near_value = (x.index_select(1, bias.index.flatten()).unflatten(1, slots) for x in by_token[1:])
        logits = (by_token[0][:, :, None] * near_key).sum(-1) / query.shape[-1] ** 0.5  # (B, L, slots, H)
        added = bias.value.permute(1, 2, 0)
        logits = logits + added
        extra = self.position.logits(query, index[1][bias.index] - index[0][:, None], index)
        logits = logits if extra is None else logits + extra.permute(0, 2, 3, 1)
        weights = drop(softmax_or_zero(logits, without_key(added, dim=1), dim=2), self.dropout, self.training)
        return (weights[..., None] * near_value).sum(2).transpose(1, 2)


def without_key(bias: Tensor | None, dim: int) -> Tensor | None:
    """The queries to which a bias leaves no key open (`dim` runs over keys and is kept), or None if it has none."""
    if bias is None:
        return None
    closed = (bias == CLOSED).all(dim, keepdim=True)
    return closed if closed.any() else None


def softmax_or_zero(logits: Tensor, closed: Tensor | None, dim: int = -1) -> Tensor:
    """Softmax over keys; `closed` queries attend to nothing instead of becoming NaN."""
    if closed is None:
        return torch.softmax(logits, dim=dim)
    return torch.softmax(logits.masked_fill(closed, 0.0), dim=dim).masked_fill(closed, 0.0)
