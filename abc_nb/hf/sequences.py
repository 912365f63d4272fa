"""The bias of one sequence of tokens, as a layer's attention asks for it: of a problem and its answer, or of a text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import cyclic_positions, dense_bias, of_heads, open_bias, token_count
from abc_nb.bias.spans import positions
from abc_nb.problems.layouts import Layout
from abc_nb.problems.spans import ProblemSpan

KEPT = 128  # layers' biases


class SequenceBias:
    """What is added to the attention logits of a sequence without padding.

    The largest number of each query is 0, so that no type of numbers is too small for them.
    """

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        """Of the tokens `first` to `last` - 1: (head, last - first, last), like queries (row, head, ...)."""
        raise NotImplementedError

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        """The few open keys of all tokens, or None if they are not few."""
        return None

    def same_as(self, layer: int) -> int:
        """The first of the layers up to this one that follow each other and have the same bias."""
        return layer

    def positions(self, count: int) -> Tensor | None:
        """Where so many tokens stand (token,), or None if that is where the model counts them."""
        return None


@dataclass(frozen=True)
class OfProblem(SequenceBias):
    """A bias on a problem and its answer; what stands behind the layout's end sees nothing and is not seen."""

    bias: Bias
    layout: Layout
    period: int | None = None  # of cyclic positions

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        own, tokens = values(self.bias, self.layout, layer, like.shape[1], like.device), token_count(self.layout)
        chosen = slice(first, min(last, tokens))
        found = own.rows(chosen).dense(tokens) if isinstance(own, OpenKeys) else own[:, chosen]
        return pad(found, (0, last - tokens, 0, last - first - found.shape[1]), value=CLOSED).to(like.dtype)

    def open_keys(self, layer: int, heads: int, device: torch.device) -> OpenKeys | None:
        own = values(self.bias, self.layout, layer, heads, device)
        return own if isinstance(own, OpenKeys) else None

    def positions(self, count: int) -> Tensor | None:
        return None if self.period is None else cyclic_positions(self.layout, self.period)[:count]


@dataclass(frozen=True)
class OfText(SequenceBias):
    """A bias on a text in which problems stand."""

    bias: Bias
    spans: tuple[ProblemSpan, ...]

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        found = leveled(self.bias.rows(self.spans, layer, first, last))
        return of_heads(found, like.shape[1]).to(like.device, like.dtype)

    def same_as(self, layer: int) -> int:
        return self.bias.same_as(layer)

    def positions(self, count: int) -> Tensor | None:
        return positions(self.spans, count, self.bias.period)


@lru_cache(KEPT)
@torch.inference_mode(False)  # used in training later
def values(bias: Bias, layout: Layout, layer: int, heads: int, device: torch.device | str = "cpu") -> OpenKeys | Tensor:
    """Each token's few open keys in a layer, or else the matrix (head, token, token); the largest of a query is 0."""
    few = open_bias(bias, layout, layer, heads)
    if few is None:
        return leveled(dense_bias(bias, layout, layer, heads)).to(device)
    return OpenKeys(few.index, leveled(few.value)).to(torch.device(device))


def leveled(bias: Tensor) -> Tensor:
    """A bias of the same effect, of which the largest number of each query is 0."""
    largest = bias.amax(-1, keepdim=True)
    return bias - largest.masked_fill(largest == CLOSED, 0.0)
