"""Optimisers: what Muon computes is what PyTorch's does, and which parameters each has."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import SHORT, TINY, build
from torch import Tensor

from abc_nb.training.optimizers import Muon
from audit.positions.distances import Fire


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def trained(kind: type[torch.optim.Optimizer], starts: list[Tensor], **options: Any) -> list[Tensor]:
    """Where matrices are after four steps with the same gradients."""
    parameters = [start.clone().requires_grad_() for start in starts]
    optimizer = kind(parameters, lr=0.1, momentum=0.9, **options)  # type: ignore[call-arg]
    for step in range(4):
        for i, parameter in enumerate(parameters):
            parameter.grad = random(*parameter.shape, seed=100 * step + i)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def test_muon_moves_matrices_of_several_shapes_like_pytorchs() -> None:
    shapes = [(16, 16), (8, 24), (16, 16), (24, 8), (24, 8)]
    starts = [random(*shape, seed=50 + i) for i, shape in enumerate(shapes)]
    ours = trained(Muon, starts)
    theirs = trained(torch.optim.Muon, starts, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for start, our, their in zip(starts, ours, theirs, strict=True):
        # Theirs is computed in bfloat16, which keeps eight bits.
        assert (our - their).norm() < 0.02 * (their - start).norm()


@pytest.mark.parametrize("gradient", [None, torch.zeros(4, 4)], ids=["none", "zero"])
def test_a_matrix_without_a_gradient_or_with_zeros_stays(gradient: Tensor | None) -> None:
    still, moving = random(4, 4).requires_grad_(), random(4, 4).requires_grad_()
    still.grad, moving.grad = gradient, random(4, 4, seed=1)
    Muon([still, moving], lr=0.1).step()
    torch.testing.assert_close(still.detach(), random(4, 4), rtol=0, atol=0)
    assert not torch.isclose(moving.detach(), random(4, 4)).all()


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest() -> None:
    """A matrix of one column is a vector to Muon."""
    model = build(replace(TINY, position=Fire()))
    adamw, muon = SHORT.optimizers(model)
    chosen, rest = ({id(p) for p in optimizer.param_groups[0]["params"]} for optimizer in (muon, adamw))
    named = model.named_parameters()
    assert chosen == {id(p) for name, p in named if "coder." in name and p.ndim == 2 and 1 not in p.shape}
    assert rest == {id(p) for p in model.parameters()} - chosen
    (alone,) = replace(SHORT, optimizer="adamw").optimizers(model)
    assert len(alone.param_groups[0]["params"]) == len([*model.parameters()])
