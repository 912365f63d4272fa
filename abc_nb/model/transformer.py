"""The Transformer (Vaswani et al. 2017): embedding, encoder, one of two decoders, and logits.

Shapes: B batch, S source, L target, D width.
"""

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Added, Attention, Bias, key_count
from abc_nb.bias.sequence import over_sequence
from abc_nb.model.attention import AttentionRecord, Cache
from abc_nb.model.dropout import Dropout
from abc_nb.model.layers import Decoder, Layer, LayoutInputs, ModelConfig
from abc_nb.model.positions import Index
from abc_nb.problems.layouts import Layout

__all__ = ["ModelConfig", "Transformer"]

FRAMES = 32  # layouts whose positions and biases a model keeps


class Transformer(nn.Module):
    """Logits of every output token from a source and the tokens before it."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary_size, config.width)
        self.encoder = nn.ModuleList(Layer(config) for _ in range(config.encoder_layers))
        self.decoder = Decoder(config)
        self.encoder_norm = config.normed() if config.encoder_layers else nn.Identity()
        self.decoder_norm = config.normed()
        self.head = nn.Linear(config.width, vocabulary_size)
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.position = config.position.table(config.width)
        self.inputs_by_layout: dict[tuple[Layout, bool, torch.device], LayoutInputs] = {}

    def with_bias(self, bias: Bias) -> Self:
        """The same weights under another bias, ready to evaluate."""
        model = type(self)(replace(self.config, bias=bias), self.embedding.num_embeddings)
        model.load_state_dict(self.state_dict())
        return model.to(self.head.weight.device).eval()

    def layout_inputs(self, layout: Layout, dense: bool = False) -> LayoutInputs:
        """As `build_inputs`, of which the last ones are kept, with tokens where the position encoding puts them."""
        key = (layout, dense, self.head.weight.device)
        if key not in self.inputs_by_layout:
            if len(self.inputs_by_layout) == FRAMES:
                del self.inputs_by_layout[next(iter(self.inputs_by_layout))]
            self.inputs_by_layout[key] = self.build_inputs(layout, dense)
        inputs, place = self.inputs_by_layout[key], self.config.position.place
        source, target = place(Index(inputs.source, inputs.target), layout, self.config.head_size, self.training)
        return replace(inputs, source=source, target=target, queries=target)

    @torch.inference_mode(False)  # they outlive the pass that builds them, and may serve training next
    def build_inputs(self, layout: Layout, dense: bool) -> LayoutInputs:
        """Index and biases of a layout; open keys where the bias has a few, unless `dense`."""
        device, config = self.head.weight.device, self.config
        source = torch.from_numpy(layout.source_index(config.source_index)).to(device)
        target = torch.from_numpy(layout.target_index(config.source_index)).to(device)

        def bias_of(attention: Attention, layer: int) -> Added:
            keys = None if dense or config.position.adds_logits else config.bias.open_keys(layout, attention, layer)
            if keys is not None and keys.few(key_count(layout, attention)):
                return keys.distinct().to(device)
            matrix = config.bias.dense(layout, attention, layer, config.heads)
            return None if matrix is None else matrix.to(device)

        def layer_biases(layer: int) -> dict[str, Added]:
            cross, to_self = bias_of("cross", layer), bias_of("self", layer)
            if not self.decoder.decoder_only:
                return {"cross": cross, "self": to_self}
            return {"sequence": over_sequence(cross, to_self, layout.source_length), "source": bias_of("source", layer)}

        return LayoutInputs(source, target, target, tuple(map(layer_biases, range(config.decoder_layers))))

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        layout: Layout,
        record: AttentionRecord | None = None,
        phase: Tensor | int = 0,
    ) -> Tensor:
        """Logits (B, L, vocabulary) for source (B, S) and the target without its last token (B, L).

        Of a target that is only the beginning of one (L smaller than the layout's) it gives the beginning. `record`
        receives attention (and makes the biases dense); `phase`, one number or (B, 1), is added to every position, in
        places: aligned digits of two operands take two columns a place.
        """
        inputs = replace(self.layout_inputs(layout, dense=record is not None), record=record)
        if target.shape[1] < layout.target_length:
            inputs = inputs.part(0, target.shape[1])
        memory = self.encode(source, inputs, phase, layout.operands[0].stride)
        x = self.embed(target, self.config.position.shifted(inputs.target, phase))
        return self.head(self.decoder_norm(self.decoder(x, self.decoder.problem(memory, inputs), inputs)))

    def embed(self, tokens: Tensor, index: Tensor) -> Tensor:
        config, x = self.config, self.embedding(tokens) * self.config.width**0.5
        exact = index.double() if x.dtype == torch.float64 else index  # lest sines are of float32
        position = config.position.embedding(exact, config.width) if self.position is None else self.position(index)
        return self.dropout(x if position is None else x + position)

    def encode(self, source: Tensor, inputs: LayoutInputs, phase: Tensor | int = 0, stride: int = 1) -> Tensor:
        x = self.embed(source, self.config.position.shifted(inputs.source, phase, stride))
        for layer in self.encoder:
            x = layer(x, inputs.source)
        return self.encoder_norm(x)

    def start(self, source: Tensor, layout: Layout) -> tuple[LayoutInputs, Cache]:
        """What greedy decoding needs: positions and biases, and keys and values of the source."""
        inputs = self.layout_inputs(layout)
        cache = Cache([*self.decoder.problem(self.encode(source, inputs), inputs)])
        if self.decoder.decoder_only:
            cache.layers, cache.count = [*cache.problem], len(inputs.source)
        return inputs, cache

    def step(self, tokens: Tensor, step: int, inputs: LayoutInputs, cache: Cache) -> Tensor:
        """Logits (B, vocabulary) of the token after `tokens` (B,), which stand at index `step`."""
        x = self.embed(tokens[:, None], inputs.target[step : step + 1])
        return self.head(self.decoder_norm(self.decoder(x, cache.problem, inputs.part(step, step + 1), cache)))[:, 0]
