"""FlexAttention under a bias, compiled on a GPU: is it equal to dense attention, forward and backward, and how fast?

Run from the repository root: `python benchmarks/flex_attention.py`. It needs CUDA; without it nothing is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from run import seconds
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from abc_nb import hf
from abc_nb.bias import Bias, Lines, RunningALiBi, Window
from abc_nb.model.attention import over_all_keys
from abc_nb.problems.tasks import Task

HEADS, SIZE, BATCH, LAYER, TIMES = 8, 64, 4, 1, 20
ALLOWED = 1e-3  # largest difference, relative to the largest number, in single precision


def passes(attention: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> list[Tensor]:
    """What attention gives, and the gradients of a weighted sum of it by queries, keys and values."""
    mixed = attention(*inputs)
    return [mixed.detach(), *torch.autograd.grad((mixed * weight).sum(), inputs)]


def compare(compiled: Callable[..., Tensor], bias: Bias, width: int) -> float:
    """Print the share of blocks computed and milliseconds of both passes, each way; gives the largest difference."""
    layout = Task("addition").layout(width)
    tokens = layout.source_length + layout.target_length
    score, blocks = (make(bias, layout, LAYER, HEADS, "cuda") for make in (hf.score_mod, hf.block_mask))
    matrix = hf.dense_bias(bias, layout, LAYER, HEADS).cuda()
    torch.manual_seed(0)
    query, key, value, weight = torch.randn(4, BATCH, HEADS, tokens, SIZE, device="cuda")
    inputs = [x.requires_grad_() for x in (query.clone(), key.clone(), value.clone())]

    def sparse() -> list[Tensor]:
        return passes(lambda *given: compiled(*given, score_mod=score, block_mask=blocks), inputs, weight)

    def dense() -> list[Tensor]:
        return passes(lambda *given: over_all_keys(*given, matrix), inputs, weight)

    pairs = zip(sparse(), dense(), strict=True)
    worst = max(((found - wanted).abs().max() / wanted.abs().max()).item() for found, wanted in pairs)
    quick, slow = (1000 * seconds(action, TIMES) for action in (sparse, dense))
    print(
        f"{type(bias).__name__} at {width} digits: {100 - blocks.sparsity():.0f}% of blocks, largest difference "
        f"{worst:.1e}, forward and backward {quick:.2f} ms, dense {slow:.2f} ms",
        flush=True,
    )
    return worst


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing is compiled here")
        return 1
    torch.set_float32_matmul_precision("highest")
    worst, compiled = 0.0, torch.compile(flex_attention)
    for width in (60, 1000):
        lines = Lines.one_key_per_head(Task("addition").layout(width), HEADS, LAYER + 1)
        for bias in (lines, Window(), RunningALiBi()):
            worst = max(worst, compare(compiled, bias, width))
    print("equal" if worst <= ALLOWED else f"NOT equal: {worst:.1e} is more than {ALLOWED}")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
