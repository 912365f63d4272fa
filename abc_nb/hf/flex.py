"""A bias for FlexAttention (`torch.nn.attention.flex_attention`), which computes only those blocks that have open keys.

Its time and memory are linear in the length where the bias leaves few keys open, and the dense matrix takes the square.
Queries and keys behind the layout's tokens see nothing and are not seen, so that a sequence can be padded. `offset` is
the number of tokens before the first query, as while generating with a cache.
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

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import token_count
from abc_nb.common.errors import InputError
from abc_nb.hf.rows import Rows
from abc_nb.hf.sequences import OfProblem
from abc_nb.problems.layouts import Layout

At = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, batch, head, query, key
BLOCK, LEAST = 128, 2**12  # queries and keys of a block; numbers that are looked up
LONG = 2048  # tokens from which on FlexAttention is taken; measured, see docs/transformers.md
SLOTS = 32  # the most open keys of a query, which are gone through one by one
COMPILED = 64  # the most kernels that are kept: one for each type, number of slots and doubling of the length


def score_and_blocks(
    bias: Bias, layout: Layout, layer: int, heads: int, device: str = "cpu", tokens: int = 0, offset: int = 0
) -> tuple[ScoreMod, Any]:
    """One layer's bias for a compiled `flex_attention(query, key, value, score_mod, block_mask)`.

    Queries are the tokens from `offset` up to `tokens`, padding included. InputError for a bias that leaves many open.
    """
    found = parts(OfProblem(bias, layout), layer, heads, torch.device(device), offset, tokens or token_count(layout))
    if found is None:
        raise InputError(f"{type(bias).__name__} leaves more than {SLOTS} keys open to a token: take its dense matrix")
    return biased(found[0]), found[1]


@lru_cache(maxsize=32)  # layers: a pass asks for the same as the one before
@torch.inference_mode(False)  # used in training later
def parts(bias: Any, layer: int, heads: int, device: torch.device, before: int, tokens: int) -> tuple[At, Any] | None:
    """A `SequenceBias` as kernels look it up, and the blocks that they compute; None for too many open keys."""
    few = bias.open_keys(layer, heads, device)
    return None if few is None or few.index.shape[1] > SLOTS else (bias_at(few, before), blocks(few, tokens, before))


def blocks(few: OpenKeys, tokens: int, offset: int) -> Any:
    """A `BlockMask`: where queries from `offset` to `tokens` have open keys; all cells of a block are computed."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, columns = (-(-count // BLOCK) for count in (tokens - offset, tokens))
    few = few.rows(slice(offset, tokens))
    head, query, slot = ((few.value > CLOSED) & (few.index < tokens)).nonzero().unbind(1)
    found = torch.zeros(len(few.value), rows, columns, dtype=torch.bool, device=few.value.device)
    found[head, query // BLOCK, few.index[query, slot] // BLOCK] = True
    order, counts = found.int().argsort(dim=2, descending=True, stable=True).int(), found.sum(2, dtype=torch.int32)
    return BlockMask.from_kv_blocks(counts[None], order[None], BLOCK_SIZE=BLOCK, seq_lengths=(tokens - offset, tokens))


def biased(added: At, softcap: float | None = None) -> ScoreMod:
    """Logits, capped first if a model does that (Gemma 2), and what is added to them."""

    def changed(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (score if softcap is None else softcap * (score / softcap).tanh()) + added(batch, head, query, key)

    return changed


def bias_at(few: OpenKeys, offset: int = 0) -> At:
    """The bias of (any batch, head, query, key), given by integers of any one shape.

    Slots are gone through one by one, since kernels take no sum over an axis; their number is a power of two, so that
    few kernels are compiled. For a head that the bias does not have it is not a number.
    """
    slots = 1 << (few.index.shape[1] - 1).bit_length()
    more = 0, slots - few.index.shape[1]
    index, value = flat(pad(few.index, more)), flat(pad(few.value, more, value=CLOSED))
    tokens, before = (torch.as_tensor(count, device=value.device) for count in (len(few.index), offset))

    def added(_: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query = query + before
        known = (query < tokens) & (key < tokens)
        query, key = query.clamp(max=tokens - 1), key.clamp(max=tokens - 1)
        total = torch.full_like(value[query], CLOSED)
        for slot in range(slots):
            here = known & (index[query * slots + slot] == key)
            total = torch.maximum(total, torch.where(here, value[(head * tokens + query) * slots + slot], CLOSED))
        return total

    return added


def flat(numbers: Tensor) -> Tensor:
    """The same numbers along one axis, whose length is a power of two and a constant of what is compiled.

    Compiled for a processor, a kernel can take another length for that of its own blocks (torch 2.13). A constant is
    no length, and since it is a power of two, few of them are compiled.
    """
    from torch._dynamo import mark_static

    more = max(LEAST, 1 << (numbers.numel() - 1).bit_length()) - numbers.numel()
    found = pad(numbers.flatten(), (0, more), value=float("nan") if numbers.is_floating_point() else -1)
    mark_static(found)
    return found


def by_blocks(
    handle: Any, rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, softcap: float | None
) -> Tensor | None:
    """Attention (batch, head, query, size) by FlexAttention; None where the dense matrix is taken.

    That is for short sequences, padded ones, many open keys, and gradients on a processor, which it does not know. A
    warning says where it is not compiled; the handle takes the matrix from then on.
    """
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    short = (rows.tokens - rows.before) * rows.tokens < handle.long**2
    if rows.alone is None or short or (learns and query.device.type == "cpu") or torch.compiler.is_compiling():
        return None
    if (own := parts(rows.alone, layer, query.shape[1], query.device, rows.before, rows.tokens)) is None:
        return None
    from torch._dynamo import config, exc  # takes seconds, which short problems need not wait for

    inputs = [x.contiguous() for x in (query, key, value)]  # since a kernel is of one order in memory
    try:
        with config.patch(recompile_limit=COMPILED):
            return compiled()(*inputs, biased(own[0], softcap), own[1])
    except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
        handle.long, reason = sys.maxsize, str(error).strip().partition("\n")[0]
        warnings.warn(f"FlexAttention is not compiled, so attention takes the dense matrix: {reason}", stacklevel=2)
        return None


@cache
def compiled() -> Any:
    """FlexAttention, compiled for itself: what others compile of it does not count for the kernels that are kept."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, score: ScoreMod, blocks: Any) -> Tensor:
        return flex_attention(query, key, value, score, blocks, enable_gqa=query.shape[1] != key.shape[1])

    return torch.compile(attention, fullgraph=True)
