"""Attention under a bias, as `transformers` calls it through its AttentionInterface."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.hf.long import can_be_long
from abc_nb.model.attention import over_all_keys, softmax_or_zero

NAME = "abc_nb"  # of the attention implementation, and of the attribute of an attention module that holds its handle


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
    model's own mask is not used: the bias is causal, and the handle knows the padding.
    """
    handle = vars(module)[NAME][0]
    layer, rows = handle.layer_of(module, query, key)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scaled = query * (scaling * query.shape[-1] ** 0.5)
    if s_aux is None and can_be_long(query, key, value, dropout):
        found = handle.long(rows, layer, scaled, key, value, softcap)
        if found is not None:
            return found.transpose(1, 2).contiguous(), None
    bias = handle.bias_of(rows, layer, query)
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    special = softcap is not None or s_aux is not None or value.shape[-1] != query.shape[-1]
    if not (special or handle.weights_wanted):
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
