"""Attention under a bias, as `transformers` calls it through its AttentionInterface.

Short sequences take the dense matrix of the bias. Long ones take FlexAttention, compiled, whose time and memory are
linear in the length where the matrix takes its square.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Bias, OpenKeys
from abc_nb.common.errors import InputError
from abc_nb.hf.flex import At, ScoreMod, bias_at, biased, blocks
from abc_nb.hf.rows import Rows, values
from abc_nb.model.attention import over_all_keys, softmax_or_zero
from abc_nb.problems.layouts import Layout

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

NAME = "abc_nb"  # of the attention implementation, and of the attribute of an attention module that holds its handle
LONG = 2048  # tokens from which on FlexAttention is taken; measured, see docs/transformers.md
SLOTS = 32  # the most open keys of a query that FlexAttention goes through one by one
COMPILED = 64  # the most kernels that are kept: one for each type, number of slots and doubling of the length


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
    handle = vars(module)[NAME]
    layer, rows = handle.layer_of(module, query, key)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scaled = query * (scaling * query.shape[-1] ** 0.5)
    same = query.shape[-1] == value.shape[-1] and query.dtype == key.dtype == value.dtype
    if same and s_aux is None and not dropout and not handle.weights_wanted:
        mixed = by_blocks(handle, rows, layer, scaled, key, value, softcap)
        if mixed is not None:
            return mixed.transpose(1, 2).contiguous(), None
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


def by_blocks(
    handle: Any, rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, softcap: float | None
) -> Tensor | None:
    """Attention (batch, head, query, size) by FlexAttention; None where the dense matrix is taken.

    That is for short sequences, padded ones, many open keys, and gradients on a processor, which it does not know. A
    warning says where it is not compiled; the handle takes the matrix from then on.
    """
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    short = (rows.tokens - rows.before) * rows.tokens < handle.long**2
    if rows.layout is None or short or (learns and query.device.type == "cpu") or torch.compiler.is_compiling():
        return None
    own = parts(handle.bias, rows.layout, layer, query.shape[1], query.device, rows.before, rows.tokens)
    if own is None:
        return None
    from torch._dynamo import config, exc  # takes seconds, which short problems need not wait for

    score = biased(own[0], softcap)
    inputs = [x.contiguous() for x in (query, key, value)]  # since a kernel is of one order in memory
    try:
        with config.patch(recompile_limit=COMPILED):
            return compiled()(*inputs, score, own[1])
    except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
        handle.long, reason = sys.maxsize, str(error).strip().partition("\n")[0]
        warnings.warn(f"FlexAttention is not compiled, so attention takes the dense matrix: {reason}", stacklevel=2)
        return None


@lru_cache(maxsize=32)  # layers: a pass asks for the same as the one before
@torch.inference_mode(False)  # used in training later
def parts(
    bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device, before: int, tokens: int
) -> tuple[At, BlockMask] | None:
    """A layer's bias as kernels look it up, and the blocks that they compute; None for too many open keys."""
    few = values(bias, layout, layer, heads, device)
    if not isinstance(few, OpenKeys) or few.index.shape[1] > SLOTS:
        return None
    return bias_at(few, before), blocks(few, tokens, before)


@cache
def compiled() -> Any:
    """FlexAttention, compiled for itself: what others compile of it does not count for the kernels that are kept."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, score: ScoreMod, blocks: BlockMask) -> Tensor:
        return flex_attention(query, key, value, score, blocks, enable_gqa=query.shape[1] != key.shape[1])

    return torch.compile(attention, fullgraph=True)
