"""Long sequences inside a model: FlexAttention, compiled, in the place of attention with a dense matrix.

It takes time and memory linear in the length, where the matrix takes its square, and is compiled first.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from abc_nb.bias.base import Bias
from abc_nb.hf.flex import ScoreMod, Table, biased, blocks
from abc_nb.hf.rows import KEPT, Rows, open_keys
from abc_nb.problems.layouts import Layout

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

SLOTS = 32  # the most open keys of a query that are gone through one by one
COMPILED = 64  # the most kernels that are kept: one for each type, number of slots and doubling of the length


def can_be_long(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> bool:
    """Whether FlexAttention does this at all: it knows no dropout, and on a processor no gradients."""
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    same = query.shape[-1] == value.shape[-1] and query.dtype == key.dtype == value.dtype
    return same and not dropout and not (learns and query.device.type == "cpu") and not torch.compiler.is_compiling()


@cache
def compiled() -> Any:
    """FlexAttention, compiled for itself: what others compile of it does not count for the kernels that are kept."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, score: ScoreMod, blocks: BlockMask) -> Tensor:
        return flex_attention(query, key, value, score, blocks, enable_gqa=query.shape[1] != key.shape[1])

    return torch.compile(attention, fullgraph=True)


@lru_cache(KEPT)
@torch.inference_mode(False)  # used in training later
def table(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device) -> Table | None:
    """A layer's bias as kernels look it up; None where a query has too many open keys."""
    few = open_keys(bias, layout, layer, heads, device)
    return None if few is None or few.index.shape[1] > SLOTS else Table.of(few, device)


@lru_cache(KEPT)
@torch.inference_mode(False)
def parts(
    bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device, before: int, tokens: int
) -> BlockMask:
    few = open_keys(bias, layout, layer, heads, device)
    assert few is not None
    return blocks(few, tokens, before, device)


def by_blocks(
    bias: Bias, rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, softcap: float | None
) -> Tensor | None:
    """Attention (batch, head, query, size) under a bias of one layout; None where a query has too many open keys.

    Several heads of queries can share a head of keys and values. An error of torch._dynamo where it is not compiled.
    """
    from torch._dynamo import config

    assert rows.layout is not None
    which = bias, rows.layout, layer, query.shape[1], query.device
    own = table(*which)
    if own is None:
        return None
    score = biased(own, torch.tensor(rows.before, device=query.device), softcap)
    inputs = [x.contiguous() for x in (query, key, value)]  # since a kernel is of one order in memory
    with config.patch(recompile_limit=COMPILED):
        mixed: Tensor = compiled()(*inputs, score, parts(*which, rows.before, rows.tokens))
        return mixed
