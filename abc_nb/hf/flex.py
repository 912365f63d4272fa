"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which computes only those blocks that have open keys.

Its time and memory are linear in the length where the bias leaves few keys open, and the dense matrix takes the square.
Queries and keys behind the layout's tokens, with which a kernel fills its blocks, see nothing and are not seen.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, OpenKeys
from abc_nb.hf.passes import Pass, SequenceBias

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key
BLOCK, LEAST = 128, 2**12  # queries and keys of a block; numbers that are looked up
LONG = 2048  # tokens from which on FlexAttention is taken; measured, see docs/transformers.md
SLOTS = 32  # the most open keys of a query, which are gone through one by one
COMPILED = 64  # the most kernels that are kept: one for each type, number of slots and doubling of the length


@lru_cache(maxsize=32)  # layers: a pass asks for the same as the one before
@torch.inference_mode(False)  # used in training later
def kernel_inputs(
    bias: SequenceBias, layer: int, heads: int, device: torch.device, tokens: int
) -> tuple[ScoreMod, Any] | None:
    """A bias as kernels look it up, and the blocks that they compute; None for too many open keys."""
    keys = bias.open_keys(layer, heads, device)
    return None if keys is None or keys.index.shape[1] > SLOTS else (score_mod(keys), block_mask(keys, tokens))


def block_mask(keys: OpenKeys, tokens: int) -> Any:
    """A `BlockMask`: where queries have open keys; all cells of a block are computed."""
    from torch.nn.attention.flex_attention import BlockMask

    count, keys = -(-tokens // BLOCK), keys.rows(slice(tokens))
    head, query, slot = ((keys.value > CLOSED) & (keys.index < tokens)).nonzero().unbind(1)
    is_open = torch.zeros(len(keys.value), count, count, dtype=torch.bool, device=keys.value.device)
    is_open[head, query // BLOCK, keys.index[query, slot] // BLOCK] = True
    order, counts = is_open.int().argsort(dim=2, descending=True, stable=True).int(), is_open.sum(2, dtype=torch.int32)
    return BlockMask.from_kv_blocks(counts[None], order[None], BLOCK_SIZE=BLOCK, seq_lengths=(tokens, tokens))


def score_mod(keys: OpenKeys) -> ScoreMod:
    """Logits with the bias added, as a function of integers of any one shape.

    Slots are gone through one by one, since kernels take no sum over an axis; their number is a power of two, so that
    few kernels are compiled. For a head that the bias does not have it is not a number.
    """
    slots = 1 << (keys.index.shape[1] - 1).bit_length()
    padding = 0, slots - keys.index.shape[1]
    index, value = in_powers_of_two(pad(keys.index, padding)), in_powers_of_two(pad(keys.value, padding, value=CLOSED))
    tokens = torch.as_tensor(len(keys.index), device=value.device)

    def biased(score: Tensor, _: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        inside = (query < tokens) & (key < tokens)
        query, key = query.clamp(max=tokens - 1), key.clamp(max=tokens - 1)
        total = torch.full_like(value[query], CLOSED)
        for slot in range(slots):
            in_slot = inside & (index[query * slots + slot] == key)
            total = torch.maximum(total, torch.where(in_slot, value[(head * tokens + query) * slots + slot], CLOSED))
        return score + total

    return biased


def in_powers_of_two(numbers: Tensor) -> Tensor:
    """The same numbers along one axis, whose length is a power of two and a constant of what is compiled.

    Compiled for a processor, a kernel can take another length for that of its own blocks (torch 2.13). A constant is
    no length, and since it is a power of two, few of them are compiled.
    """
    from torch._dynamo import mark_static

    missing = max(LEAST, 1 << (numbers.numel() - 1).bit_length()) - numbers.numel()
    padded = pad(numbers.flatten(), (0, missing), value=float("nan") if numbers.is_floating_point() else -1)
    mark_static(padded)
    return padded


def by_blocks(
    handle: Any, run: Pass, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Tensor | None:
    """Attention (batch, head, query, size) by FlexAttention; None where the dense matrix is taken.

    That is for short sequences, padded ones, those in a cache, many open keys, and gradients on a processor, which it
    does not know. A warning says where it is not compiled; the handle takes the matrix from then on.
    """
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    whole = run.mask is None and len(run.biases) == 1 and query.shape[2] == key.shape[2] == run.length
    refused = (trains and query.device.type == "cpu") or torch.compiler.is_compiling()
    if not whole or run.length < handle.long or refused:
        return None
    bias_inputs = kernel_inputs(run.biases[0], layer, query.shape[1], query.device, run.length)
    if bias_inputs is None:
        return None
    from torch._dynamo import config, exc  # takes seconds, which short problems need not wait for

    inputs = [x.contiguous() for x in (query, key, value)]  # since a kernel is of one order in memory
    try:
        with config.patch(recompile_limit=COMPILED):
            return compiled()(*inputs, *bias_inputs, scaling)
    except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
        handle.long, reason = sys.maxsize, str(error).strip().partition("\n")[0]
        warnings.warn(f"FlexAttention is not compiled, so attention takes the dense matrix: {reason}", stacklevel=2)
        return None


@cache
def compiled() -> Any:
    """FlexAttention, compiled for itself: what others compile of it does not count for the kernels that are kept."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, score: ScoreMod, blocks: Any, scale: Any) -> Tensor:
        return flex_attention(query, key, value, score, blocks, scale, enable_gqa=query.shape[1] != key.shape[1])

    return torch.compile(attention, fullgraph=True)
