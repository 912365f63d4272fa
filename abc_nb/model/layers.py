"""What shapes a Transformer, its layers (Vaswani et al. 2017, section 3.1), and what a layout fixes for them.

Shapes: B batch, S source, L target, D width.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from abc_nb.bias.base import ENCODER_DECODER, Added, Attention, Bias, Causal, OpenKeys
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.model.attention import AttentionRecord, Cache, Keep, KeysValues, MultiHeadAttention
from abc_nb.model.dropout import Dropout
from abc_nb.model.positions import PositionEncoding, Sinusoidal
from abc_nb.problems.layouts import SourceIndex


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes and kind (v4 appendix B); the vocabulary size comes from the task."""

    width: int = 64  # D, embedding size
    heads: int = 8
    feed_forward: int = 256
    encoder_layers: int = 0  # 0: the identity encoder of the authors' code
    decoder_layers: int = 2
    dropout: float = 0.0
    position: PositionEncoding = field(default_factory=Sinusoidal)
    bias: Bias = field(default_factory=Causal)
    source_index: SourceIndex = "right"  # what source tokens are counted by
    kind: Literal["encoder-decoder", "decoder-only"] = "encoder-decoder"
    norm: Literal["pre", "none"] = "pre"  # a LayerNorm before every part of a layer and before the logits, or none

    def __post_init__(self) -> None:
        check_fields(self, width=1, heads=1, feed_forward=1, encoder_layers=0, decoder_layers=1, dropout=0)
        if self.kind == "decoder-only" and self.encoder_layers:
            raise InputError(f"a decoder-only model has no encoder: give 0 encoder layers, not {self.encoder_layers}")
        if self.dropout >= 1:
            raise InputError(f"a dropout of {self.dropout} leaves nothing: give a share below 1")
        if self.width % self.heads:
            raise InputError(f"{self.heads} heads cannot share a width of {self.width}: choose a multiple of them")

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """What a decoder layer has; in a decoder-only model problem and answer are one sequence."""
        return ENCODER_DECODER if self.kind == "encoder-decoder" else (*ENCODER_DECODER, "source")

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(self.width, self.heads, self.dropout, self.position)

    def normed(self) -> Any:
        """A LayerNorm, or a module that gives what it is given."""
        return nn.LayerNorm(self.width) if self.norm == "pre" else nn.Identity()


@dataclass(frozen=True)
class LayoutInputs:
    """Positions of source and target tokens, and every layer's biases, by attention; `record` gets all attention.

    A decoder-only model has `sequence`, of the answer over problem and answer, and `source`, of the problem to itself.
    """

    source: Tensor  # (S,)
    target: Tensor  # (L,)
    queries: Tensor  # (L,), or (1,) in a decoding step: the target positions asked about
    biases: tuple[dict[str, Added], ...]
    record: AttentionRecord | None = None

    def part(self, first: int, last: int) -> "LayoutInputs":
        """The queries of some output tokens; being causal, they do not depend on those after them."""
        rows, sources = slice(first, last), len(self.source)
        keys = {"self": last, "cross": sources, "sequence": sources + last}
        biases = tuple(
            {name: bias if name == "source" else cut_bias(bias, rows, keys[name]) for name, bias in layer.items()}
            for layer in self.biases
        )
        return replace(self, target=self.target[:last], queries=self.queries[rows], biases=biases)

    def keep(self, layer: int, *names: Attention) -> Keep | None:
        """What puts a layer's attention into the record, if there is one."""
        return None if self.record is None else partial(self.record.keep, names, layer, len(self.source))


def cut_bias(bias: Added, rows: slice, keys: int) -> Added:
    if isinstance(bias, OpenKeys):
        return OpenKeys(bias.index[rows].clamp(max=keys - 1), bias.value[:, rows])
    return None if bias is None else bias[:, rows, :keys]


class Residual(nn.Module):
    """The norm before, and the sum after, one part f of a layer: x + f(norm(x)). The caller computes f."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.dropout = config.normed(), Dropout(config.dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        return x + self.dropout(change)


class FeedForward(nn.Sequential):
    def __init__(self, config: ModelConfig) -> None:
        up, down = nn.Linear(config.width, config.feed_forward), nn.Linear(config.feed_forward, config.width)
        super().__init__(up, nn.ReLU(), Dropout(config.dropout), down)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with its residual: of an encoder, and of a decoder-only model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = config.attention(), FeedForward(config)
        self.self_residual, self.forward_residual = Residual(config), Residual(config)

    def keys_values(self, x: Tensor, index: Tensor) -> KeysValues:
        return self.self_attention.keys_values(self.self_residual.norm(x), index)

    def mix(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output for tokens `x`, of what their attention gives."""
        x = self.self_residual(x, attended)
        return self.forward_residual(x, self.feed_forward(self.forward_residual.norm(x)))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        """As an encoder's layer: all tokens `x` (B, S, D) at positions `index` (S,) see each other."""
        inner = self.self_residual.norm(x)
        keys_values = self.self_attention.keys_values(inner, index)
        return self.mix(x, self.self_attention.attend(inner, keys_values, None, (index, index)))

    def answer(self, x: Tensor, problem: KeysValues, inputs: LayoutInputs, number: int, cache: Cache | None) -> Tensor:
        """The output for the answer's tokens `x` (B, L, D), over those of the problem, which a cache has, and `x`."""
        new = self.keys_values(x, inputs.queries)
        if cache is None:
            keys_values = torch.cat([problem[0], new[0]], 2), torch.cat([problem[1], new[1]], 2)
        else:
            keys_values = cache.put(number, new)
        index = inputs.queries, torch.cat([inputs.source, inputs.target])
        bias, keep = inputs.biases[number]["sequence"], inputs.keep(number, "cross", "self")
        return self.mix(x, self.self_attention.attend(self.self_residual.norm(x), keys_values, bias, index, keep))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward network, each with its residual."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = config.attention(), config.attention()
        self.feed_forward = FeedForward(config)
        self.self_residual, self.cross_residual, self.forward_residual = (Residual(config) for _ in range(3))

    def answer(self, x: Tensor, problem: KeysValues, inputs: LayoutInputs, number: int, cache: Cache | None) -> Tensor:
        """The output for the answer's tokens `x` (B, L, D), over the encoded problem and the tokens up to `x`."""
        biases, inner = inputs.biases[number], self.self_residual.norm(x)
        keys_values = self.self_attention.keys_values(inner, inputs.queries)
        keys_values = keys_values if cache is None else cache.put(number, keys_values)
        index, keep = (inputs.queries, inputs.target), inputs.keep(number, "self")
        x = self.self_residual(x, self.self_attention.attend(inner, keys_values, biases["self"], index, keep))
        index, keep = (inputs.queries, inputs.source), inputs.keep(number, "cross")
        inner = self.cross_residual.norm(x)
        x = self.cross_residual(x, self.cross_attention.attend(inner, problem, biases["cross"], index, keep))
        return self.forward_residual(x, self.feed_forward(self.forward_residual.norm(x)))


class Decoder(nn.ModuleList):
    """A model's decoder, beside an encoder or alone.

    Alone, problem and answer are one sequence: the source `$ ... &` and then the target `$ y_1 ... y_n`. A query of the
    answer looks at both under one softmax. Its weights on the problem are what other modules call cross-attention,
    those on the answer self-attention. So layouts, biases, lines and calibration are the same for both.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.decoder_only = config.kind == "decoder-only"
        super().__init__((Layer if self.decoder_only else DecoderLayer)(config) for _ in range(config.decoder_layers))

    @property
    def layers(self) -> list[Any]:
        return [*self]

    def problem(self, memory: Tensor, inputs: LayoutInputs) -> Iterator[KeysValues]:
        """Each layer's keys and values of the encoded problem `memory` (B, S, D)."""
        for number, layer in enumerate(self.layers):
            if not self.decoder_only:
                yield layer.cross_attention.keys_values(memory, inputs.source)
                continue
            keys_values, index = layer.keys_values(memory, inputs.source), (inputs.source, inputs.source)
            yield keys_values
            if number < len(self) - 1:  # nobody looks at the states after the last layer
                inner, bias = layer.self_residual.norm(memory), inputs.biases[number]["source"]
                attended = layer.self_attention.attend(inner, keys_values, bias, index, inputs.keep(number, "source"))
                memory = layer.mix(memory, attended)

    def forward(
        self, x: Tensor, problem: Iterable[KeysValues], inputs: LayoutInputs, cache: Cache | None = None
    ) -> Tensor:
        """The states of the queries after all layers, with embedded tokens `x` (B, L, D)."""
        for number, (layer, keys_values) in enumerate(zip(self.layers, problem, strict=True)):
            x = layer.answer(x, keys_values, inputs, number, cache)
        if cache is not None:
            cache.count += x.shape[1]
        return x
