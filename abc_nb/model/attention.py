"""Multi-head attention with an additive bias (Vaswani et al. 2017, section 3.2).

Shapes: B batch, H heads, L queries, S keys, D width, d = D / H. Attention is (B, H, query, key).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.bias.base import CLOSED, Added, Attention, OpenKeys
from abc_nb.model import compiled
from abc_nb.model.positions import PositionEncoding

BLOCK = 2**20  # numbers gathered at once: about 4 MB
KeysValues = tuple[Tensor, Tensor]  # (B, H, tokens, d) each
Keep = Callable[[Tensor, Tensor], None]  # is given logits and weights (B, H, query, key)


def over_all_keys(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    keep: Keep | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(d) + bias) value, the mean of values over all keys: (B, H, L, d).

    query (B, H, L, d), key and value (B, H, S, d). The bias broadcasts to (B, H, L, S); minus infinity closes a key,
    and a query without an open key gives zero. `keep` receives logits, bias included, and weights, and then there
    is no dropout.
    """
    if keep is None and not dropout and value.dtype == query.dtype and compiled.fits(query, key.shape[2]):
        return compiled.attend(query, key, value, bias)
    if keep is None:
        if bias is None:
            return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        bias, closed = opened(bias.to(query.dtype), -1)  # of another type it is read wrongly on a processor
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)
        return mixed.masked_fill(closed, 0.0)
    logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = torch.softmax(logits, -1) if bias is None else softmax_or_zero(logits, bias, -1)
    keep(logits if bias is None else logits + bias, weights)
    return weights @ value


def over_open_keys(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float = 0.0) -> Tensor:
    """The same where each query has a few keys of its own, which are gathered already: (..., H, d).

    query (..., H, d), key and value (..., slots, H, d). The bias broadcasts to (..., slots, H); minus infinity closes
    a slot, and a query without an open slot gives zero. `...` is (B, L) in a model and (contexts,) in a certificate.
    """
    logits = (query.unsqueeze(-3) * key).sum(-1) / query.shape[-1] ** 0.5
    weights = F.dropout(softmax_or_zero(logits, bias, -2), dropout)
    return (weights[..., None] * value).sum(-3)


def softmax_or_zero(logits: Tensor, bias: Tensor, dim: int) -> Tensor:
    """softmax(logits + bias) over the keys in `dim`; where the bias leaves no key open, zero instead of NaN."""
    bias, closed = opened(bias, dim)
    return torch.softmax(logits + bias, dim).masked_fill(closed, 0.0)


def opened(bias: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The bias with zeros for queries that it leaves no key, and which these are (`dim`, over keys, is kept)."""
    closed = (bias == CLOSED).all(dim, keepdim=True)
    return bias.masked_fill(closed, 0.0), closed


class Cache:
    """Keys and values of the tokens so far, of each layer; going back is forgetting the last ones.

    `problem`: those of the problem, of each layer, that a decoder was given.
    """

    def __init__(self, problem: Sequence[KeysValues] = ()) -> None:
        self.problem, self.count, self.layers = problem, 0, list[KeysValues]()

    def put(self, number: int, new: KeysValues) -> KeysValues:
        """Keys and values of a layer's tokens, new ones included, which are counted when all layers have them."""
        if number == len(self.layers):
            self.layers.append(new)
            return new
        total, (key, value) = self.count + new[0].shape[2], self.layers[number]
        if total > key.shape[2]:
            self.layers[number] = key, value = (
                widened(key, self.count, 2 * total),
                widened(value, self.count, 2 * total),
            )
        key[:, :, self.count : total], value[:, :, self.count : total] = new
        return key[:, :, :total], value[:, :, :total]


def widened(known: Tensor, count: int, tokens: int) -> Tensor:
    """The first keys or values, with room for so many tokens; in memory as a linear layer's (B, tokens, D)."""
    batch, heads, _, size = known.shape
    wider = known.new_zeros(batch, tokens, heads, size).transpose(1, 2)
    wider[:, :, :count] = known[:, :, :count]
    return wider


@dataclass
class Record:
    """Attention that a forward pass leaves behind on request: (B, H, query, key), or its mean (H, query, key)."""

    average: bool = False  # over the batch
    weights: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)
    logits: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)  # bias included

    def keep(self, names: Sequence[Attention], layer: int, sources: int, logits: Tensor, weights: Tensor) -> None:
        """Of two attentions under one softmax the first is that to the problem, which has so many tokens."""
        sizes = [sources] * (len(names) - 1) + [logits.shape[-1] - sources * (len(names) - 1)]
        for name, *own in zip(names, logits.split(sizes, -1), weights.split(sizes, -1), strict=True):
            self.logits[name, layer], self.weights[name, layer] = (x.mean(0) if self.average else x for x in own)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with an additive bias, dense or given by open keys."""

    def __init__(self, width: int, heads: int, dropout: float, position: PositionEncoding) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.encoding, self.position = position, position.learned(width // heads, heads)

    def split(self, x: Tensor) -> Tensor:  # (B, L, D) -> (B, H, L, d)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor, index: Tensor) -> KeysValues:
        """Keys, rotated to their index if the position encoding does that, and values."""
        return self.encoding.rotate(self.split(self.key(memory)), index), self.split(self.value(memory))

    def attend(
        self,
        x: Tensor,
        keys_values: KeysValues,
        bias: Added,
        index: tuple[Tensor, Tensor],
        keep: Keep | None = None,
    ) -> Tensor:
        """Queries from `x` (B, L, D) over given keys and values; `index` = positions of queries and keys."""
        query = self.encoding.rotate(self.split(self.query(x)), index[0])
        if isinstance(bias, OpenKeys):
            mixed = self.gathered(query, *keys_values, bias, index)
        else:
            extra = self.encoding.logits(self.position, query, index)
            if bias is not None and bias.ndim == 3:  # the same for all rows of a batch
                bias = bias[None]
            added = extra if bias is None else bias if extra is None else extra + bias
            mixed = over_all_keys(query, *keys_values, added, self.dropout if self.training else 0.0, keep)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def gathered(
        self, query: Tensor, key: Tensor, value: Tensor, bias: OpenKeys, index: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Gather each query's few keys: time and memory are linear in length."""
        rows = max(1, BLOCK // (query.shape[0] * bias.index.shape[1] * query.shape[1] * query.shape[3]))
        if not torch.is_grad_enabled() and rows < len(bias.index):  # so many that what is gathered stays in the cache
            parts = []
            for block in (slice(start, start + rows) for start in range(0, len(bias.index), rows)):
                here = index[0][block], index[1]
                parts.append(self.gathered(query[:, :, block], key, value, bias.rows(block), here))
            return torch.cat(parts, dim=2)
        by_token = [x.transpose(1, 2) for x in (query, key, value)]  # (B, L or S, H, d), as it lies in memory
        slots = bias.index.shape
        near_key, near_value = (x.index_select(1, bias.index.flatten()).unflatten(1, slots) for x in by_token[1:])
        added, extra = bias.value.permute(1, 2, 0), self.encoding.logits(self.position, query, index, bias.index)
        added = added if extra is None else added + extra.permute(0, 2, 3, 1)
        dropout = self.dropout if self.training else 0.0
        return over_open_keys(by_token[0], near_key, near_value, added, dropout).transpose(1, 2)
