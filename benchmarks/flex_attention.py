"""FlexAttention under a bias, compiled on a GPU: is it equal to dense attention, forward and backward, and how fast?

Run from the repository root: `python benchmarks/flex_attention.py`. It needs CUDA; without it nothing is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from run import seconds
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from abc_nb import hf
from abc_nb.bias import Bias, Lines, Window
from abc_nb.bias.sequence import dense_bias
from abc_nb.hf.flex import ScoreMod
from abc_nb.model.attention import over_all_keys
from abc_nb.problems.tasks import Task

Attention = Callable[..., Tensor]
HEADS, SIZE, BATCH, LAYER, TIMES = 8, 64, 4, 1, 20
ALLOWED = 1e-3  # largest difference, relative to the largest number of outputs and gradients, in single precision


def passes(attention: Attention, inputs: list[Tensor], weight: Tensor) -> list[Tensor]:
    """What attention gives, and the gradients of a weighted sum of it by queries, keys and values."""
    mixed = attention(*inputs)
    return [mixed.detach(), *torch.autograd.grad((mixed * weight).sum(), inputs)]


def compare(attend: Attention, title: str, score: ScoreMod, blocks: BlockMask, matrix: Tensor) -> float:
    """Print the share of blocks computed and milliseconds of both passes, each way; gives the largest difference.

    `matrix` (heads, queries, keys) is the same bias, dense.
    """
    torch.manual_seed(0)
    query, key, value, weight = torch.randn(4, BATCH, HEADS, matrix.shape[-1], SIZE, device="cuda")
    inputs = [x.requires_grad_() for x in (query.clone(), key.clone(), value.clone())]
    matrix = matrix.cuda()

    def sparse() -> list[Tensor]:
        return passes(lambda *given: attend(*given, score_mod=score, block_mask=blocks), inputs, weight)

    def dense() -> list[Tensor]:
        return passes(lambda query, key, value: over_all_keys(query, key, value, matrix), inputs, weight)

    found, wanted = sparse(), dense()
    differences = [(one - other).abs().max() for one, other in zip(found, wanted, strict=True)]
    # Under one open key the weight is 1 whatever the logit: that gradient is rounding, in proportion to the others.
    worst = (max(differences) / max(part.abs().max() for part in wanted)).item()
    quick, slow = (1000 * seconds(action, TIMES) for action in (sparse, dense))
    print(
        f"{title}: {min(100, 100 - blocks.sparsity()):.0f}% of blocks, largest difference {worst:.1e}, "
        f"forward and backward {quick:.2f} ms, dense {slow:.2f} ms",
        flush=True,
    )
    return worst


def problem(attend: Attention, bias: Bias, width: int) -> float:
    """A sum of two numbers of `width` digits."""
    layout = Task("addition").layout(width)
    score, blocks = hf.score_and_blocks(bias, layout, LAYER, HEADS, "cuda")
    matrix = dense_bias(bias, layout, LAYER, HEADS)
    return compare(attend, f"{type(bias).__name__} at {width} digits", score, blocks, matrix)


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing is compiled here")
        return 1
    torch.set_float32_matmul_precision("highest")
    worst, compiled = 0.0, torch.compile(flex_attention)
    for width in (60, 1000):
        lines = Lines.one_key_per_head(Task("addition").layout(width), HEADS, LAYER + 1)
        for bias in (lines, Window()):
            worst = max(worst, problem(compiled, bias, width))
    print("equal" if worst <= ALLOWED else f"NOT equal: {worst:.1e} is more than {ALLOWED}")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
