"""Low-rank adaptation of queries and keys (LoRA, Hu et al. 2022; v4 section E.2, equation 3)."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from abc_nb.model.attention import MultiHeadAttention


class LowRank(nn.Module):
    """W + B A, where only A (rank, in) and B (out, rank) are trained; B starts at zero."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1], device=weight.device) * weight.shape[1] ** -0.5)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.b @ self.a


def projections(model: nn.Module) -> list[nn.Linear]:
    """The query and key projections of every attention."""
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    return [linear for attention in attentions for linear in (attention.query, attention.key)]


def adapt(model: nn.Module, rank: int, seed: int) -> None:
    """Freeze the model, and add a low-rank change to every query and key projection."""
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for linear in projections(model):
            parametrize.register_parametrization(linear, "weight", LowRank(linear.weight, rank))


def merge(model: nn.Module) -> None:
    """Put the low-rank changes into the weights: an ordinary model again."""
    for linear in projections(model):
        if parametrize.is_parametrized(linear):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
    model.requires_grad_(True)
