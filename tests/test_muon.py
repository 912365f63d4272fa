"""Muon against torch.optim.Muon, and its orthogonalisation against singular values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from abc_nb.training.muon import COEFFICIENTS, STEPS, Muon, orthogonalize


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def trained(optimizer_of, starts: list[Tensor], steps: int = 4) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """Where matrices are after some steps with the same gradients."""
    parameters = [start.clone().requires_grad_() for start in starts]
    optimizer = optimizer_of(parameters)
    for step in range(steps):
        for i, parameter in enumerate(parameters):
            parameter.grad = random(*parameter.shape, seed=100 * step + i)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8)], ids=str)
def test_moves_like_torch_muon(shape: tuple[int, int]) -> None:
    starts = [random(*shape, seed=50 + i) for i in range(3)]
    ours = trained(lambda parameters: Muon(parameters, lr=0.1, momentum=0.9), starts)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw"}
    theirs = trained(lambda parameters: torch.optim.Muon(parameters, **options), starts)
    for start, our, their in zip(starts, ours, theirs, strict=True):
        # Theirs is computed in bfloat16, which keeps eight bits.
        assert (our - their).norm() < 0.02 * (their - start).norm()


def test_matrices_of_several_shapes_move_as_they_would_alone() -> None:
    starts = [random(8, 8), random(8, 16), random(8, 8, seed=1), random(16, 8)]
    together = trained(lambda parameters: Muon(parameters, lr=0.1), starts, steps=1)
    for i, start in enumerate(starts):
        alone = start.clone().requires_grad_()
        alone.grad = random(*start.shape, seed=i)
        Muon([alone], lr=0.1).step()
        torch.testing.assert_close(together[i], alone.detach())


def test_parameter_without_gradient_stays() -> None:
    still, moving = random(4, 4).requires_grad_(), random(4, 4).requires_grad_()
    moving.grad = random(4, 4, seed=1)
    Muon([still, moving], lr=0.1).step()
    torch.testing.assert_close(still.detach(), random(4, 4), rtol=0, atol=0)
    assert not torch.isclose(moving.detach(), random(4, 4)).all()


@pytest.mark.parametrize("shape", [(5, 16, 16), (3, 8, 32)], ids=str)
def test_orthogonalized_singular_values_are_near_one(shape: tuple[int, ...]) -> None:
    found = orthogonalize(random(*shape))
    values = torch.linalg.svdvals(found)
    large = torch.linalg.svdvals(random(*shape)) > 0.05 * random(*shape).norm(dim=(1, 2))[:, None]
    assert large.float().mean() > 0.8
    assert 0.6 < values[large].min() <= values.max() < 1.3


def test_orthogonalizing_applies_the_quintic_to_singular_values_alone() -> None:
    matrix = random(6, 10)
    u, s, vt = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    s = s / np.linalg.norm(s)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        s = a * s + b * s**3 + c * s**5
    torch.testing.assert_close(
        orthogonalize(matrix[None])[0], torch.from_numpy(u * s @ vt).float(), rtol=1e-3, atol=1e-4
    )


def test_zero_gradient_moves_nothing() -> None:
    parameter = random(4, 4).requires_grad_()
    parameter.grad = torch.zeros(4, 4)
    Muon([parameter], lr=0.1).step()
    torch.testing.assert_close(parameter.detach(), random(4, 4), rtol=0, atol=0)
