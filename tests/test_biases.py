"""Attention biases against their papers' definitions, written as loops, and every bias in both kinds of model."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from helpers import assert_open_keys_are, layouts
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias import CLOSED, Line, Lines
from abc_nb.bias.alibi import ALiBi, PlacedALiBi, RunningALiBi
from abc_nb.bias.base import Attention, Bias, Causal, OpenKeys
from abc_nb.bias.spans import SpanLines
from abc_nb.bias.window import Near, Sides, Window
from abc_nb.common.errors import InputError
from abc_nb.model.attention import Record
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS, Layout, binary_aligned, binary_natural, unary
from abc_nb.problems.tasks import Task

WIDTHS, WINDOWS = st.integers(1, 20), st.integers(0, 4)
LAYOUTS = layouts(WIDTHS)
SIDES: st.SearchStrategy[Sides] = st.sampled_from(["one", "both"])
INFINITY = float("inf")


def opened(rows: list[set[int]], keys: int) -> torch.Tensor:
    """Zero at the open keys of each query, minus infinity elsewhere, as (1, query, key)."""
    matrix = torch.full((1, len(rows), keys), -INFINITY)
    for i, row in enumerate(rows):
        for j in row & set(range(keys)):
            matrix[0, i, j] = 0.0
    return matrix


def left(w: int, sides: Sides) -> int:
    """How many columns a window opens to the left."""
    return w if sides == "both" else 0


def dense(bias: Bias, layout: Layout, attention: Attention, heads: int = 1) -> torch.Tensor:
    matrix = bias.dense(layout, attention, layer=0, heads=heads)
    assert matrix is not None
    return matrix


@given(LAYOUTS, WINDOWS, SIDES)
def test_window_of_self_attention_is_the_token_and_w_before_it(layout: Layout, w: int, sides: Sides) -> None:
    rows = [{i - back for back in range(w + 1)} for i in range(layout.target_length)]
    torch.testing.assert_close(dense(Window(w, sides), layout, "self"), opened(rows, layout.target_length))


@given(WIDTHS, WINDOWS, SIDES)
def test_window_of_cross_attention_is_the_digits_of_the_place_and_w_beside(width: int, w: int, sides: Sides) -> None:
    """Of an aligned source a pair at a time: at the end of the sequence, SOS and operator."""
    both = 2 * width + 3
    cases: list[tuple[Layout, int, list[int], int]] = [  # keys, the first one of each operand at step 0, tokens a place
        (unary(width), width + 2, [width], 1),
        (unary(width, "SM"), width + 3, [width + 1], 1),
        (binary_natural(width, "+", width), both, [width, both - 2], 1),
        (binary_aligned(width, "+"), both, [both - 3], 2),
    ]
    for layout, keys, firsts, stride in cases:
        rows = [
            {first - stride * i + side for first in firsts for side in range(-left(w, sides), stride + w)}
            for i in range(width + 1)
        ]
        torch.testing.assert_close(dense(Window(w, sides), layout, "cross"), opened(rows, keys))


@pytest.mark.parametrize("attention", ["self", "cross"])
@given(LAYOUTS, WINDOWS, SIDES)
def test_open_keys_are_the_dense_matrix_and_hold_no_key_twice(
    attention: Attention, layout: Layout, w: int, sides: Sides
) -> None:
    keys = Window(w, sides).open_keys(layout, attention, layer=0)
    assert_open_keys_are(keys, dense(Window(w, sides), layout, attention))


@given(LAYOUTS)
def test_causal_hides_the_future_and_leaves_the_source_open(layout: Layout) -> None:
    rows = [set(range(i + 1)) for i in range(layout.target_length)]
    torch.testing.assert_close(dense(Causal(), layout, "self"), opened(rows, layout.target_length))
    assert Causal().dense(layout, "cross", 0, 1) is None
    assert Causal().open_keys(layout, "self", 0) is None


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_alibi_is_minus_slope_times_distance_to_the_digit_of_the_place_in_the_source(heads: int) -> None:
    layout, text = unary(5), "$aaaaa&"
    own = torch.full((heads, 6, 6), -INFINITY)
    cross = torch.empty(heads, 6, len(text))
    for head, i in product(range(heads), range(6)):
        slope = 2 ** (-8 * (head + 1) / heads)
        own[head, i, : i + 1] = torch.tensor([-slope * (i - j) for j in range(i + 1)])
        cross[head, i] = torch.tensor([-slope * abs(j - (len(text) - 2 - i)) for j in range(len(text))])
    for bias in (ALiBi(), ALiBi(cross=True)):
        torch.testing.assert_close(dense(bias, layout, "self", heads), own)
    torch.testing.assert_close(dense(ALiBi(cross=True), layout, "cross", heads), cross)
    assert ALiBi().dense(layout, "cross", 0, heads) is None


@pytest.mark.parametrize("layout", [binary_natural(6, "+", 6), binary_natural(7, "*", 1)], ids=str)
def test_alibi_by_place_is_nearest_at_the_digits_of_the_place(layout: Layout) -> None:
    by_place = dense(PlacedALiBi(cross=True), layout, "cross", 8)
    nearest = by_place == 0
    for operand in layout.operands:
        for place, column in enumerate(operand.columns):
            distance = (torch.arange(layout.target_length) - place).abs()
            torch.testing.assert_close(by_place[0, :, int(column)], -(2.0**-1) * distance)
    digits = {int(column) for operand in layout.operands for column in operand.columns}
    assert all({*nearest[0, i].nonzero().flatten().tolist()} & digits for i in range(layout.width))


def test_alibi_counts_distance_in_one_sequence() -> None:
    layout = binary_natural(3, "+", 3)
    count, sources = layout.source_length + layout.target_length, layout.source_length
    whole = torch.full((4, count, count), -INFINITY)
    for head in range(4):
        for query in range(count):
            for key in range(query + 1):
                whole[head, query, key] = -(2.0 ** (-2 * (head + 1))) * (query - key)
    bias = RunningALiBi()
    assert torch.equal(bias.dense(layout, "source", 0, 4), whole[:, :sources, :sources])
    assert torch.equal(bias.dense(layout, "cross", 0, 4), whole[:, sources:, :sources])
    assert torch.equal(bias.dense(layout, "self", 0, 4), whole[:, sources:, sources:])


LAYOUT = binary_natural(4, "+", 4)
KINDS = ("encoder-decoder", "decoder-only")


@dataclass(frozen=True)
class Shut(Bias):
    """No key is open to anybody."""

    few: bool = False

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        if not self.few:
            return None
        count = layout.source_length if attention == "source" else layout.target_length
        return OpenKeys(torch.zeros(count, 1, dtype=torch.long), torch.full((1, count, 1), CLOSED))

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        keys = layout.target_length if attention == "self" else layout.source_length
        queries = layout.source_length if attention == "source" else layout.target_length
        return torch.full((1, queries, keys), CLOSED)


LINES = Lines(
    2, (Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.5), Line("self", 1, 1, "vertical", SOS, 0, 1.0))
)
BIASES = [
    Causal(), ALiBi(), ALiBi(cross=True), PlacedALiBi(cross=True), RunningALiBi(), Near(1), Window(), Window(2, "both"),
    LINES, Lines.one_key_per_head(LAYOUT, 2, 2), Lines.by_head(LAYOUT, 2, 2), Shut(), Shut(few=True),
]  # fmt: skip


def made(bias: Bias, kind: str) -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, bias=bias, kind=kind)  # type: ignore[arg-type]
    return Transformer(config, 14).eval()


def tokens(count: int, seed: int) -> Tensor:
    return torch.randint(14, (3, count), generator=torch.Generator().manual_seed(seed))


def test_all_biases_of_the_package_are_here() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    ours = {kind for kind in below(Bias) if kind.__module__.startswith("abc_nb.")} - {Bias}
    assert ours == {type(bias) for bias in BIASES} - {Shut} | {SpanLines}  # which is one of rows of text: test_spans
    with pytest.raises(InputError, match="rows of text"):
        made(SpanLines(2), "decoder-only")(tokens(LAYOUT.source_length, 1), tokens(3, 2), LAYOUT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: repr(bias)[:40])
@torch.no_grad()
def test_no_output_depends_on_later_tokens_and_decoding_gives_the_same(bias: Bias, kind: str) -> None:
    model, source, target = made(bias, kind), tokens(LAYOUT.source_length, 1), tokens(LAYOUT.target_length, 2)
    logits = model(source, target, LAYOUT)
    assert logits.shape == (3, LAYOUT.target_length, 14) and logits.isfinite().all()
    frame, caches = model.start(source, LAYOUT)
    steps = [model.step(target[:, step], step, frame, caches) for step in range(LAYOUT.target_length)]
    for same in (torch.stack(steps, 1), model(source, target, LAYOUT, record=Record())):
        torch.testing.assert_close(same, logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(source, target[:, :3], LAYOUT), logits[:, :3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: repr(bias)[:40])
@torch.no_grad()
def test_in_a_decoder_only_model_no_token_of_the_problem_depends_on_later_ones(bias: Bias) -> None:
    """ALiBi let them; `Near` failed with an error of shapes."""
    model, source = made(bias, "decoder-only"), tokens(LAYOUT.source_length, 1)
    changed = source.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 14
    opened = [bias.opened(LAYOUT, "source", layer) for layer in range(2)]
    assert all(each.shape[-2:] == (LAYOUT.source_length,) * 2 and not each.triu(1).any() for each in opened)
    states = []
    for problem in (source, changed):
        _, cache = model.start(problem, LAYOUT)
        states.append([values[:, :, :5] for layer in cache.layers for values in layer])
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.parametrize("layout", [Task("addition").layout(4, how) for how in ("units-first", "as-written")])
@pytest.mark.parametrize("bias", [ALiBi(cross=True), Near(), Window()])
def test_a_bias_that_slides_refuses_operands_or_an_answer_in_the_other_order(bias: Bias, layout: Layout) -> None:
    with pytest.raises(InputError, match="units last and answers with the units first: take Lines"):
        bias.dense(layout, "cross", 0, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", [False, True])
def test_queries_without_an_open_key_have_finite_gradients(few: bool, kind: str) -> None:
    model = made(Shut(few), kind).train()
    model(tokens(LAYOUT.source_length, 1), tokens(LAYOUT.target_length, 2), LAYOUT).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
