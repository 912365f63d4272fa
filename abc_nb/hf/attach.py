"""A bias on the attention of a causal language model of `transformers`, through its AttentionInterface.

While a bias is attached, every layer's attention goes through `biased_attention`, this package's own attention with
the layer's bias. The bias holds the causal mask too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from abc_nb.bias.base import CLOSED, Bias
from abc_nb.common.errors import InputError
from abc_nb.hf.averages import check_model
from abc_nb.hf.sequence import check_bias, cyclic_positions, dense_bias, token_count
from abc_nb.model.attention import over_all_keys
from abc_nb.problems.layouts import Layout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "abc_nb"  # of the attention implementation, and of the attribute of an attention module that holds its bias
KEPT = 128  # matrices


def attach(model: PreTrainedModel, bias: Bias, layout: Layout, period: int | None = None) -> Attached:
    """Put a bias on a model's attention, until the handle that is returned is detached or its `with` block ends.

    `layout` is that of the problems to come; set the handle's `layout` before problems of another width. With a
    `period` the model's `position_ids` are cyclic, whatever is passed. Training, evaluation and `generate` with its
    usual cache work; the prompt is the problem and the answer's first token. Raises InputError for a model that does
    not use the interface, has a bias already or has a sliding window, and for a bias of other heads.
    """
    config = check_model(model)
    check_bias(bias, layout)
    if model.config._attn_implementation == NAME:
        raise InputError("this model has a bias already: detach it first")
    if period is not None:
        cyclic_positions(layout, period)
    dense_bias(bias, layout, 0, config.num_attention_heads)
    register()
    return Attached(model, bias, layout, period)


class Attached:
    """A bias on a model: a context manager, and the handle with which the bias is taken off again."""

    def __init__(self, model: PreTrainedModel, bias: Bias, layout: Layout, period: int | None) -> None:
        self.model, self.bias, self.layout, self.period = model, bias, layout, period
        self.matrix = lru_cache(KEPT)(self.build)
        self.previous = model.config._attn_implementation
        model.set_attn_implementation(NAME)
        if model.config._attn_implementation != NAME:
            raise InputError(
                f"{type(model).__name__} does not use the AttentionInterface of transformers: it takes no bias"
            )
        self.attentions = [module for module in model.modules() if hasattr(module, "layer_idx")]
        for module in self.attentions:
            setattr(module, NAME, self)
        self.hook = model.register_forward_pre_hook(self.place, with_kwargs=True)

    def build(self, layout: Layout, layer: int, heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        with torch.inference_mode(False):  # kept, and used in training later
            return dense_bias(self.bias, layout, layer, heads).to(device, dtype)

    def detach(self) -> None:
        """Leave the model as it was; a second call does nothing."""
        if not self.attentions:
            return
        self.hook.remove()
        for module in self.attentions:
            delattr(module, NAME)
        self.attentions = []
        self.model.set_attn_implementation(self.previous)

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def place(
        self, _: nn.Module, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Before the model's forward pass: check its length, and give its tokens their cyclic index."""
        inputs = (*args[:1], given.get("input_ids"), given.get("inputs_embeds"))
        tokens = next((each for each in inputs if each is not None), None)
        if tokens is None:
            return args, given
        cache = given.get("past_key_values")
        before = 0 if cache is None else int(cache.get_seq_length())
        here = slice(before, before + tokens.shape[1])
        # A prompt fed in token by token is one, too; several tokens that are not even the problem are too few.
        too_few = before == 0 and 1 < here.stop <= self.layout.source_length
        if too_few or here.stop > token_count(self.layout):
            raise InputError(
                f"a sequence has {here.stop} tokens and the layout {self.layout.source_length} of the problem and "
                f"{token_count(self.layout)} in all: set the handle's layout to that of these problems, with one token "
                "for each digit, which a tokenizer must not merge"
            )
        if self.period is not None:
            index = cyclic_positions(self.layout, self.period)
            given = given | {"position_ids": index[None, here].to(tokens.device)}
        return args, given

    def rows(self, layer: int, query: Tensor, keys: int) -> Tensor:
        """The bias (1, head, query, key) of the last queries, like `query` (batch, head, query, size) in type."""
        matrix = self.matrix(self.layout, layer, query.shape[1], query.device, query.dtype)
        return matrix[None, :, keys - query.shape[2] : keys, :keys]


def register() -> None:
    """Make the attention known to transformers; InputError if that is not installed."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise InputError("transformers is not installed: pip install 'abc-nb[hf]'") from error
    AttentionInterface.register(NAME, biased_attention)
    AttentionMaskInterface.register(NAME, no_mask)


def biased_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention (batch, query, head, size) under the module's bias; a query without an open key attends to nothing.

    Several heads of queries can share a head of keys and values.
    """
    if softcap is not None:
        raise InputError("this model caps its attention logits: take a configuration without attn_logit_softcapping")
    bias = getattr(module, NAME).rows(module.layer_idx, query, key.shape[2])
    if attention_mask is not None:
        own = attention_mask.dtype == torch.bool
        bias = bias.masked_fill(~attention_mask, CLOSED) if own else bias + attention_mask
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    if scaling is not None:
        query = query * (scaling * query.shape[-1] ** 0.5)
    return over_all_keys(query, key, value, bias, dropout).transpose(1, 2).contiguous(), None


def no_mask(
    q_length: int, kv_length: int, q_offset: int = 0, attention_mask: Tensor | None = None, **_: object
) -> None:
    """The mask that transformers adds to the bias: none. InputError where the bias's rows would not be the queries'.

    The usual mask would take the cyclic index for several sequences in one row, and close them to each other.
    """
    if attention_mask is not None and not attention_mask.all():
        raise InputError(
            "a bias knows no padding: give problems of one width together, and a pad_token_id that none of them holds"
        )
    if kv_length != q_offset + q_length:
        raise InputError("a bias needs the cache that grows with the sequence: generate without cache_implementation")
