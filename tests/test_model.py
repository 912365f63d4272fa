"""The Transformer against torch.nn's, and its paths (recorded, open keys, step by step) against each other."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from abc_nb.bias.alibi import ALiBi
from abc_nb.bias.base import ENCODER_DECODER, Attention, Bias, Causal, OpenKeys, key_count, query_count
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.model import attention as multihead
from abc_nb.model.attention import AttentionRecord
from abc_nb.model.dropout import Dropout
from abc_nb.model.layers import Layer
from abc_nb.model.positions import NoPosition, PositionEncoding, Relative, Rotary, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Layout, binary_aligned, binary_natural, unary
from audit.models import MODERN

VOCABULARY = 15
TINY = ModelConfig(width=8, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=2)
POSITIONS = [NoPosition(), Sinusoidal(), Sinusoidal(3), Rotary(), Relative(2)]
POSITIONS += [model.position for model in MODERN.values()]
OF_LAYER: list[tuple[Any, ...]] = [  # attention, head, direction, span, offset, value
    ("cross", 0, "antidiagonal", "operand 1", 0, 0.0),
    ("cross", 0, "vertical", "&", 0, -0.5),
    ("cross", 1, "antidiagonal", "operand 1", 1, 0.0),
    ("cross", 1, "vertical", "$", 0, -1.0),
    ("self", 0, "diagonal", "output", 0, 0.0),
    ("self", 1, "diagonal", "output", -1, 0.0),
    ("self", 1, "vertical", "$", 0, -2.0),
]
LINES = Lines(2, tuple(Line(name, layer, *line) for layer in (0, 1) for name, *line in OF_LAYER))  # no query has no key
GAPS = Lines(2, LINES.lines[:1] + LINES.lines[5:6], empty="closed")  # heads, layers and queries without a key
LAYOUTS = [unary(5), binary_natural(4, "+", 4), binary_aligned(4, "+")]


def build(config: ModelConfig) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config, VOCABULARY).eval()  # where it draws no positions


def tokens(layout: Layout, batch: int = 3) -> tuple[Tensor, Tensor]:
    """Any source and target: a model does not know which tokens make sense."""
    rng, both = torch.Generator().manual_seed(1), (layout.source_length, layout.target_length)
    source, target = (torch.randint(VOCABULARY, (batch, length), generator=rng) for length in both)
    return source, target


def gradients(model: Transformer, logits: Tensor) -> dict[str, Tensor]:
    """Of a number in which every logit counts differently."""
    weights = torch.linspace(-1, 1, logits.numel()).view(logits.shape)
    model.zero_grad()
    (logits * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def text(value: object) -> str:
    return f"{len(value.lines)} lines" if isinstance(value, Lines) else f"{value}"


def torch_layer(ours: Layer, config: ModelConfig) -> nn.Module:
    """PyTorch's own layer with the weights of one of ours; a decoder layer where ours has cross-attention."""
    crossed = hasattr(ours, "cross_attention")
    attentions = {"self_attn": ours.self_attention} | ({"multihead_attn": ours.cross_attention} if crossed else {})
    residuals = [ours.self_residual, *([ours.cross_residual] if crossed else []), ours.forward_residual]
    parts = {f"norm{number}": residual.norm for number, residual in enumerate(residuals, 1)}
    parts |= {"linear1": ours.feed_forward[0], "linear2": ours.feed_forward[3]}
    parts |= {f"{name}.out_proj": attention.out for name, attention in attentions.items()}
    weights = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    for name, attention in attentions.items():
        projections = attention.query, attention.key, attention.value
        weights[f"{name}.in_proj_weight"] = torch.cat([part.weight for part in projections])
        weights[f"{name}.in_proj_bias"] = torch.cat([part.bias for part in projections])
    kind = nn.TransformerDecoderLayer if crossed else nn.TransformerEncoderLayer
    options = {"dropout": 0.0, "activation": "relu", "batch_first": True, "norm_first": True}
    theirs = kind(config.width, config.heads, config.feed_forward, **options)  # type: ignore[arg-type]
    theirs.load_state_dict(weights)
    return theirs


def torch_logits(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The same weights in torch.nn's layers with a causal mask; sinusoids in a decoder alone, else no positions."""
    config, causal = model.config, nn.Transformer.generate_square_subsequent_mask
    scale = config.width**0.5
    if config.kind == "decoder-only":
        count = source.shape[1] + target.shape[1]
        angle = torch.arange(count)[:, None] * 10000.0 ** (-torch.arange(0, config.width, 2) / config.width)
        sinusoids = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        x = model.embedding(torch.cat([source, target], 1)) * scale + sinusoids
        for layer in model.decoder.layers:
            x = torch_layer(layer, config)(x, src_mask=causal(count))
        return model.head(model.decoder_norm(x[:, source.shape[1] :]))
    memory, x = model.embedding(source) * scale, model.embedding(target) * scale
    for layer in model.encoder:
        assert isinstance(layer, Layer)
        memory = torch_layer(layer, config)(memory)
    memory = model.encoder_norm(memory)
    for layer in model.decoder.layers:
        x = torch_layer(layer, config)(x, memory, tgt_mask=causal(target.shape[1]))
    return model.head(model.decoder_norm(x))


@pytest.mark.parametrize("encoder_layers", [0, 2, None])
def test_equals_torch_transformer_layers(encoder_layers: int | None) -> None:
    """Without a number of encoder layers, a decoder alone, with the index of one sequence."""
    config = replace(TINY, encoder_layers=encoder_layers or 0, position=NoPosition())
    if encoder_layers is None:
        config = replace(config, kind="decoder-only", position=Sinusoidal(), source_index="running")
    model, layout = build(config), binary_natural(4, "+", 4)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)  # norms and biases too, or their places could be swapped unseen
    source, target = tokens(layout)
    ours, theirs = model(source, target, layout), torch_logits(model, source, target)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    by_us, by_them = gradients(model, ours)["embedding.weight"], gradients(model, theirs)["embedding.weight"]
    torch.testing.assert_close(by_us, by_them, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "end", "index"),
    [
        (unary(4), "right", [5, 4, 3, 2, 1, 0]),
        (unary(4), "left", [0, 1, 2, 3, 4, 5]),
        (unary(3), "place", [4, 3, 2, 1, 0]),  # $ 3 2 1 &
        (unary(2, "SM"), "place", [0, 3, 2, 1, 0]),  # $ SM 2 1 &
        (binary_natural(3, "+", 3), "place", [4, 3, 2, 1, 4, 3, 2, 1, 0]),  # $ 3 2 1 + 3 2 1 &
        (binary_natural(3, "*", 1), "place", [4, 3, 2, 1, 2, 1, 0]),  # $ 3 2 1 * 1 &
        (binary_aligned(2, "+"), "place", [0, 3, 2, 2, 1, 1, 0]),  # $ + 2 2 1 1 &
    ],
)
def test_source_is_counted_as_asked(layout: Layout, end: str, index: list[int]) -> None:
    frame = build(replace(TINY, source_index=end)).layout_inputs(layout)  # type: ignore[arg-type]
    assert frame.source.tolist() == index
    assert frame.target.tolist() == [*range(layout.target_length)]


ALONE = replace(TINY, kind="decoder-only", encoder_layers=0, source_index="running")
CONFIGS = [replace(TINY, position=position, bias=Window(1)) for position in POSITIONS]
CONFIGS += [replace(ALONE, position=position, bias=Window(1)) for position in POSITIONS[:5]]
CONFIGS += [
    replace(size, position=position, bias=bias)
    for size, position, bias in product((TINY, ALONE), (Rotary(), Relative(2)), (Causal(), LINES))
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.kind} {config.position} {text(config.bias)}")
@torch.inference_mode()
def test_recording_decoding_step_by_step_and_the_beginning_of_a_target_give_the_same_logits(
    config: ModelConfig,
) -> None:
    """So no logit depends on a later token."""
    model = build(config)
    for layout in (*LAYOUTS, binary_aligned(40, "+")):
        source, target = tokens(layout)
        record = AttentionRecord()
        together = model(source, target, layout, record=record)
        torch.testing.assert_close(model(source, target, layout), together, rtol=1e-4, atol=1e-4)
        frame, caches = model.start(source, layout)
        steps = [model.step(target[:, i], i, frame, caches) for i in range(layout.target_length)]
        torch.testing.assert_close(torch.stack(steps, dim=1), together, rtol=1e-4, atol=1e-4)
        beginning = model(source, target[:, :3], layout)
        torch.testing.assert_close(beginning, together[:, :3], rtol=1e-4, atol=1e-4)
        for (name, layer), weights in record.weights.items():
            assert not weights[~config.bias.opened(layout, name, layer).expand_as(weights)].any()
            if config.kind == "encoder-decoder" or name == "source":
                torch.testing.assert_close(weights, record.logits[name, layer].softmax(-1))
                torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
            elif name == "cross":  # problem and answer share one softmax
                total = weights.sum(-1) + record.weights["self", layer].sum(-1)
                torch.testing.assert_close(total, torch.ones_like(total))
        outputs = {(name, layer) for name in ENCODER_DECODER for layer in (0, 1)}
        last = {("source", 0)} if config.kind == "decoder-only" else set()  # nobody looks at the problem after that
        assert record.weights.keys() == outputs | last


@dataclass(frozen=True)
class Twice(Bias):
    """Of each query the key before it, and its own in two slots with two values."""

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys:
        query = torch.arange(query_count(layout, attention))[:, None]
        index = (query + torch.tensor([-1, 0, 0])).clamp(0, key_count(layout, attention) - 1)
        return OpenKeys(index, torch.tensor([0.0, -1.0, 0.5]).expand(1, *index.shape))


BIASES = [Window(0), Window(1), Window(1, "both"), Window(3), LINES, GAPS, Twice()]


@pytest.mark.parametrize(
    ("position", "bias"),
    [*((position, LINES) for position in POSITIONS), *((Rotary(), bias) for bias in BIASES), (NoPosition(), GAPS)],
    ids=text,
)
def test_open_keys_give_the_logits_and_gradients_of_the_dense_bias(
    position: PositionEncoding, bias: Bias, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoding that adds to logits takes all keys: there both are the same. One query after the other, too."""
    monkeypatch.setattr(multihead, "BLOCK", 1)
    monkeypatch.setattr(OpenKeys, "few", lambda self, keys: True)
    model = build(replace(TINY, position=position, bias=bias))
    for layout in LAYOUTS:
        source, target = tokens(layout)
        assert isinstance(model.layout_inputs(layout).biases[0]["cross"], OpenKeys) == (not position.adds_logits)
        few, all_keys = model(source, target, layout), model(source, target, layout, record=AttentionRecord())
        torch.testing.assert_close(few, all_keys, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients(model, few), gradients(model, all_keys), rtol=1e-3, atol=1e-4)
        with torch.inference_mode():
            torch.testing.assert_close(model(source, target, layout), few)


def test_dropout_drops_a_share_enlarges_the_rest_and_stops_in_evaluation() -> None:
    torch.manual_seed(0)
    probability = 0.3
    x, dropout = torch.ones(1000, 1001, requires_grad=True), Dropout(probability)
    dropped = dropout(x)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / (1 - probability)).item()}
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=0.002)
    assert torch.equal(torch.autograd.grad(dropped.sum(), x)[0], dropped)
    assert not torch.equal(dropout(x), dropped)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.parametrize("bias", [Causal(), ALiBi(), Window(1)], ids=text)
def test_dropout_of_attention_keeps_its_mean(bias: Bias) -> None:
    """Over ten thousand copies of a problem; over all keys, and where open keys are gathered."""
    torch.manual_seed(0)
    attention, layout = multihead.MultiHeadAttention(8, 2, 0.5, NoPosition()), unary(5)
    x, index = torch.randn(1, 6, 8), (torch.arange(6), torch.arange(6))
    added = bias.open_keys(layout, "self", 0) or bias.dense(layout, "self", 0, 2)
    plain = attention.eval().attend(x, attention.keys_values(x, index[0]), added, index)
    many = x.expand(10_000, -1, -1)
    dropped = attention.train().attend(many, attention.keys_values(many, index[0]), added, index)
    assert (dropped.std(0) > 0).all()
    torch.testing.assert_close(dropped.mean(0, keepdim=True), plain, rtol=0, atol=0.03)
