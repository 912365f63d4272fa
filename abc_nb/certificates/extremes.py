"""The largest and smallest numbers that occur while contexts are tried: what a bound on rounding needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.model.transformer import Transformer

Key = tuple[int, str, str]  # layer, self or cross, query, key or value


@dataclass
class Extremes:
    """Sizes are Euclidean norms of one token's vector, or of one head's part of it."""

    largest: dict[nn.Module, float] = field(default_factory=dict)  # of what a LayerNorm is given
    variance: dict[nn.Module, float] = field(default_factory=dict)  # the smallest of what a LayerNorm is given
    heads: dict[Key, Tensor] = field(default_factory=dict)  # (H,)
    bias: float = 0.0  # the largest absolute value that a bias adds
    keys: int = 0  # the most keys that are open to a query

    def see_heads(self, key: Key, vectors: Tensor, heads: Tensor) -> None:
        """Note vectors (rows, D); `heads` (D, H) says which numbers belong to which head."""
        found = (vectors.square() @ heads).amax(0).sqrt()
        self.heads[key] = torch.maximum(self.heads[key], found) if key in self.heads else found

    def see_bias(self, value: Tensor) -> None:
        """Note a bias (keys, H)."""
        finite = value[value.isfinite()].abs()
        self.bias, self.keys = max(self.bias, float(finite.max())), max(self.keys, len(value))

    def see_norm(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        x = given[0]
        self.largest[module] = max(self.largest.get(module, 0.0), float(x.square().sum(-1).max().sqrt()))
        self.variance[module] = min(self.variance.get(module, torch.inf), float(x.var(-1, correction=0).min()))

    @contextmanager
    def watching(self, model: Transformer) -> Iterator[None]:
        """Note what every LayerNorm of a model is given."""
        norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
        hooks = [module.register_forward_pre_hook(self.see_norm) for module in norms]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
