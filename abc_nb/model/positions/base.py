"""What a position encoding can do, by default nothing; and those that add a vector of a token's index.

`place` says at which positions the tokens of a layout stand. `embedding` or `table` turns positions into vectors added
to the tokens; `rotate` and `logits` change queries, keys and logits in each attention, with what it has `learned`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from abc_nb.common.config import check_fields
from abc_nb.problems.layouts import Layout


class Index(NamedTuple):
    """Positions of source and target tokens: a number each, or one for each rotated pair, (length, pairs)."""

    source: Tensor  # (source_length,)
    target: Tensor  # (target_length,)


@dataclass(frozen=True)
class PositionEncoding:
    """The interface of all encodings, each of which overrides what it does."""

    def trained_on(self, layout: Layout) -> "PositionEncoding":
        """The same encoding, which knows the longest layout of its training."""
        return self

    def phases(self) -> int:
        """From how many first positions training chooses one for each problem; 1: always from zero."""
        return 1

    def place(self, index: Index, layout: Layout, head_size: int, training: bool) -> Index:
        """The positions of tokens whose index, counted from the model's end of the source, is `index`.

        What is drawn in training follows from torch's generator. InputError for a layout that does not fit.
        """
        return index

    def fits(self, layout: Layout) -> bool:
        """Whether it has a position for every token of a layout."""
        return True

    def shifted(self, index: Tensor, phase: Tensor | int, stride: int = 1) -> Tensor:
        """Positions of embeddings `phase` places further on, where one place is `stride` columns."""
        return index + phase * stride

    def embedding(self, index: Tensor, width: int) -> Tensor | None:
        """What is added to the embeddings of tokens at `index` (..., length): (..., length, width) or None."""
        return None

    def table(self, width: int) -> nn.Module | None:
        """The same as a trained module, from (..., length) to (..., length, width)."""
        return None

    @property
    def adds_logits(self) -> bool:
        """Whether it adds something to logits: attention then looks at all keys, however few are open."""
        return type(self).logits is not PositionEncoding.logits

    def learned(self, head_size: int, heads: int) -> nn.Module:
        """What one attention learns about positions."""
        return nn.Module()

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """Change queries or keys `x` (batch, head, length, size) that stand at `index` (length,)."""
        return x

    def logits(self, learned: Any, query: Tensor, index: tuple[Tensor, Tensor]) -> Tensor | None:
        """Logits to add, (batch or 1, head, query, key), for queries (batch, head, query, size) at some positions."""
        return None


@dataclass(frozen=True)
class NoPosition(PositionEncoding):
    """No position encoding at all (NoPE, Kazemnejad et al. 2023)."""


@dataclass(frozen=True)
class Sinusoidal(PositionEncoding):
    """Sines and cosines of the index, modulo a period if there is one (Vaswani et al. 2017, section 3.5; v4 3.1)."""

    period: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, period=1)

    def embedding(self, index: Tensor, width: int) -> Tensor:
        index = index if self.period is None else index % self.period
        dtype = torch.promote_types(index.dtype, torch.float32)  # float64 for an index in float64
        frequency = 10000 ** (-torch.arange(0, width, 2, device=index.device, dtype=dtype) / width)
        angle = index[..., None] * frequency
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

    def phases(self) -> int:
        return self.period or 1
