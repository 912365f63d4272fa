"""The Transformer against torch.nn's, and its paths (recorded, open keys, step by step) against each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn

from abc_nb.bias.alibi import ALiBi
from abc_nb.bias.base import Attention, Bias, Causal, OpenKeys, key_count
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Sides, Window
from abc_nb.model import attention as multihead
from abc_nb.model.attention import MultiHeadAttention, Record, softmax_or_zero
from abc_nb.model.dropout import Dropout
from abc_nb.model.layers import Layer
from abc_nb.model.positions import NoPosition, PositionEncoding, Relative, Rotary, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Layout, binary_aligned, binary_natural, unary
from abc_nb.specs.models import MODERN

VOCABULARY = 15
TINY = ModelConfig(width=8, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=2)
POSITIONS = [NoPosition(), Sinusoidal(), Sinusoidal(3), Rotary(), Relative(2)]
POSITIONS += [model.position for model in MODERN.values()]
LINES = Lines(  # two heads in two layers, each with a key for every query
    heads=2,
    lines=tuple(
        line
        for layer in (0, 1)
        for line in (
            Line("cross", layer, 0, "antidiagonal", "operand 1", 0, 0.0),
            Line("cross", layer, 0, "vertical", "&", 0, -0.5),
            Line("cross", layer, 1, "antidiagonal", "operand 1", 1 - 2 * layer, 0.0),
            Line("cross", layer, 1, "vertical", "$", 0, -1.0),
            Line("self", layer, 0, "diagonal", "output", 0, 0.0),
            Line("self", layer, 1, "diagonal", "output", -1, 0.0),
            Line("self", layer, 1, "vertical", "$", 0, -2.0),
        )
    ),
)
GAPS = Lines(
    heads=2, lines=LINES.lines[:1] + LINES.lines[5:6], empty="closed"
)  # heads, layers and queries without a key
BIASES = [Causal(), Window(1), ALiBi(), ALiBi(cross=True), LINES]
LAYOUTS = [unary(5), binary_natural(4, "+", 4), binary_aligned(4, "+")]


def build(config: ModelConfig) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config, VOCABULARY).eval()  # where it draws no positions


def tokens(layout: Layout, batch: int = 3) -> tuple[Tensor, Tensor]:
    """Any source and target: a model does not know which tokens make sense."""
    rng = torch.Generator().manual_seed(1)
    shapes = (batch, layout.source_length), (batch, layout.target_length)
    source, target = (torch.randint(VOCABULARY, shape, generator=rng) for shape in shapes)
    return source, target


def gradients(model: Transformer, logits: Tensor) -> dict[str, Tensor]:
    """Of a number in which every logit counts differently."""
    weights = torch.linspace(-1, 1, logits.numel()).view(logits.shape)
    model.zero_grad()
    (logits * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def text(value: object) -> str:
    return f"{len(value.lines)} lines" if isinstance(value, Lines) else f"{value}"


def crossed(layouts: list[Layout], biases: list[Bias]) -> list[ParameterSet]:
    """Each layout with each position and bias; every second one is long."""
    names = ["unary", "natural", "aligned", "long"]
    return [
        pytest.param(
            *case, marks=[pytest.mark.long] * ((i + j + k) % 2), id=f"{names[i]}-{text(case[1])}-{text(case[2])}"
        )
        for (i, layout), (j, position), (k, bias) in product(*map(enumerate, (layouts, POSITIONS, biases)))
        for case in [(layout, position, bias)]
    ]


# ---- torch.nn ---------------------------------------------------------------------------------------


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    parts = ours.query, ours.key, ours.value
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def copy_forward(ours: nn.Sequential, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    theirs.linear1.load_state_dict(ours[0].state_dict())
    theirs.linear2.load_state_dict(ours[3].state_dict())


def torch_logits(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The same weights in torch.nn's layers, with no positions and a causal mask."""
    config = model.config
    options = {"dropout": 0.0, "activation": "relu", "batch_first": True, "norm_first": config.norm == "pre"}
    sizes = config.width, config.heads, config.feed_forward
    memory = model.embedding(source) * config.width**0.5
    for ours in model.encoder:
        assert isinstance(ours, Layer)
        encoder = nn.TransformerEncoderLayer(*sizes, **options)
        copy_attention(ours.self_attention, encoder.self_attn)
        copy_forward(ours.feed_forward, encoder)
        encoder.norm1.load_state_dict(ours.self_residual.norm.state_dict())
        encoder.norm2.load_state_dict(ours.forward_residual.norm.state_dict())
        memory = encoder(memory)
    memory = model.encoder_norm(memory)
    x = model.embedding(target) * config.width**0.5
    mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
    for ours in model.layers:
        decoder = nn.TransformerDecoderLayer(*sizes, **options)
        copy_attention(ours.self_attention, decoder.self_attn)
        copy_attention(ours.cross_attention, decoder.multihead_attn)
        copy_forward(ours.feed_forward, decoder)
        decoder.norm1.load_state_dict(ours.self_residual.norm.state_dict())
        decoder.norm2.load_state_dict(ours.cross_residual.norm.state_dict())
        decoder.norm3.load_state_dict(ours.forward_residual.norm.state_dict())
        x = decoder(x, memory, tgt_mask=mask)
    return model.head(model.decoder_norm(x))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("encoder_layers", [0, 2])
def test_equals_torch_transformer_layers(norm: str, encoder_layers: int) -> None:
    config = replace(TINY, norm=norm, encoder_layers=encoder_layers, position=NoPosition())
    model, layout = build(config), binary_natural(4, "+", 4)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)  # norms and biases too, or their places could be swapped unseen
    source, target = tokens(layout)
    ours, theirs = model(source, target, layout), torch_logits(model, source, target)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    by_us, by_them = gradients(model, ours)["embedding.weight"], gradients(model, theirs)["embedding.weight"]
    torch.testing.assert_close(by_us, by_them, rtol=1e-3, atol=1e-4)


# ---- positions and biases reach the attention -------------------------------------------------------


@pytest.mark.parametrize("end", ["right", "left"])
def test_source_is_counted_from_the_end_asked_for(end: str) -> None:
    narrow, wide = (build(replace(TINY, source_index=end)).frame(unary(width)).source for width in (4, 6))
    expected = [5, 4, 3, 2, 1, 0] if end == "right" else [0, 1, 2, 3, 4, 5]
    assert narrow.tolist() == expected
    assert (wide[-6:] if end == "right" else wide[:6]).tolist() == expected


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        (unary(3), [4, 3, 2, 1, 0]),  # $ 3 2 1 &
        (unary(2, "SM"), [0, 3, 2, 1, 0]),  # $ SM 2 1 &
        (binary_natural(3, "+", 3), [4, 3, 2, 1, 4, 3, 2, 1, 0]),  # $ 3 2 1 + 3 2 1 &
        (binary_natural(3, "*", 1), [4, 3, 2, 1, 2, 1, 0]),  # $ 3 2 1 * 1 &
        (binary_aligned(2, "+"), [0, 3, 2, 2, 1, 1, 0]),  # $ + 2 2 1 1 &
    ],
)
def test_counted_by_place_digits_of_equal_places_have_one_index(layout: Layout, places: list[int]) -> None:
    frame = build(replace(TINY, source_index="place")).frame(layout)
    assert frame.source.tolist() == places
    assert frame.target.tolist() == [*range(layout.target_length)]


@pytest.mark.parametrize("bias", BIASES, ids=text)
@pytest.mark.parametrize("position", [NoPosition(), Relative(2)], ids=text)
def test_recorded_logits_are_the_scaled_products_plus_position_and_bias(bias: Bias, position: PositionEncoding) -> None:
    """The first layer's self-attention, one query and key at a time."""
    layout, config = binary_aligned(3, "+"), replace(TINY, position=position, bias=bias)
    model, record = build(config), Record()
    source, target = tokens(layout, batch=2)
    model(source, target, layout, record=record)
    attention, norm = model.layers[0].self_attention, model.layers[0].self_residual.norm
    inner = norm(model.embedding(target) * config.width**0.5)
    query, key = (part(inner).view(2, -1, 2, 4) for part in (attention.query, attention.key))
    added = bias.dense(layout, "self", 0, 2)
    assert added is not None
    for head in range(2):
        for i in range(layout.target_length):
            for j in range(layout.target_length):
                keys = key[:, j, head]
                if isinstance(position, Relative):
                    keys = keys + attention.position.get_parameter("table")[max(-2, min(2, j - i)) + 2]
                expected = (query[:, i, head] * keys).sum(-1) / 2 + added[head % len(added), i, j]
                torch.testing.assert_close(record.logits["self", 0][:, head, i, j], expected)


@pytest.mark.parametrize("bias", BIASES, ids=text)
@pytest.mark.parametrize("position", POSITIONS, ids=text)
def test_no_logit_depends_on_a_later_token(bias: Bias, position: PositionEncoding) -> None:
    layout = binary_aligned(4, "+")
    model = build(replace(TINY, position=position, bias=bias))
    source, target = tokens(layout)
    before = model(source, target, layout)
    for step in range(layout.target_length):
        changed = target.clone()
        changed[:, step] = (changed[:, step] + 1) % VOCABULARY
        after = model(source, changed, layout)
        torch.testing.assert_close(after[:, :step], before[:, :step])
        assert not torch.isclose(after[:, step], before[:, step]).all()


def test_window_hides_what_is_outside_it() -> None:
    layout = binary_aligned(6, "+")
    model = build(replace(TINY, encoder_layers=0, decoder_layers=1, bias=Window(1)))
    source, target = tokens(layout)
    before = model(source, target, layout)
    changed = source.clone()
    changed[:, 2] = (changed[:, 2] + 1) % VOCABULARY  # the first operand's highest digit, place 5
    moved = ~torch.isclose(model(source=changed, target=target, layout=layout), before).all(-1)
    assert moved.all(0).tolist() == [False] * 5 + [True] * 2
    assert not moved[:, :5].any()


# ---- recording --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", BIASES, ids=text)
@pytest.mark.parametrize("position", POSITIONS, ids=text)
def test_recording_changes_no_logit_and_its_weights_sum_to_one(bias: Bias, position: PositionEncoding) -> None:
    layout = binary_natural(4, "+", 4)
    model, record = build(replace(TINY, position=position, bias=bias)), Record()
    source, target = tokens(layout)
    torch.testing.assert_close(model(source, target, layout, record=record), model(source, target, layout))
    assert set(record.weights) == {(name, layer) for name in ("self", "cross") for layer in (0, 1)}
    for (name, layer), weights in record.weights.items():
        assert weights.shape == (3, 2, layout.target_length, key_count(layout, name))
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        torch.testing.assert_close(weights, record.logits[name, layer].softmax(-1))
        closed = bias.dense(layout, name, layer, 2)
        assert closed is None or not weights[(closed == float("-inf")).expand_as(weights)].any()


# ---- open keys --------------------------------------------------------------------------------------


OPEN = [Window(0), Window(1), Window(1, "both"), Window(3), LINES, GAPS]


@pytest.mark.parametrize(("layout", "position", "bias"), crossed(LAYOUTS, OPEN))
def test_open_keys_give_the_logits_and_gradients_of_the_dense_bias(
    layout: Layout, position: PositionEncoding, bias: Bias
) -> None:
    model = build(replace(TINY, position=position, bias=bias))
    source, target = tokens(layout)
    assert isinstance(model.frame(layout, False).biases[0]["cross"], OpenKeys)
    few, all_keys = (model(source, target, layout, dense=dense) for dense in (False, True))
    torch.testing.assert_close(few, all_keys, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(model, few), gradients(model, all_keys), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("sides", "last"), [("one", 2), ("both", 4)])
def test_open_keys_are_used_where_sources_are_long(sides: Sides, last: int) -> None:
    """From three keys for each open one on: three are open to one side, four to both; a source has 2n + 3 tokens."""
    model = build(replace(TINY, bias=Window(1, sides)))
    widths = (2, last, last + 1, 200)
    kinds = {width: type(model.frame(binary_aligned(width, "+")).biases[0]["cross"]) for width in widths}
    assert kinds == {2: Tensor, last: Tensor, last + 1: OpenKeys, 200: OpenKeys}


# ---- nothing open -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shut(Bias):
    """A bias that closes every key of the cross-attention and, for two queries, of the self-attention."""

    few: bool  # given as open keys

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        if not self.few:
            return None
        index = torch.zeros(layout.target_length, 2, dtype=torch.long)
        value = torch.full((1, *index.shape), float("-inf"))
        if attention == "self":
            value[:, 2:, 0] = 0.0
        return OpenKeys(index, value)

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        matrix = torch.full((1, layout.target_length, key_count(layout, attention)), float("-inf"))
        if attention == "self":
            matrix[:, 2:, 0] = 0.0
        return matrix


def test_softmax_of_closed_rows_is_zero_and_of_others_the_usual() -> None:
    infinity = float("inf")
    logits = torch.tensor([[0.0, 1.0, -infinity], [-infinity, -infinity, -infinity]])
    expected = torch.stack([torch.softmax(logits[0], 0), torch.zeros(3)])
    torch.testing.assert_close(softmax_or_zero(torch.zeros(2, 3), logits, -1), expected)


@pytest.mark.parametrize("position", [NoPosition(), Relative(2)], ids=text)
@pytest.mark.parametrize("bias", BIASES, ids=text)
def test_blocks_of_queries_give_what_all_together_give(
    bias: Bias, position: PositionEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = binary_aligned(9, "+")
    model = build(replace(TINY, position=position, bias=bias)).eval()
    with torch.inference_mode():
        together = model(*tokens(layout), layout, dense=False)
        monkeypatch.setattr(multihead, "BLOCK", 1)
        torch.testing.assert_close(model(*tokens(layout), layout, dense=False), together)


@pytest.mark.parametrize("bias", [Causal(), ALiBi(), Shut(few=False)], ids=text)
def test_dropout_of_attention_is_that_of_its_weights(bias: Bias, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout replaced by doubling, attention doubles; the path with dropout is otherwise the fast one."""
    layout = unary(5)
    model = build(replace(TINY, bias=bias, dropout=0.5)).train()
    for part in model.modules():
        if isinstance(part, Dropout):
            part.p = 0.0
    monkeypatch.setattr(multihead, "drop", lambda x, rate: 2 * x)
    doubled = model(*tokens(layout), layout)
    plain = build(replace(TINY, bias=bias)).eval()
    for attention in (part for part in plain.modules() if isinstance(part, multihead.MultiHeadAttention)):
        attention.value.weight.data *= 2
        attention.value.bias.data *= 2
    torch.testing.assert_close(doubled, plain(*tokens(layout), layout))


# ---- step by step -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "position", "bias"), crossed([*LAYOUTS, binary_aligned(90, "+")], BIASES))
def test_decoding_step_by_step_gives_the_logits_of_one_pass(
    layout: Layout, position: PositionEncoding, bias: Bias
) -> None:
    model = build(replace(TINY, position=position, bias=bias)).eval()
    source, target = tokens(layout)
    with torch.inference_mode():
        frame, caches = model.start(source, layout)
        steps = [model.step(target[:, i], i, frame, caches) for i in range(layout.target_length)]
        together = model(source, target, layout, dense=True)
    torch.testing.assert_close(torch.stack(steps, dim=1), together, rtol=1e-4, atol=1e-4)


# ---- configuration ----------------------------------------------------------------------------------


def test_layers_and_sizes_are_those_of_the_configuration() -> None:
    model = build(ModelConfig(width=8, heads=2, feed_forward=24, encoder_layers=3, decoder_layers=1))
    assert (len(model.encoder), len(model.decoder)) == (3, 1)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["embedding.weight"] == shapes["head.weight"] == (VOCABULARY, 8)
    assert shapes["decoder.0.feed_forward.0.weight"] == (24, 8)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_without_an_encoder_layer_the_decoder_sees_the_embedded_source() -> None:
    layout = unary(4)
    model = build(replace(TINY, encoder_layers=0, position=NoPosition()))
    source, _ = tokens(layout)
    expected = model.embedding.weight[source] * 8**0.5
    torch.testing.assert_close(model.encode(source, model.frame(layout)), expected)


@pytest.mark.parametrize("dense", [True, False])
def test_dropout_acts_in_training_alone(dense: bool) -> None:
    layout = unary(5)
    model = build(replace(TINY, bias=Window(1), dropout=0.5))
    source, target = tokens(layout)
    first, second = (model.train()(source, target, layout, dense=dense) for _ in range(2))
    assert not torch.isclose(first, second).all()
    plain = build(replace(TINY, bias=Window(1)))
    torch.testing.assert_close(
        model.eval()(source, target, layout, dense=dense), plain(source, target, layout, dense=dense)
    )
