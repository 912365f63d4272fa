"""The two decoders that a model can have: beside an encoder, and alone over problem and answer.

Beside an encoder, each layer has an attention over the answer so far and one over the encoded problem. Alone, problem
and answer are one sequence: the source `$ ... &` and then the target `$ y_1 ... y_n`. A query of the answer looks at
both under one softmax. Its weights on the problem are what other modules call cross-attention, those on the answer
self-attention. So layouts, biases, lines and calibration are the same for both.

`start` gives what greedy decoding keeps, and `step` adds a token to it.
Shapes: B batch, H heads, S source, L target, D width, d = D / H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Added, Attention
from abc_nb.bias.sequence import over_sequence
from abc_nb.model.attention import Keep, KeysValues, Record
from abc_nb.model.config import ModelConfig
from abc_nb.model.frame import Frame
from abc_nb.model.layers import DecoderLayer, Layer, keeping

Cache = dict[str, KeysValues]  # of one layer, by attention: keys and values of the tokens so far


class CrossDecoder(nn.ModuleList):
    """Layers with self- and cross-attention, for a model with an encoder."""

    attentions: ClassVar[tuple[Attention, ...]] = ("self", "cross")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(DecoderLayer(config, number) for number in range(config.decoder_layers))

    @property
    def layers(self) -> list[DecoderLayer]:
        return [cast(DecoderLayer, layer) for layer in self]

    def biases(self, bias: Callable[[Attention], Added], sources: int) -> dict[str, Added]:
        """What a frame holds for one layer, of whose attentions `bias` gives what is added."""
        return {"self": bias("self"), "cross": bias("cross")}

    def forward(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None = None) -> Tensor:
        """The target's states after all layers, from its embedded tokens `x` (B, L, D) and the encoded source."""
        for layer in self.layers:
            inner = layer.self_residual.inner(x)
            own = layer.self_attention.keys_values(inner, frame.target)
            x = layer.mix(x, inner, own, layer.cross_attention.keys_values(memory, frame.source), frame, record)
        return x

    def start(self, memory: Tensor, frame: Frame) -> list[Cache]:
        return [
            {
                "self": layer.self_attention.no_keys_values(memory, len(frame.target)),
                "cross": layer.cross_attention.keys_values(memory, frame.source),
            }
            for layer in self.layers
        ]

    def step(self, x: Tensor, step: int, frame: Frame, caches: list[Cache]) -> Tensor:
        """The state of one token, from its embedding `x` (B, 1, D) at index `step`."""
        row = frame.row(step)
        for layer, cache in zip(self.layers, caches, strict=True):
            inner = layer.self_residual.inner(x)
            fill(cache["self"], layer.self_attention.keys_values(inner, row.queries), step)
            x = layer.mix(x, inner, cache["self"], cache["cross"], row)
        return x


class SequenceDecoder(nn.ModuleList):
    """Layers with one attention over problem and answer, for a decoder-only model."""

    attentions: ClassVar[tuple[Attention, ...]] = ("self", "cross", "source")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(Layer(config) for _ in range(config.decoder_layers))

    @property
    def layers(self) -> list[Layer]:
        return [cast(Layer, layer) for layer in self]

    def biases(self, bias: Callable[[Attention], Added], sources: int) -> dict[str, Added]:
        """What a frame holds for one layer, of whose attentions `bias` gives what is added."""
        return {"sequence": over_sequence(bias("cross"), bias("self"), sources), "problem": bias("source")}

    def forward(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None = None) -> Tensor:
        """The answer's states after all layers; those of the problem, `memory`, change from layer to layer too."""
        for number, layer in enumerate(self.layers):
            of_problem, of_answer = keys_values(layer, memory, frame.source), keys_values(layer, x, frame.target)
            both = torch.cat([of_problem[0], of_answer[0]], 2), torch.cat([of_problem[1], of_answer[1]], 2)
            keep = None if record is None else keeping_parts(record, number, len(frame.source))
            x = over_both(layer, number, x, both, frame, keep)
            memory = self.next_problem(number, memory, of_problem, frame, record)
        return x

    def next_problem(
        self, number: int, x: Tensor, own: KeysValues, frame: Frame, record: Record | None = None
    ) -> Tensor:
        """The problem's states (B, S, D) after a layer; nobody looks at those after the last one."""
        if number == len(self) - 1:
            return x
        layer, keep, index = self.layers[number], keeping(record, "source", number), (frame.source, frame.source)
        return layer.mix(x, layer.self_residual.inner(x), own, frame.biases[number]["problem"], index, keep)

    def start(self, memory: Tensor, frame: Frame) -> list[Cache]:
        caches = []
        for number, layer in enumerate(self.layers):
            problem = keys_values(layer, memory, frame.source)
            both = layer.self_attention.no_keys_values(memory, len(frame.source) + len(frame.target))
            fill(both, problem, slice(len(frame.source)))
            caches.append({"sequence": both})
            memory = self.next_problem(number, memory, problem, frame)
        return caches

    def step(self, x: Tensor, step: int, frame: Frame, caches: list[Cache]) -> Tensor:
        """The state of one token, from its embedding `x` (B, 1, D) at index `step`."""
        row = frame.row(step)
        for number, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            fill(cache["sequence"], keys_values(layer, x, row.queries), len(frame.source) + step)
            x = over_both(layer, number, x, cache["sequence"], row)
        return x


def keys_values(layer: Layer, x: Tensor, index: Tensor) -> KeysValues:
    return layer.self_attention.keys_values(layer.self_residual.inner(x), index)


def over_both(layer: Layer, number: int, x: Tensor, both: KeysValues, frame: Frame, keep: Keep | None = None) -> Tensor:
    """A layer's output for the answer's tokens `x`, over keys and values of problem and answer."""
    index = frame.queries, torch.cat([frame.source, frame.target])
    return layer.mix(x, layer.self_residual.inner(x), both, frame.biases[number]["sequence"], index, keep)


def keeping_parts(record: Record, layer: int, sources: int) -> Keep:
    """What puts the answer's attention into a record: to the problem as cross-attention, to itself as self-."""

    def keep(logits: Tensor, weights: Tensor) -> None:
        record.keep("cross", layer, logits[..., :sources], weights[..., :sources])
        record.keep("self", layer, logits[..., sources:], weights[..., sources:])

    return keep


def fill(store: KeysValues, new: KeysValues, tokens: int | slice) -> None:
    """Put keys and values of some tokens where they belong in those of all."""
    here = slice(tokens, tokens + 1) if isinstance(tokens, int) else tokens
    for old, values in zip(store, new, strict=True):
        old[:, :, here] = values
