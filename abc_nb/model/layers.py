"""The layers of a Transformer (Vaswani et al. 2017, section 3.1), and what a layout fixes for them.

Shapes: B batch, S source, L target, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from abc_nb.bias.base import Added, Attention, OpenKeys
from abc_nb.model.attention import Keep, KeysValues, Record
from abc_nb.model.config import ModelConfig
from abc_nb.model.dropout import Dropout


@dataclass(frozen=True)
class Frame:
    """Positions of source and target tokens, and every layer's biases.

    A layer has the biases of the decoder's attentions: `self` and `cross`; in a decoder-only model `sequence`, of the
    answer's queries over problem and answer, and `problem`, of the problem to itself.
    """

    source: Tensor  # (S,)
    target: Tensor  # (L,)
    queries: Tensor  # (L,), or (1,) in a decoding step: the target positions asked about
    biases: tuple[dict[str, Added], ...]

    def row(self, step: int) -> Frame:
        """The frame of one decoding step."""
        return self.cut(slice(step, step + 1), len(self.target))

    def first(self, count: int) -> Frame:
        """The frame of the first output tokens alone; being causal, they do not depend on those after them."""
        return self.cut(slice(count), count)

    def cut(self, rows: slice, outputs: int) -> Frame:
        """Some queries alone, and the first outputs alone as keys."""
        sources = len(self.source)
        keys = {"self": outputs, "cross": sources, "sequence": sources + outputs}
        biases = tuple(
            {name: bias if name == "problem" else cut_bias(bias, rows, keys[name]) for name, bias in layer.items()}
            for layer in self.biases
        )
        return Frame(self.source, self.target[:outputs], self.queries[rows], biases)


def cut_bias(bias: Added, rows: slice, keys: int) -> Added:
    if isinstance(bias, OpenKeys):
        return OpenKeys(bias.index[rows].clamp(max=keys - 1), bias.value[:, rows])
    return None if bias is None else bias[:, rows, :keys]


class Residual(nn.Module):
    """x + f(norm(x)) with pre-normalisation, norm(x + f(x)) with post-normalisation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.pre = nn.LayerNorm(config.width), config.norm == "pre"
        self.dropout = Dropout(config.dropout)

    def inner(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def outer(self, x: Tensor, change: Tensor) -> Tensor:
        total = x + self.dropout(change)
        return total if self.pre else self.norm(total)


class FeedForward(nn.Sequential):
    def __init__(self, config: ModelConfig) -> None:
        up, down = nn.Linear(config.width, config.feed_forward), nn.Linear(config.feed_forward, config.width)
        super().__init__(up, nn.ReLU(inplace=True), Dropout(config.dropout), down)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with its residual: of an encoder, and of a decoder-only model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = config.attention(), FeedForward(config)
        self.self_residual, self.forward_residual = Residual(config), Residual(config)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        """As an encoder's layer: all tokens `x` (B, S, D) at positions `index` (S,) see each other."""
        inner = self.self_residual.inner(x)
        return self.mix(x, inner, self.self_attention.keys_values(inner, index), None, (index, index))

    def mix(
        self,
        x: Tensor,
        inner: Tensor,
        keys_values: KeysValues,
        bias: Added,
        index: tuple[Tensor, Tensor],
        keep: Keep | None = None,
    ) -> Tensor:
        """The layer's output for tokens `x`, whose queries come from `inner`; `index` is as in `attend`."""
        x = self.self_residual.outer(x, self.self_attention.attend(inner, keys_values, bias, index, keep))
        return self.forward_residual.outer(x, self.feed_forward(self.forward_residual.inner(x)))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward network, each with its residual."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.number = number
        self.self_attention, self.cross_attention = config.attention(), config.attention()
        self.feed_forward = FeedForward(config)
        self.self_residual, self.cross_residual, self.forward_residual = (Residual(config) for _ in range(3))

    def mix(
        self, x: Tensor, inner: Tensor, own: KeysValues, cross: KeysValues, frame: Frame, record: Record | None = None
    ) -> Tensor:
        """The layer's output for tokens `x` (B, L, D), over keys and values of the target and of the source."""
        biases = frame.biases[self.number]
        index, keep = (frame.queries, frame.target), keeping(record, "self", self.number)
        x = self.self_residual.outer(x, self.self_attention.attend(inner, own, biases["self"], index, keep))
        index, keep = (frame.queries, frame.source), keeping(record, "cross", self.number)
        inner = self.cross_residual.inner(x)
        x = self.cross_residual.outer(x, self.cross_attention.attend(inner, cross, biases["cross"], index, keep))
        return self.forward_residual.outer(x, self.feed_forward(self.forward_residual.inner(x)))


def keeping(record: Record | None, name: Attention, layer: int) -> Keep | None:
    """What puts one attention into a record, if there is one."""
    return None if record is None else partial(record.keep, name, layer)
