"""The decoder-only Transformer: problem and answer in one sequence, one attention a layer.

The sequence is the source `$ ... &` and then the target `$ y_1 ... y_n`. A query of the answer looks at the problem
and at the answer so far under one softmax: its weights on the problem are what other modules call cross-attention,
those on the answer self-attention. So layouts, biases, lines and calibration are those of the encoder-decoder.
Shapes: B batch, H heads, S source, L target, D width, d = D / H.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from abc_nb.bias.base import OpenKeys
from abc_nb.model.attention import Place, Record
from abc_nb.model.transformer import (
    FeedForward,
    Frame,
    KeysValues,
    Layer,
    LayerCache,
    ModelConfig,
    Residual,
    Transformer,
)
from abc_nb.problems.layouts import Layout


class DecoderOnlyLayer(Layer):
    """One attention over the whole sequence, and one feed-forward network, each with its residual."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.self_attention, self.feed_forward = config.attention(), FeedForward(config)
        self.self_residual, self.forward_residual = Residual(config), Residual(config)

    def keys_values(self, x: Tensor, index: Tensor) -> KeysValues:
        return self.self_attention.keys_values(self.self_residual.inner(x), index)

    def mix(
        self,
        x: Tensor,
        keys_values: KeysValues,
        bias: Tensor | OpenKeys | None,
        index: tuple[Tensor, Tensor],
        place: Place | None,
    ) -> Tensor:
        """The layer's output for tokens `x` (B, tokens, D); `index` = positions of these queries and of the keys."""
        change = self.self_attention.attend(self.self_residual.inner(x), keys_values, bias, index, place)
        x = self.self_residual.outer(x, change)
        return self.forward_residual.outer(x, self.feed_forward(self.forward_residual.inner(x)))

    def step(self, x: Tensor, cache: LayerCache, frame: Frame, step: int) -> Tensor:
        row = frame.row(step)
        for store, new in zip(cache.own, self.keys_values(x, row.queries), strict=True):
            store[:, :, len(frame.source) + step] = new[:, :, 0]
        return self.mix(x, cache.own, row.biases[self.layer]["answer"], (row.queries, frame.sequence), None)


class AnswerPlace(Place):
    """Where the weights of the answer's queries go: those on the problem as cross-attention, the others as self-."""

    def keep(self, logits: Tensor, weights: Tensor) -> None:
        sources = weights.shape[-1] - weights.shape[-2]
        Place(self.record, "cross", self.layer).keep(logits[..., :sources], weights[..., :sources])
        Place(self.record, "self", self.layer).keep(logits[..., sources:], weights[..., sources:])


class DecoderOnly(Transformer):
    """Logits of every output token from the problem and the output tokens before it."""

    attentions = ("self", "cross", "source")

    def new_layer(self, config: ModelConfig, number: int) -> nn.Module:
        return DecoderOnlyLayer(config, number)

    @property
    def layers(self) -> list[DecoderOnlyLayer]:
        return [cast(DecoderOnlyLayer, layer) for layer in self.decoder]

    @torch.inference_mode(False)
    def build_frame(self, layout: Layout, dense: bool | None = None) -> Frame:
        """As of the encoder-decoder, with the bias `answer` of the answer's queries over the whole sequence."""
        frame = super().build_frame(layout, dense)
        sources, heads = layout.source_length, self.config.heads
        biases = [
            bias | {"answer": over_sequence(bias["cross"], bias["self"], sources, heads)} for bias in frame.biases
        ]
        target = frame.target + sources if self.config.source_index == "running" else frame.target
        return Frame(frame.source, target, target, tuple(biases))

    def decode(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None) -> Tensor:
        """The answer's states after all layers; those of the problem change from layer to layer too."""
        for layer in self.layers:
            of_problem, of_answer = layer.keys_values(memory, frame.source), layer.keys_values(x, frame.target)
            both = torch.cat([of_problem[0], of_answer[0]], 2), torch.cat([of_problem[1], of_answer[1]], 2)
            place = None if record is None else AnswerPlace(record, "self", layer.layer)
            x = layer.mix(x, both, frame.biases[layer.layer]["answer"], (frame.queries, frame.sequence), place)
            memory = self.next_problem(layer, memory, of_problem, frame, record)
        return x

    def next_problem(
        self, layer: DecoderOnlyLayer, x: Tensor, own: KeysValues, frame: Frame, record: Record | None = None
    ) -> Tensor:
        """The problem's states after a layer; nobody looks at those after the last one."""
        if layer.layer == len(self.decoder) - 1:
            return x
        place = None if record is None else Place(record, "source", layer.layer)
        return layer.mix(x, own, frame.biases[layer.layer]["source"], (frame.source, frame.source), place)

    def start(self, source: Tensor, layout: Layout) -> tuple[Frame, list[LayerCache]]:
        """What greedy decoding needs: keys and values of the whole sequence, those of the problem filled in."""
        frame = self.placed(self.frame(layout), layout)
        x = self.encode(source, frame)
        tokens = layout.source_length + layout.target_length
        shape = (len(source), self.config.heads, tokens, self.config.width // self.config.heads)
        caches = []
        for layer in self.layers:
            problem, both = layer.keys_values(x, frame.source), (x.new_zeros(shape), x.new_zeros(shape))
            for store, new in zip(both, problem, strict=True):
                store[:, :, : layout.source_length] = new
            caches.append(LayerCache(problem, both))
            x = self.next_problem(layer, x, problem, frame)
        return frame, caches


def over_sequence(
    cross: Tensor | OpenKeys | None, own: Tensor | OpenKeys | None, sources: int, heads: int
) -> Tensor | OpenKeys:
    """The bias of the answer's queries over problem and answer; open keys if both parts have them."""
    if isinstance(cross, OpenKeys) and isinstance(own, OpenKeys):
        index = torch.cat([cross.index, own.index + sources], dim=1)
        return OpenKeys(index, torch.cat([each.value.expand(heads, -1, -1) for each in (cross, own)], dim=2))
    assert own is not None  # at least causal
    answers = len(own.index) if isinstance(own, OpenKeys) else own.shape[1]
    matrix = as_matrix(own, answers, answers, heads)
    return torch.cat([as_matrix(cross, answers, sources, heads).to(matrix.device), matrix], dim=2)


def as_matrix(bias: Tensor | OpenKeys | None, queries: int, keys: int, heads: int) -> Tensor:
    if bias is None:
        return torch.zeros(heads, queries, keys)
    matrix = bias.dense(keys) if isinstance(bias, OpenKeys) else bias
    return matrix.expand(heads, -1, -1)
