"""Muon (Jordan et al. 2024) in float32, all matrices of one shape at once.

`torch.optim.Muon` orthogonalises one matrix at a time in bfloat16, which took 40% of a training step
on a CPU at this project's sizes. Same update rule, and a test holds the two together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from abc_nb.training.optimizers import Uncompiled

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic Newton-Schulz iteration
STEPS = 5


def orthogonalize(matrices: Tensor) -> Tensor:
    """U V^T of each matrix U S V^T, approximately: (count, rows, columns), rows <= columns."""
    a, b, c = COEFFICIENTS
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon(Uncompiled):
    """Momentum, orthogonalised; its size matches AdamW's usual update (Liu et al. 2025, section 2.2)."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for same in shapes.values():
                self.step_together(same, group["lr"], group["momentum"])

    def step_together(self, params: list[Tensor], rate: float, momentum: float) -> None:
        """One step for parameters of the same shape."""
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        grads = [p.grad for p in params if p.grad is not None]
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        update = torch.stack(torch._foreach_lerp(grads, buffers, momentum))
        tall = update.shape[1] > update.shape[2]
        update = orthogonalize(update.mT if tall else update)
        update = update.mT if tall else update
        scale = 0.2 * max(update.shape[1:]) ** 0.5
        torch._foreach_add_(params, list(update.unbind()), alpha=-rate * scale)
