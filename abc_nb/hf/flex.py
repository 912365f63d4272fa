"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which has a block-sparse kernel on GPUs.

Where the bias has few open keys both functions take memory linear in the sequence's length, otherwise quadratic.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.hf.sequence import dense_bias, open_bias
from abc_nb.problems.layouts import Layout

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key


def mask_mod(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str = "cpu") -> MaskMod:
    """Which keys are open in one layer, for `create_block_mask(mask_mod, None, heads, tokens, tokens)`."""
    added = bias_at(bias, layout, layer, heads, device)

    def opened(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return added(head, query, key) > CLOSED

    return opened


def score_mod(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str = "cpu") -> ScoreMod:
    """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
    added = bias_at(bias, layout, layer, heads, device)

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + added(head, query, key)

    return biased


def bias_at(
    bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The bias of (head, query, key), given by integers of any one shape.

    Slots are gone through one by one, since FlexAttention's kernels take no sum over an axis.
    """
    few = open_bias(bias, layout, layer, heads)
    if few is None:
        matrix = dense_bias(bias, layout, layer, heads).to(device)
        return lambda head, query, key: matrix[head, query, key]
    keys: OpenKeys = few.to(torch.device(device))

    def added(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        total = torch.full_like(keys.value[head, query, 0], CLOSED)
        for slot in range(keys.index.shape[1]):
            here = torch.where(keys.index[query, slot] == key, keys.value[head, query, slot], CLOSED)
            total = torch.maximum(total, here)
        return total

    return added
