"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which computes only those blocks that have open keys.

Queries and keys behind the layout's tokens see nothing and are not seen, so that a sequence can be padded. `offset` is
the number of tokens before the first query, as while generating with a cache; a tensor can be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias
from abc_nb.bias.sequence import dense_bias, open_bias, token_count
from abc_nb.problems.layouts import Layout

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key
Device = torch.device | str
BLOCK, LEAST = 128, 2**12  # queries and keys of a block; numbers that are looked up


def mask_mod(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", offset: int | Tensor = 0
) -> MaskMod:
    """Which keys are open in one layer, for `create_block_mask(mask_mod, None, heads, queries, keys)`."""
    added = bias_at(bias, layout, layer, heads, device, offset)

    def opened(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return added(head, query, key) > CLOSED

    return opened


def score_mod(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", offset: int | Tensor = 0
) -> ScoreMod:
    """The logits of one layer under the bias, for `flex_attention(query, key, value, score_mod)`."""
    added = bias_at(bias, layout, layer, heads, device, offset)

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + added(head, query, key)

    return biased


def block_mask(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device = "cpu", tokens: int | None = None
) -> BlockMask:
    """What `create_block_mask` makes of `mask_mod` for a sequence of so many tokens, padding included.

    In time and memory linear in the length where the bias leaves few keys open; `create_block_mask` takes its square.
    """
    from torch.nn.attention.flex_attention import BlockMask

    tokens, few = tokens or token_count(layout), open_bias(bias, layout, layer, heads)
    blocks, known = -(-tokens // BLOCK), -(-token_count(layout) // BLOCK)
    if few is None:
        edge = known * BLOCK - token_count(layout)
        opened = pad(dense_bias(bias, layout, layer, heads) > CLOSED, (0, edge, 0, edge))
        found = opened.unflatten(2, (-1, BLOCK)).any(3).unflatten(1, (-1, BLOCK)).any(2)
    else:
        head, query, slot = (few.value > CLOSED).nonzero().unbind(1)
        found = torch.zeros(heads, known, known, dtype=torch.bool)
        found[head, query // BLOCK, few.index[query, slot] // BLOCK] = True
    found = pad(found, (0, blocks - known, 0, blocks - known))  # fewer tokens than the layout has, or more
    order = found.int().argsort(dim=2, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(
        found.sum(2, dtype=torch.int32)[None].to(device),
        order[None].to(device),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod(bias, layout, layer, heads, device),
        seq_lengths=(tokens, tokens),
    )


def bias_at(
    bias: Bias, layout: Layout, layer: int, heads: int, device: Device, offset: int | Tensor
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The bias of (head, query, key), given by integers of any one shape.

    Slots are gone through one by one, since FlexAttention's kernels take no sum over an axis. For a head that the bias
    does not have it is not a number.
    """
    few = open_bias(bias, layout, layer, heads)
    before, tokens = (torch.as_tensor(each, device=device) for each in (offset, token_count(layout)))
    slots = 1 if few is None else few.index.shape[1]
    value = flat(dense_bias(bias, layout, layer, heads) if few is None else few.value, device)
    index = None if few is None else flat(few.index, device)

    def added(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query = query + before
        known = (query < tokens) & (key < tokens)
        query, key = query.clamp(max=tokens - 1), key.clamp(max=tokens - 1)
        if index is None:
            return torch.where(known, value[(head * tokens + query) * tokens + key], CLOSED)
        total = torch.full_like(value[query], CLOSED)
        for slot in range(slots):
            here = known & (index[query * slots + slot] == key)
            total = torch.maximum(total, torch.where(here, value[(head * tokens + query) * slots + slot], CLOSED))
        return total

    return added


def flat(numbers: Tensor, device: Device) -> Tensor:
    """The same numbers along one axis, whose length is a power of two and a constant of what is compiled.

    Compiled for a processor, a kernel can take another length for that of its own blocks (torch 2.13). A constant is
    no length, and since it is a power of two, few of them are compiled.
    """
    from torch._dynamo import mark_static

    room = max(LEAST, 1 << (numbers.numel() - 1).bit_length())
    behind = float("nan") if numbers.is_floating_point() else -1
    found = pad(numbers.flatten(), (0, room - numbers.numel()), value=behind).to(device)
    mark_static(found)
    return found
