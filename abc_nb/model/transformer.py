"""The encoder-decoder Transformer (Vaswani et al. 2017; sizes in v4 appendix B).

Shapes: B batch, H heads, S source, L target, D width, d = D / H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Attention, Bias, Causal, OpenKeys, key_count
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention, Place, Record
from abc_nb.model.dropout import Dropout
from abc_nb.model.positions import Index, PositionEncoding, Sinusoidal
from abc_nb.problems.layouts import Layout, SourceIndex

KeysValues = tuple[Tensor, Tensor]  # (B, H, tokens, d) each
FRAMES = 32  # layouts whose positions and biases a model keeps


@dataclass(frozen=True)
class ModelConfig:
    """Everything that shapes a model; the vocabulary size comes from the task."""

    width: int = 64  # D, embedding size
    heads: int = 8
    feed_forward: int = 256
    encoder_layers: int = 0  # 0: the identity encoder of the authors' code
    decoder_layers: int = 2
    norm: Literal["pre", "post"] = "pre"
    dropout: float = 0.0
    position: PositionEncoding = field(default_factory=Sinusoidal)
    bias: Bias = field(default_factory=Causal)
    source_index: SourceIndex = "right"  # what source tokens are counted by
    kind: Literal["encoder-decoder", "decoder-only"] = "encoder-decoder"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind == "decoder-only" and self.encoder_layers:
            raise InputError(f"a decoder-only model has no encoder: give 0 encoder layers, not {self.encoder_layers}")
        if self.heads < 1 or self.width % self.heads:
            raise InputError(f"{self.heads} heads cannot share a width of {self.width}: choose a multiple of them")

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(self.width, self.heads, self.dropout, self.position)


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


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = config.attention(), FeedForward(config)
        self.self_residual, self.forward_residual = Residual(config), Residual(config)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        inner = self.self_residual.inner(x)
        keys_values = self.self_attention.keys_values(inner, index)
        x = self.self_residual.outer(x, self.self_attention.attend(inner, keys_values, None, (index, index)))
        return self.forward_residual.outer(x, self.feed_forward(self.forward_residual.inner(x)))


@dataclass
class LayerCache:
    """Keys and values a decoder layer has already computed."""

    cross: KeysValues  # of the source: (B, H, S, d)
    own: KeysValues  # filled step by step: (B, H, L, d), of a decoder-only model (B, H, S + L, d) with the source's


class Layer(nn.Module):
    """What the decoder layers of both kinds of model have."""

    self_attention: MultiHeadAttention
    feed_forward: FeedForward
    self_residual: Residual
    forward_residual: Residual

    def step(self, x: Tensor, cache: LayerCache, frame: Frame, step: int) -> Tensor:
        """One token `x` (B, 1, D) at index `step`; its key and value are added to the cache."""
        raise NotImplementedError


class DecoderLayer(Layer):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.self_attention, self.cross_attention = config.attention(), config.attention()
        self.feed_forward = FeedForward(config)
        self.self_residual, self.cross_residual, self.forward_residual = (Residual(config) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None = None) -> Tensor:
        inner = self.self_residual.inner(x)
        own = self.self_attention.keys_values(inner, frame.target)
        return self.mix(x, inner, own, self.cross_attention.keys_values(memory, frame.source), frame, record)

    def step(self, x: Tensor, cache: LayerCache, frame: Frame, step: int) -> Tensor:
        inner = self.self_residual.inner(x)
        now = frame.target[step : step + 1]
        for store, new in zip(cache.own, self.self_attention.keys_values(inner, now), strict=True):
            store[:, :, step] = new[:, :, 0]
        return self.mix(x, inner, cache.own, cache.cross, frame.row(step), None)

    def mix(
        self,
        x: Tensor,
        inner: Tensor,
        own: KeysValues,
        cross: KeysValues,
        frame: Frame,
        record: Record | None,
    ) -> Tensor:
        bias, queries = frame.biases[self.layer], frame.queries
        change = self.self_attention.attend(
            inner,
            own,
            bias["self"],
            (queries, frame.target),
            None if record is None else Place(record, "self", self.layer),
        )
        x = self.self_residual.outer(x, change)
        inner = self.cross_residual.inner(x)
        change = self.cross_attention.attend(
            inner,
            cross,
            bias["cross"],
            (queries, frame.source),
            None if record is None else Place(record, "cross", self.layer),
        )
        x = self.cross_residual.outer(x, change)
        return self.forward_residual.outer(x, self.feed_forward(self.forward_residual.inner(x)))


@dataclass(frozen=True)
class Frame:
    """What a layout fixes for a model: positions of source and target tokens, and every layer's bias."""

    source: Tensor  # (S,)
    target: Tensor  # (L,)
    queries: Tensor  # (L,) or (1,): the target positions asked about
    biases: tuple[dict[str, Tensor | OpenKeys | None], ...]  # by attention; see also `DecoderOnly.build_frame`

    @property
    def sequence(self) -> Tensor:
        """Positions of source and target tokens, one after the other: (S + L,)."""
        return torch.cat([self.source, self.target])

    def row(self, step: int) -> Frame:
        """The frame of one decoding step."""

        def cut(bias: Tensor | OpenKeys | None) -> Tensor | OpenKeys | None:
            if isinstance(bias, OpenKeys):
                return bias.rows(slice(step, step + 1))
            return None if bias is None else bias[:, step : step + 1]

        biases = tuple({name: cut(bias) for name, bias in layer.items()} for layer in self.biases)
        return Frame(self.source, self.target, self.target[step : step + 1], biases)

    def first(self, count: int) -> Frame:
        """The frame of the first output tokens alone; being causal, they do not depend on those after them."""

        widths = {"self": count, "cross": len(self.source), "answer": len(self.source) + count}

        def cut(name: str, bias: Tensor | OpenKeys | None) -> Tensor | OpenKeys | None:
            if name == "source":
                return bias
            keys = widths[name]
            if isinstance(bias, OpenKeys):
                rows = bias.rows(slice(count))
                return OpenKeys(rows.index.clamp(max=keys - 1), rows.value)
            return None if bias is None else bias[:, :count, :keys]

        biases = tuple({name: cut(name, bias) for name, bias in layer.items()} for layer in self.biases)
        return Frame(self.source, self.target[:count], self.queries[:count], biases)


class Transformer(nn.Module):
    """Logits of every output token from a source and the tokens before it."""

    attentions: ClassVar[tuple[Attention, ...]] = ("self", "cross")

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary_size, config.width)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(self.new_layer(config, number) for number in range(config.decoder_layers))
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.width) if pre and config.encoder_layers else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if pre else nn.Identity()
        self.head = nn.Linear(config.width, vocabulary_size)
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.position = config.position.table(config.width)
        self.frames: dict[tuple[Layout, bool | None, torch.device], Frame] = {}

    def new_layer(self, config: ModelConfig, number: int) -> nn.Module:
        return DecoderLayer(config, number)

    def with_bias(self, bias: Bias) -> Self:
        """The same weights under another bias, ready to evaluate."""
        changed = type(self)(replace(self.config, bias=bias), self.embedding.num_embeddings)
        changed.load_state_dict(self.state_dict())
        return changed.to(self.head.weight.device).eval()

    def frame(self, layout: Layout, dense: bool | None = None) -> Frame:
        """As `build_frame`; the last ones built are kept."""
        key = (layout, dense, self.head.weight.device)
        if key not in self.frames:
            if len(self.frames) == FRAMES:
                del self.frames[next(iter(self.frames))]
            self.frames[key] = self.build_frame(layout, dense)
        return self.frames[key]

    @torch.inference_mode(False)  # a frame outlives the pass that builds it, and may serve training next
    def build_frame(self, layout: Layout, dense: bool | None = None) -> Frame:
        """Positions and biases of a layout; open keys where the bias has them and `dense` allows it."""
        device = self.head.weight.device
        source = torch.from_numpy(layout.source_index(self.config.source_index)).to(device)
        target = torch.arange(layout.target_length, device=device)

        def bias(name: Attention, layer: int) -> Tensor | OpenKeys | None:
            keys = None if dense else self.config.bias.open_keys(layout, name, layer)
            if keys is not None and (dense is False or keys.few(key_count(layout, name))):
                return keys.to(device)
            matrix = self.config.bias.dense(layout, name, layer, self.config.heads)
            return None if matrix is None else matrix.to(device)

        numbers = range(self.config.decoder_layers)
        biases = [{str(name): bias(name, number) for name in self.attentions} for number in numbers]
        return Frame(source, target, target, tuple(biases))

    def placed(self, frame: Frame, layout: Layout) -> Frame:
        """The frame with its tokens where the position encoding puts them; in training it may draw that."""
        index, head_size = Index(frame.source, frame.target), self.config.width // self.config.heads
        source, target = self.config.position.place(index, layout, head_size, self.training)
        return replace(frame, source=source, target=target, queries=target)

    @property
    def layers(self) -> Sequence[Layer]:
        return [cast(Layer, layer) for layer in self.decoder]

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        return [cast(DecoderLayer, layer) for layer in self.decoder]

    def embed(self, tokens: Tensor, index: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.config.width**0.5
        fixed = self.config.position.embedding(index, self.config.width)
        position = fixed if self.position is None else self.position(index)
        return self.dropout(x if position is None else x + position)

    def encode(self, source: Tensor, frame: Frame, phase: Tensor | int = 0, stride: int = 1) -> Tensor:
        x = self.embed(source, self.config.position.shifted(frame.source, phase, stride))
        for layer in self.encoder:
            x = layer(x, frame.source)
        return self.encoder_norm(x)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        layout: Layout,
        record: Record | None = None,
        dense: bool | None = None,
        phase: Tensor | int = 0,
    ) -> Tensor:
        """Logits (B, L, vocabulary) for source (B, S) and the target without its last token (B, L).

        Of a target that is only the beginning of one (L smaller than the layout's) it gives the beginning.
        `record` receives attention (and makes the biases dense); `phase`, one number or (B, 1), is added to
        every position, in places: aligned digits of two operands take two columns a place.
        """
        frame = self.placed(self.frame(layout, True if record is not None else dense), layout)
        if target.shape[1] < layout.target_length:
            frame = frame.first(target.shape[1])
        memory = self.encode(source, frame, phase, layout.operands[0].stride)
        x = self.embed(target, self.config.position.shifted(frame.target, phase))
        return self.head(self.decoder_norm(self.decode(x, memory, frame, record)))

    def decode(self, x: Tensor, memory: Tensor, frame: Frame, record: Record | None) -> Tensor:
        """The target's states after all layers, from its embedded tokens `x` (B, L, D) and the encoded source."""
        for layer in self.decoder:
            x = layer(x, memory, frame, record)
        return x

    def start(self, source: Tensor, layout: Layout) -> tuple[Frame, list[LayerCache]]:
        """What greedy decoding needs: the encoded source as keys and values, and empty caches."""
        frame = self.placed(self.frame(layout), layout)
        memory = self.encode(source, frame)
        shape = (len(source), layout.target_length, self.config.heads, self.config.width // self.config.heads)
        caches = []
        for layer in self.decoder_layers:
            own = (memory.new_zeros(shape).transpose(1, 2), memory.new_zeros(shape).transpose(1, 2))
            caches.append(LayerCache(layer.cross_attention.keys_values(memory, frame.source), own))
        return frame, caches

    def step(self, tokens: Tensor, step: int, frame: Frame, caches: list[LayerCache]) -> Tensor:
        """Logits (B, vocabulary) of the token after `tokens` (B,), which stand at index `step`."""
        x = self.embed(tokens[:, None], frame.target[step : step + 1])
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer.step(x, cache, frame, step)
        return self.head(self.decoder_norm(x))[:, 0]
