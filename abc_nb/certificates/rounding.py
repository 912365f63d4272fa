"""What rounding can change a margin by, for any order of summation, and what float64 says.

A sum of n products, in any order, is off by at most gamma_n = n u / (1 - n u) times the sum of absolute
values (Higham 2002, chapter 3), where u is half the distance from 1 to the next number. A margin changes
by such an error times the margin's derivative at that number. Summed over all numbers of a context's
computation this bounds the change of the margin to first order; second-order terms are a millionth of it.
It is computed for the contexts with the smallest margins of every shape, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from abc_nb.certificates.shapes import Atom, Node, Token
from abc_nb.certificates.states import Part, States
from abc_nb.certificates.tried import Tried, margins
from abc_nb.model.transformer import Transformer

AROUND = 8  # roundings that an exponential, a root or a division count for


class Rounded(States):
    """Computes each context on its own, and notes how far numbers of unit roundoff `u` could be off everywhere."""

    def __init__(self, model: Transformer, atoms: Sequence[Atom], values: np.ndarray, u: float) -> None:
        super().__init__(model, atoms, values)
        self.u = u
        self.noted: list[tuple[Tensor, Tensor]] = []  # where an error enters, and how large it can be there

    def note(self, value: Tensor, terms: int, size: Tensor) -> Tensor:
        """`value` is a sum of so many terms whose absolute values add up to `size`."""
        error = torch.zeros_like(size, requires_grad=True)
        gamma = terms * self.u / (1 - terms * self.u)
        self.noted.append((error, gamma * size.detach().abs()))
        return value + error

    def part(self, root: Node | Token) -> Part:
        if root not in self.parts:
            found = super().part(root)
            states = found.states[found.rows]
            if isinstance(root, Token):
                states = self.note(states, 3, states.abs() + 2)
            self.parts[root] = Part(states, torch.arange(self.count, device=self.device))
        return self.parts[root]

    def distinct(self, atoms: Sequence[Atom]) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.count), np.arange(self.count)

    def added(self, total: Tensor) -> Tensor:
        return self.note(total, 1, total)

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """An error of a logit is one of its bias; one of a weight scales the value that it belongs to."""
        keys, root = key.shape[1], query.shape[-1] ** 0.5
        sizes = (query[:, None] * key).abs().sum(-1) / root + bias.masked_fill(bias.isinf(), 0.0).abs()
        bias = self.note(bias, query.shape[-1] + 4, sizes)
        value = value * self.note(torch.ones_like(sizes), keys + 8, torch.ones_like(sizes))[..., None]
        absolute = super().mixed(query, key, value.abs(), bias)
        return self.note(super().mixed(query, key, value, bias), keys, absolute)

    def note_linear(self, module: nn.Linear, given: tuple[Any, ...], value: Tensor) -> Tensor:
        size = nn.functional.linear(given[0].abs(), module.weight.abs(), module.bias.abs())
        return self.note(value, module.in_features + 1, size)

    def note_norm(self, module: nn.LayerNorm, given: tuple[Any, ...], value: Tensor) -> Tensor:
        """The mean is off by gamma of the mean of absolute values, the quotient by its own roundings."""
        x = given[0]
        spread = (x.var(-1, correction=0, keepdim=True) + module.eps).sqrt()
        centred = (x.abs().mean(-1, keepdim=True) + (x - x.mean(-1, keepdim=True)).abs()) / spread
        return self.note(value, len(module.weight) + AROUND, 2 * module.weight.abs() * centred + module.bias.abs())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every linear map and every LayerNorm."""
        watched: dict[type, Any] = {nn.Linear: self.note_linear, nn.LayerNorm: self.note_norm}
        hooks = [
            module.register_forward_hook(watched[type(module)])
            for module in self.model.modules()
            if type(module) in watched
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def bound(self, root: Node, right: Tensor) -> tuple[Tensor, Tensor]:
        """The margins of the contexts, and how far they can be off: (contexts,) each."""
        with torch.inference_mode(False), torch.enable_grad(), self.watching():
            margin = margins(self.logits(root), right)
            gradients = torch.autograd.grad(margin.sum(), [error for error, _ in self.noted], allow_unused=True)
        total = torch.zeros_like(margin)
        for gradient, (_, size) in zip(gradients, self.noted, strict=True):
            if gradient is not None:
                change = (gradient.abs() * size).flatten(1).sum(1)  # of keys for one key of all contexts after another
                total += change.unflatten(0, (-1, self.count)).sum(0)
        return margin.detach(), total.detach()


def rounding(model: Transformer, results: Sequence[Tried]) -> dict[str, float]:
    """How far float32 and float64 differ at the smallest margins, and how far they can.

    `difference` is the largest one of a margin, `bound` the largest bound, `left` the smallest margin less its bound.
    """
    exact, unit = deepcopy(model).double().eval(), torch.finfo(model.head.weight.dtype).eps / 2
    difference, bound, left = 0.0, 0.0, math.inf
    for each in results:
        assert isinstance(each.shape.root, Node)
        values = np.stack([values for _, (values, _) in each.narrow])
        states = Rounded(exact, each.shape.atoms, values, unit)
        right = torch.tensor([right for _, (_, right) in each.narrow], device=states.device)
        margin, error = states.bound(each.shape.root, right)
        usual = torch.tensor([margin for margin, _ in each.narrow], dtype=margin.dtype, device=margin.device)
        difference = max(difference, float((usual - margin).abs().max()))
        bound, left = max(bound, float(error.max())), min(left, float((margin - error).min()))
    return {
        "checked": float(sum(len(each.narrow) for each in results)),
        "difference": difference,
        "bound": bound,
        "left": left,
    }
