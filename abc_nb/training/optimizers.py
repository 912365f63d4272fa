"""The optimisers of a training: Muon on the layers' matrices, AdamW on the rest.

Muon (Jordan et al. 2024) is this package's own because `torch.optim.Muon` orthogonalises one matrix at a time, in
bfloat16, which a CPU does slowly: 300 steps of Addition's quick recipe on one thread took 12 s with ours and 36 s with
PyTorch's, in each of three repetitions in turn. The update rule is the same, and a test holds the two together.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic Newton-Schulz iteration
STEPS = 5


def muon_and_adamw(model: nn.Module, rate: float, matrix_rate: float) -> list[Optimizer]:
    """AdamW at a learning rate, and at another one Muon on the layers' matrices; on none where that one is zero."""
    rest, matrices = list[Tensor](), list[Tensor]()
    for name, p in model.named_parameters():
        of_layer = name.startswith(("encoder.", "decoder.")) and p.ndim == 2 and min(p.shape) > 1
        if p.requires_grad:
            (matrices if of_layer and matrix_rate else rest).append(p)
    adamw: Optimizer = AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [adamw, Muon(matrices, lr=matrix_rate)] if matrices else [adamw]


class Muon(Optimizer):
    """Momentum, orthogonalised, for matrices; its size matches AdamW's usual update (Liu et al. 2025, section 2.2)."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            for shape in dict.fromkeys(p.shape for p in trained):  # those of one shape together
                params = [p for p in trained if p.shape == shape]
                grads = [p.grad for p in params]
                buffers = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in params]
                torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
                update = torch.stack(torch._foreach_lerp(grads, buffers, group["momentum"]))
                update = orthogonalize(update.mT).mT if shape[0] > shape[1] else orthogonalize(update)
                torch._foreach_add_(params, [*update.unbind()], alpha=-group["lr"] * (0.2 * max(shape) ** 0.5))


def orthogonalize(matrices: Tensor) -> Tensor:
    """U V^T of each matrix U S V^T, approximately: (count, rows, columns), rows <= columns."""
    a, b, c = COEFFICIENTS
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
