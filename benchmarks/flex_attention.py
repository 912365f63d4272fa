"""FlexAttention under a bias, compiled on a GPU: is it equal to dense attention, forward and backward, and how fast?

Run from the repository root: `python benchmarks/flex_attention.py`. It needs CUDA; without it nothing is compiled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from abc_nb import hf
from abc_nb.bias import CLOSED, Bias, Lines, RunningALiBi, Window
from abc_nb.problems.tasks import Task

HEADS, SIZE, BATCH, LAYER, TIMES = 8, 64, 4, 1, 20
ALLOWED = 1e-3  # largest difference, relative to the largest number, in single precision


def passes(attention: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> list[Tensor]:
    """What attention gives, and the gradients of a weighted sum of it by queries, keys and values."""
    for each in inputs:
        each.grad = None
    mixed = attention(*inputs)
    (mixed * weight).sum().backward()
    return [mixed.detach(), *(each.grad.clone() for each in inputs if each.grad is not None)]


def milliseconds(attention: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> float:
    passes(attention, inputs, weight)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMES):
        passes(attention, inputs, weight)
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / TIMES


def compare(bias: Bias, width: int) -> tuple[float, list[float], tuple[float, float]]:
    """The share of blocks computed, differences (output and gradients), and milliseconds of both passes, each way."""
    layout = Task("addition").layout(width)
    tokens = layout.source_length + layout.target_length
    score, mask = (make(bias, layout, LAYER, HEADS, "cuda") for make in (hf.score_mod, hf.mask_mod))
    blocks = create_block_mask(mask, None, HEADS, tokens, tokens, device="cuda")
    compiled = torch.compile(flex_attention)
    matrix = hf.dense_bias(bias, layout, LAYER, HEADS).cuda()
    closed = (matrix == CLOSED).all(-1, keepdim=True)
    torch.manual_seed(0)
    query, key, value, weight = torch.randn(4, BATCH, HEADS, tokens, SIZE, device="cuda")
    inputs = [each.requires_grad_() for each in (query.clone(), key.clone(), value.clone())]

    def sparse(*given: Tensor) -> Tensor:
        return compiled(*given, score_mod=score, block_mask=blocks)

    def dense(*given: Tensor) -> Tensor:  # a query without an open key attends to nothing, as in FlexAttention
        return scaled_dot_product_attention(*given, attn_mask=matrix.masked_fill(closed, 0.0)).masked_fill(closed, 0.0)

    pairs = zip(passes(sparse, inputs, weight), passes(dense, inputs, weight), strict=True)
    differences = [((found - wanted).abs().max() / wanted.abs().max()).item() for found, wanted in pairs]
    return (
        1 - blocks.sparsity() / 100,
        differences,
        tuple(milliseconds(each, inputs, weight) for each in (sparse, dense)),
    )


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing is compiled here")
        return 1
    torch.set_float32_matmul_precision("highest")
    worst = 0.0
    for width in (60, 1000):
        layout = Task("addition").layout(width)
        for bias in (Lines.one_key_a_head(layout, HEADS, LAYER + 1), Window(), RunningALiBi()):
            torch.compiler.reset()
            share, differences, times = compare(bias, width)
            worst = max(worst, *differences)
            print(
                f"{type(bias).__name__} at {width} digits: {100 * share:.0f}% of blocks, largest difference "
                f"{max(differences):.1e}, forward and backward {times[0]:.2f} ms, dense {times[1]:.2f} ms",
                flush=True,
            )
    print("equal" if worst <= ALLOWED else f"NOT equal: {worst:.1e} is more than {ALLOWED}")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
