"""The two decoders that a model can have: beside an encoder, and alone over problem and answer.

Beside an encoder, each layer has an attention over the answer so far and one over the encoded problem. Alone, problem
and answer are one sequence: the source `$ ... &` and then the target `$ y_1 ... y_n`. A query of the answer looks at
both under one softmax. Its weights on the problem are what other modules call cross-attention, those on the answer
self-attention. So layouts, biases, lines and calibration are the same for both.

`problem` gives each layer's keys and values of the problem. `start` gives what greedy decoding keeps, and `step` adds
a token to it.
Shapes: B batch, H heads, S source, L target, D width, d = D / H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Added, Attention, over_sequence
from abc_nb.model.attention import Keep, KeysValues, Record, room
from abc_nb.model.config import ModelConfig
from abc_nb.model.layers import DecoderLayer, Frame, Layer, keeping

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

    def problem(self, memory: Tensor, frame: Frame) -> Iterator[KeysValues]:
        return (layer.cross_attention.keys_values(memory, frame.source) for layer in self.layers)

    def forward(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None = None) -> Tensor:
        """The target's states after all layers, from its embedded tokens `x` (B, L, D) and the encoded source."""
        for layer, cross in zip(self.layers, self.problem(memory, frame), strict=True):
            inner = layer.self_residual.inner(x)
            x = layer.mix(x, inner, layer.self_attention.keys_values(inner, frame.target), cross, frame, record)
        return x

    def start(self, memory: Tensor, frame: Frame) -> list[Cache]:
        return [{"self": room(cross, len(frame.target)), "cross": cross} for cross in self.problem(memory, frame)]

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

    def problem(self, memory: Tensor, frame: Frame, record: Record | None = None) -> Iterator[KeysValues]:
        """The problem's states (B, S, D) change from layer to layer; nobody looks at those after the last one."""
        index = frame.source, frame.source
        for number, layer in enumerate(self.layers):
            own = keys_values(layer, memory, frame.source)
            yield own
            if number < len(self) - 1:
                inner, bias = layer.self_residual.inner(memory), frame.biases[number]["problem"]
                memory = layer.mix(memory, inner, own, bias, index, keeping(record, "source", number))

    def forward(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None = None) -> Tensor:
        """The answer's states after all layers, from its embedded tokens `x` (B, L, D) and those of the problem."""
        for number, of_problem in enumerate(self.problem(memory, frame, record)):
            of_answer = keys_values(self.layers[number], x, frame.target)
            both = torch.cat([of_problem[0], of_answer[0]], 2), torch.cat([of_problem[1], of_answer[1]], 2)
            x = self.over_both(number, x, both, frame, record)
        return x

    def start(self, memory: Tensor, frame: Frame) -> list[Cache]:
        caches = []
        for of_problem in self.problem(memory, frame):
            both = room(of_problem, len(frame.source) + len(frame.target))
            fill(both, of_problem, 0)
            caches.append({"sequence": both})
        return caches

    def step(self, x: Tensor, step: int, frame: Frame, caches: list[Cache]) -> Tensor:
        """The state of one token, from its embedding `x` (B, 1, D) at index `step`."""
        row = frame.row(step)
        for number, cache in enumerate(caches):
            fill(cache["sequence"], keys_values(self.layers[number], x, row.queries), len(frame.source) + step)
            x = self.over_both(number, x, cache["sequence"], row)
        return x

    def over_both(self, number: int, x: Tensor, both: KeysValues, frame: Frame, record: Record | None = None) -> Tensor:
        """A layer's output for the answer's tokens `x`, over keys and values of problem and answer."""
        layer, index = self.layers[number], (frame.queries, torch.cat([frame.source, frame.target]))
        keep = None if record is None else keeping_parts(record, number, len(frame.source))
        return layer.mix(x, layer.self_residual.inner(x), both, frame.biases[number]["sequence"], index, keep)


def keys_values(layer: Layer, x: Tensor, index: Tensor) -> KeysValues:
    return layer.self_attention.keys_values(layer.self_residual.inner(x), index)


def keeping_parts(record: Record, layer: int, sources: int) -> Keep:
    """What puts the answer's attention into a record: to the problem as cross-attention, to itself as self-."""

    def keep(logits: Tensor, weights: Tensor) -> None:
        record.keep("cross", layer, logits[..., :sources], weights[..., :sources])
        record.keep("self", layer, logits[..., sources:], weights[..., sources:])

    return keep


def fill(store: KeysValues, new: KeysValues, first: int) -> None:
    """Put keys and values of some tokens where they belong in those of all, from the first of them on."""
    for old, values in zip(store, new, strict=True):
        old[:, :, first : first + values.shape[2]] = values
