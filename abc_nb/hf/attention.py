"""Attention under a bias, as `transformers` calls it through its AttentionInterface.

An attention module under a bias has a `Place`: the number of its layer, and the handle of the bias, which knows the
`Pass` that runs in this thread. Short sequences take the dense matrix of the bias, and long ones FlexAttention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.hf.flex import by_blocks
from abc_nb.hf.rows import Rows
from abc_nb.model.attention import over_all_keys, softmax_or_zero

NAME = "abc_nb"  # of the attention implementation, and of the attribute of an attention module that holds its place


@dataclass
class Pass:
    """A forward pass under a bias. Each belongs to one thread."""

    rows: Rows
    finish: Callable[[Any], None] | None = None  # what is done with the model's output
    weights_wanted: bool = False
    made: tuple[int, Tensor] | None = None  # the bias of the last layer, which others with the same bias share

    def bias(self, layer: int, query: Tensor) -> Tensor:
        """What is added to a layer's logits: (row or 1, head, query, key), like the queries."""
        first = self.rows.biases[0].same_as(layer)
        if self.made is None or self.made[0] != first:
            self.made = first, self.rows.bias(first, query)
        return self.made[1]

    def check(self, query: Tensor, key: Tensor) -> None:
        """InputError for queries and keys (row, head, token, size) that are not those of the pass."""
        if query.shape[2] != self.rows.tokens - self.rows.before or key.shape[2] != self.rows.tokens:
            raise InputError(
                "a bias needs the whole sequence, or a cache that grows and keeps all tokens before: give one of both"
            )


@dataclass
class Place:
    """Where an attention module stands: the handle of its model's bias, and its layer, counted from 0."""

    handle: Any
    layer: int | None = None  # None: it has not attended yet


def register() -> None:
    """Make the attention known to transformers; InputError if that is not installed."""
    try:
        from transformers import AttentionInterface
    except ImportError as error:
        raise InputError("transformers is not installed: pip install 'abc-nb[hf]'") from error
    AttentionInterface.register(NAME, biased_attention)


def biased_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """Attention (batch, query, head, size) under the module's bias, and its weights if the model is asked for them.

    Several heads of queries can share a head of keys and values. A query without an open key attends to nothing. The
    model's own mask is not used: the bias is causal, and the pass knows the padding.
    """
    handle = vars(module)[NAME].handle
    layer, run = handle.layer_of(module, query), handle.running
    run.check(query, key)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scaled = query * (scaling * query.shape[-1] ** 0.5)
    special = run.weights_wanted or s_aux is not None or value.shape[-1] != query.shape[-1]
    if not special and not dropout and query.dtype == key.dtype == value.dtype:
        mixed = by_blocks(handle, run.rows, layer, scaled, key, value, softcap)
        if mixed is not None:
            return mixed.transpose(1, 2).contiguous(), None
    bias = run.bias(layer, query)
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    if not special and softcap is None:
        mixed = over_all_keys(scaled, key, value, bias, dropout)
        return mixed.transpose(1, 2).contiguous(), None
    weights = weighted(query @ key.transpose(-1, -2) * scaling, bias, softcap, s_aux)
    mixed = nn.functional.dropout(weights, dropout) @ value
    return mixed.transpose(1, 2).contiguous(), weights


def weighted(logits: Tensor, bias: Tensor, softcap: float | None, sinks: Tensor | None) -> Tensor:
    """Weights (batch, head, query, key) of logits that are capped first (Gemma 2), beside a sink a head (gpt-oss).

    A sink is a logit that takes part in the softmax, and whose weight goes nowhere.
    """
    kind = logits.dtype
    logits, bias = logits.float(), bias.float()
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    if sinks is not None:
        logits = torch.cat([logits, sinks.float()[None, :, None, None].expand(*logits.shape[:3], 1)], -1)
        bias = nn.functional.pad(bias, (0, 1))
    weights = softmax_or_zero(logits, bias, -1)
    return (weights if sinks is None else weights[..., :-1]).to(kind)
