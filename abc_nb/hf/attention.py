"""Attention under a bias, as `transformers` calls it through its AttentionInterface.

An attention module under a bias has the handle of the bias, which knows its layer and the `Pass` that runs in this
thread. Short sequences take the family's plain attention, with the dense matrix of the bias as its mask, and long ones
FlexAttention.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.hf.flex import by_blocks
from abc_nb.model.attention import without_empty_rows

NAME = "abc_nb"  # of the attention implementation, and of the attribute of an attention module that holds the handle


def register_attention() -> None:
    """Make the attention known to transformers; InputError if that is not installed."""
    try:
        from transformers import AttentionInterface
    except ImportError as error:
        raise InputError("transformers is not installed: pip install 'abc-nb[hf]'") from error
    AttentionInterface.register(NAME, biased_attention)


def biased_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: object, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention (batch, query, head, size) under the module's bias, and its weights (batch, head, query, key).

    A query without an open key attends to nothing. The model's own mask is not used: the bias is causal, and the pass
    knows the padding. What else a model passes, as a cap on logits, goes to its family's own attention.
    """
    handle = vars(module)[NAME]
    layer, run = handle.layer_of(module, query), handle.running
    special = any(options.get(name) is not None for name in ("softcap", "s_aux")) or options.get("dropout")
    uniform = query.dtype == key.dtype == value.dtype and query.shape[-1] == value.shape[-1]
    if uniform and not special and not run.output_attentions:
        mixed = by_blocks(handle, run, layer, query, key, value, options.get("scaling"))
        if mixed is not None:
            return mixed.transpose(1, 2).contiguous(), None
    bias, closed = without_empty_rows(run.bias(layer, query, key), -1)
    mixed, weights = plain_attention(type(module))(module, query, key, value, bias, **options)
    return mixed.masked_fill(closed.transpose(1, 2), 0.0), weights.masked_fill(closed, 0.0)


def plain_attention(kind: type) -> Callable[..., tuple[Tensor, Tensor]]:
    """The attention that computes with all keys, as each family of transformers has it beside its attention module."""
    name, modules = "eager_attention_forward", (vars(sys.modules[base.__module__]) for base in kind.__mro__)
    attention: Callable[..., tuple[Tensor, Tensor]] = next(module[name] for module in modules if name in module)
    return attention
