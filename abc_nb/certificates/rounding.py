"""What rounding can change a margin by, for any order of summation, and what float64 says.

A sum of n products, in any order, is off by at most gamma_n = n u / (1 - n u) times the sum of absolute
values (Higham 2002, chapter 3), where u is half the distance from 1 to the next number. A margin changes
by such an error times the margin's derivative at that number. Summed over all numbers of a context's
computation this bounds the change of the margin to first order; second-order terms are a millionth of it.
It is computed for the contexts with the smallest margins of every shape, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from abc_nb.certificates.contexts import Block
from abc_nb.certificates.shapes import Node, Place, Token
from abc_nb.certificates.states import Columns, States, Table
from abc_nb.certificates.tried import Tried, margins
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import Automaton

AROUND = 8  # roundings that an exponential, a root or a division count for


class Rounded(States):
    """Computes each context on its own, in float64, and notes how far float32 could be off at every number."""

    def __init__(self, model: Transformer, automaton: Automaton) -> None:
        super().__init__(deepcopy(model).double().eval(), automaton)
        self.u = torch.finfo(model.head.weight.dtype).eps / 2
        self.parts: dict[Node | Token, Table] = {}  # of the contexts at hand
        self.noted: list[tuple[Tensor, Tensor]] = []  # where an error enters, and how large it can be there

    def gamma(self, terms: int) -> float:
        return terms * self.u / (1 - terms * self.u)

    def part(self, root: Node | Token, places: tuple[Place, ...], columns: Columns) -> tuple[Table, Tensor]:
        """One row for each context; each part of the tree once."""
        rows = torch.arange(len(columns.values), device=self.device)
        if root not in self.parts:
            states = self.compute(root, places, columns).expand(len(rows), -1)
            self.parts[root] = Table(states, (), np.empty(0), None)
        return self.parts[root], rows

    def note(self, value: Tensor, terms: int, size: Callable[[], Tensor] | None = None) -> Tensor:
        error = torch.zeros_like(value, requires_grad=True)
        self.noted.append((error, self.gamma(terms) * (value if size is None else size()).detach().abs()))
        return value + error

    def note_linear(self, module: nn.Linear, given: tuple[Any, ...], value: Tensor) -> Tensor:
        def size() -> Tensor:
            return nn.functional.linear(given[0].abs(), module.weight.abs(), module.bias.abs())

        return self.note(value, module.in_features + 1, size)

    def note_norm(self, module: nn.LayerNorm, given: tuple[Any, ...], value: Tensor) -> Tensor:
        """The mean is off by gamma of the mean of absolute values, the quotient by its own roundings."""

        def size() -> Tensor:
            x = given[0]
            spread = (x.var(-1, correction=0, keepdim=True) + module.eps).sqrt()
            centred = (x.abs().mean(-1, keepdim=True) + (x - x.mean(-1, keepdim=True)).abs()) / spread
            return 2 * module.weight.abs() * centred + module.bias.abs()

        return self.note(value, len(module.weight) + AROUND, size)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every linear map and every LayerNorm."""
        hooks = []
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                hooks.append(module.register_forward_hook(self.note_linear))
            elif isinstance(module, nn.LayerNorm):
                hooks.append(module.register_forward_hook(self.note_norm))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @torch.inference_mode(False)
    def bound(self, tried: Tried) -> tuple[Tensor, Tensor]:
        """The smallest margins in float64, and how far float32 can be off: (contexts,) each."""
        block, right = narrow(tried, self.device)
        self.noted.clear()
        self.parts.clear()
        with torch.enable_grad(), self.watching():
            margin = margins(self.logits(tried.shape, block), right)
        gradients = torch.autograd.grad(margin.sum(), [error for error, _ in self.noted], allow_unused=True)
        total = torch.zeros_like(margin)
        for gradient, (_, size) in zip(gradients, self.noted, strict=True):
            if gradient is not None:
                total += (gradient.abs() * size).flatten(1).sum(1)
        return margin.detach(), total.detach()


def narrow(tried: Tried, device: torch.device) -> tuple[Block, Tensor]:
    """The contexts with the smallest margins of a shape, as a block and its right tokens."""
    values = np.stack([values for _, values, _ in tried.narrow])
    right = np.array([right for _, _, right in tried.narrow])
    return Block(values, right), torch.from_numpy(right).to(device)


def rounding(model: Transformer, rules: Automaton, tried: list[Tried]) -> dict[str, float]:
    """How far float32 and float64 differ at the smallest margins, and how far they can.

    `difference` is the largest one of a margin, `bound` the largest bound, `left` the smallest margin less its bound.
    """
    exact = Rounded(model, rules)
    difference, bound, left = 0.0, 0.0, math.inf
    for each in tried:
        margin, error = exact.bound(each)
        usual = torch.tensor([margin for margin, _, _ in each.narrow], dtype=margin.dtype, device=margin.device)
        difference = max(difference, float((usual - margin).abs().max()))
        bound, left = max(bound, float(error.max())), min(left, float((margin - error).min()))
    checked = float(sum(len(each.narrow) for each in tried))
    return {"checked": checked, "difference": difference, "bound": bound, "left": left}
