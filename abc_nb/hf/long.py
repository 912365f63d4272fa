"""Long sequences inside a model: FlexAttention, compiled, in the place of attention with a dense matrix.

It takes time and memory linear in the length, where the matrix takes its square, and is compiled first.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from abc_nb.hf.flex import ScoreMod, Table, biased

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

LONG = 2048  # tokens of which a matrix (token, token) costs too much; measured, see docs/transformers.md
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


def by_blocks(
    query: Tensor, key: Tensor, value: Tensor, table: Table, blocks: BlockMask, before: int, softcap: float | None
) -> Tensor | None:
    """Attention (batch, head, query, size) under a bias; None, with a warning, where it cannot be compiled.

    Several heads of queries can share a head of keys and values. The queries have `before` tokens before them.
    """
    from torch._dynamo import config, exc

    score = biased(table, torch.tensor(before, device=query.device), softcap)
    parts = [x.contiguous() for x in (query, key, value)]  # since a kernel is of one order in memory
    try:
        with config.patch(recompile_limit=COMPILED):
            mixed: Tensor = compiled()(*parts, score, blocks)
            return mixed
    except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"FlexAttention is not compiled, so attention takes the dense matrix: {reason}", stacklevel=2)
        return None
