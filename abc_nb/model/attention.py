"""Multi-head attention with an additive bias (Vaswani et al. 2017, section 3.2).

Shapes: B batch, H heads, L queries, S keys, D width, d = D / H. Attention is (B, H, query, key).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.bias.base import CLOSED, Added, Attention, OpenKeys
from abc_nb.model import compiled
from abc_nb.model.dropout import dropped
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
    """softmax(query key^T / sqrt(d) + bias) value: (B, H, L, d), of query (B, H, L, d), key and value (B, H, S, d).

    The bias broadcasts to (B, H, L, S); minus infinity closes a key, and a query without an open key gives zero.
    `keep` receives logits, bias included, and weights, and then there is no dropout.
    """
    if keep is not None:
        logits = query @ key.mT / query.shape[-1] ** 0.5
        weights = torch.softmax(logits, -1) if bias is None else softmax_or_zero(logits, bias, -1)
        keep(logits if bias is None else logits + bias, weights)
        return weights @ value
    if value.dtype == query.dtype and compiled.can_attend(query, key.shape[2]):
        return compiled.attend(query, key, value, bias, dropout)
    if bias is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    bias, closed = without_empty_rows(bias.to(query.dtype), -1)  # of another type it is read wrongly on a processor
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)
    return mixed.masked_fill(closed, 0.0)


def over_open_keys(query: Tensor, key: Tensor, value: Tensor, bias: OpenKeys, dropout: float = 0.0) -> Tensor:
    """The same over each query's few keys alone, which are gathered: time and memory are linear in length."""
    rows = max(1, BLOCK // (query.shape[0] * bias.index.shape[1] * query.shape[1] * query.shape[3]))
    if not torch.is_grad_enabled() and rows < len(bias.index):  # so many that what is gathered stays in the cache
        blocks = [slice(start, start + rows) for start in range(0, len(bias.index), rows)]
        return torch.cat([over_open_keys(query[:, :, block], key, value, bias.rows(block)) for block in blocks], dim=2)
    by_token = [x.transpose(1, 2) for x in (query, key, value)]  # (B, L or S, H, d), as it lies in memory
    index, shape = bias.index.flatten(), bias.index.shape
    open_key, open_value = (x.index_select(1, index).unflatten(1, shape) for x in by_token[1:])
    logits = (by_token[0].unsqueeze(2) * open_key).sum(-1) / query.shape[-1] ** 0.5  # (B, L, slots, H)
    weights = dropped(softmax_or_zero(logits, bias.value.permute(1, 2, 0), -2), dropout)
    return (weights[..., None] * open_value).sum(2).transpose(1, 2)


def softmax_or_zero(logits: Tensor, bias: Tensor, dim: int) -> Tensor:
    """softmax(logits + bias) over the keys in `dim`; where the bias leaves no key open, zero instead of NaN."""
    bias, closed = without_empty_rows(bias, dim)
    return torch.softmax(logits + bias, dim).masked_fill(closed, 0.0)


def without_empty_rows(bias: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The bias with zeros for queries that it leaves no key, and which these are (`dim`, over keys, is kept)."""
    closed = (bias == CLOSED).all(dim, keepdim=True)
    return bias.masked_fill(closed, 0.0), closed


class Cache:
    """Each layer's keys and values of the tokens so far, and of the `problem`; going back is forgetting the last."""

    def __init__(self, problem: Sequence[KeysValues] = ()) -> None:
        self.problem, self.count, self.layers = problem, 0, list[KeysValues]()

    def put(self, number: int, new: KeysValues) -> KeysValues:
        """Keys and values of a layer's tokens, new ones included, which are counted when all layers have them."""
        if number == len(self.layers):
            self.layers.append(new)
            return new
        total, (key, value) = self.count + new[0].shape[2], self.layers[number]
        if total > key.shape[2]:  # room for as many again, in memory as a linear layer's (B, tokens, H, d)
            room = (0, 0, 0, 0, 0, 2 * total - key.shape[2])
            key, value = (F.pad(x.transpose(1, 2), room).transpose(1, 2) for x in (key, value))
            self.layers[number] = key, value
        key[:, :, self.count : total], value[:, :, self.count : total] = new
        return key[:, :, :total], value[:, :, :total]


@dataclass
class AttentionRecord:
    """Attention that a forward pass leaves behind on request: (B, H, query, key), or its mean (H, query, key)."""

    average: bool = False  # over the batch
    weights: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)
    logits: dict[tuple[Attention, int], Tensor] = field(default_factory=dict)  # bias included

    def keep(self, names: Sequence[Attention], layer: int, sources: int, logits: Tensor, weights: Tensor) -> None:
        """Of two attentions under one softmax the first is that to the problem, which has so many tokens."""
        sizes = [sources] * (len(names) - 1) + [logits.shape[-1] - sources * (len(names) - 1)]
        for name, *parts in zip(names, logits.split(sizes, -1), weights.split(sizes, -1), strict=True):
            self.logits[name, layer], self.weights[name, layer] = (x.mean(0) if self.average else x for x in parts)


class MultiHeadAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, position: PositionEncoding) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.encoding, self.position = position, position.learned(width // heads, heads)

    def split(self, x: Tensor) -> Tensor:  # (B, L, D) -> (B, H, L, d)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor, index: Tensor) -> KeysValues:
        """Keys, rotated to their index if the encoding does that, and values."""
        return self.encoding.rotate(self.split(self.key(memory)), index), self.split(self.value(memory))

    def attend(
        self, x: Tensor, keys_values: KeysValues, bias: Added, index: tuple[Tensor, Tensor], keep: Keep | None = None
    ) -> Tensor:
        """Queries from `x` (B, L, D) over given keys and values; `index` = positions of queries and keys."""
        query = self.encoding.rotate(self.split(self.query(x)), index[0])
        dropout = self.dropout if self.training else 0.0
        if isinstance(bias, OpenKeys):
            mixed = over_open_keys(query, *keys_values, bias, dropout)
        else:
            bias = bias[None] if bias is not None and bias.ndim == 3 else bias  # the same for all rows of a batch
            positional = self.encoding.logits(self.position, query, index)
            added = positional if bias is None else bias if positional is None else positional + bias
            mixed = over_all_keys(query, *keys_values, added, dropout, keep)
        return self.out(mixed.transpose(1, 2).flatten(2))
