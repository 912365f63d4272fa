"""Attention biases against their papers' definitions, written as loops, and every bias in both kinds of model."""

from itertools import product

import pytest
import torch
from helpers import assert_open_keys_are, layouts
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias import Line, Lines
from abc_nb.bias.alibi import ALiBi
from abc_nb.bias.base import Attention, Bias, Causal
from abc_nb.bias.text import SpanLines
from abc_nb.bias.window import Sides, Window
from abc_nb.common.errors import InputError
from abc_nb.model.attention import AttentionRecord
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS, Layout, binary_aligned, binary_natural, unary
from abc_nb.problems.tasks import Task
from audit.models import by_head
from audit.positions.distances import PlacedALiBi, RunningALiBi

WIDTHS, WINDOWS = st.integers(1, 20), st.integers(0, 4)
LAYOUTS = layouts(WIDTHS)
SIDES: st.SearchStrategy[Sides] = st.sampled_from(["none", "one", "both"])
INFINITY = float("inf")


def dense(bias: Bias, layout: Layout, attention: Attention, heads: int = 1) -> torch.Tensor:
    matrix = bias.dense(layout, attention, layer=0, heads=heads)
    assert matrix is not None
    return matrix


def assert_open(bias: Bias, layout: Layout, attention: Attention, rows: list[set[int]]) -> None:
    """Zero at these keys of each query, minus infinity elsewhere."""
    matrix = dense(bias, layout, attention)[0]
    for row, wanted in zip(matrix, rows, strict=True):
        assert {*row.isfinite().nonzero().flatten().tolist()} == wanted & {*range(len(row))}
    assert not matrix[matrix.isfinite()].any()
    keys = bias.open_keys(layout, attention, layer=0)
    if keys is not None:
        assert_open_keys_are(keys, matrix[None])


@given(LAYOUTS, WINDOWS, SIDES)
def test_window_of_self_attention_is_the_token_and_w_before_it(layout: Layout, w: int, sides: Sides) -> None:
    rows = [{i - back for back in range(w + 1)} for i in range(layout.target_length)]
    assert_open(Window(w, sides), layout, "self", rows)


@given(WIDTHS, WINDOWS, SIDES)
def test_window_of_cross_attention_is_the_digits_of_the_place_and_w_beside(width: int, w: int, sides: Sides) -> None:
    """Of an aligned source a pair at a time: at the end of the sequence, SOS and operator."""
    cases: list[tuple[Layout, list[int], int]] = [  # the first key of each operand at step 0, tokens a place
        (unary(width), [width], 1),
        (unary(width, "SM"), [width + 1], 1),
        (binary_natural(width, "+", width), [width, 2 * width + 1], 1),
        (binary_aligned(width, "+"), [2 * width], 2),
    ]
    left, right = w if sides == "both" else 0, 0 if sides == "none" else w
    for layout, firsts, stride in cases:
        rows = [
            {first - stride * i + side for first in firsts for side in range(-left, stride + right)}
            for i in range(width + 1)
        ]
        assert_open(Window(w, sides), layout, "cross", rows)


@given(LAYOUTS)
def test_causal_hides_the_future_and_leaves_the_source_open(layout: Layout) -> None:
    assert_open(Causal(), layout, "self", [set(range(i + 1)) for i in range(layout.target_length)])
    assert Causal().dense(layout, "cross", 0, 1) is None


@pytest.mark.parametrize("heads", [1, 4])
@given(LAYOUTS)
def test_alibi_is_minus_slope_times_distance(heads: int, layout: Layout) -> None:
    """From the units of the number to look along, of each number's own, or of one sequence."""
    sources, long = layout.source_length, [each for each in layout.operands if each.places >= layout.width]
    digits = {int(column): place for each in layout.operands for place, column in enumerate(each.columns)}
    cases: list[tuple[Bias, dict[int, int]]] = [  # the output that a key of the problem is nearest to
        (ALiBi(cross=True), {column: long[-1].last - column for column in range(sources)}),
        (PlacedALiBi(cross=True), digits),
        (RunningALiBi(), {column: column - sources for column in range(sources)}),
    ]
    for bias, nearest in cases:
        own, of_problem, cross = (dense(bias, layout, name, heads).tolist() for name in ("self", "source", "cross"))
        for head, slope in enumerate(2 ** (-8 * (head + 1) / heads) for head in range(heads)):
            for matrix in (own[head], of_problem[head]):
                for i, j in product(range(len(matrix)), repeat=2):
                    assert matrix[i][j] == (-slope * (i - j) if j <= i else -INFINITY)
            for (column, output), i in product(nearest.items(), range(layout.target_length)):
                assert cross[head][i][column] == -slope * abs(output - i)
    assert ALiBi().dense(layout, "cross", 0, heads) is None


LAYOUT = binary_natural(4, "+", 4)
KINDS = ("encoder-decoder", "decoder-only")
SHUT = [Lines(2, (), floor, "closed") for floor in (None, -INFINITY)]  # no key is open, of few or of all
LINES = Lines(
    2, (Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.5), Line("self", 1, 1, "vertical", SOS, 0, 1.0))
)
BIASES = [
    Causal(), ALiBi(), ALiBi(cross=True), PlacedALiBi(cross=True), RunningALiBi(), Window(), Window(2, "both"),
    Window(1, "none"),
    LINES, Lines.one_key_per_head(LAYOUT, 2, 2), by_head(LAYOUT, 2, 2), *SHUT,
]  # fmt: skip


def made(bias: Bias, kind: str) -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, bias=bias, kind=kind)  # type: ignore[arg-type]
    return Transformer(config, 14).eval()


def tokens(count: int, seed: int) -> Tensor:
    return torch.randint(14, (3, count), generator=torch.Generator().manual_seed(seed))


def test_all_biases_are_here() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    ours = {kind for kind in below(Bias) if kind.__module__.startswith(("abc_nb.", "audit."))} - {Bias}
    assert ours == {type(bias) for bias in BIASES} | {SpanLines}  # which is one of rows of text: test_spans
    with pytest.raises(InputError, match="is of text"):
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
    for same in (torch.stack(steps, 1), model(source, target, LAYOUT, record=AttentionRecord())):
        torch.testing.assert_close(same, logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(source, target[:, :3], LAYOUT), logits[:, :3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: repr(bias)[:40])
@torch.no_grad()
def test_in_a_decoder_only_model_no_token_of_the_problem_depends_on_later_ones(bias: Bias) -> None:
    """ALiBi let them."""
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
@pytest.mark.parametrize("bias", [ALiBi(cross=True), Window()])
def test_a_bias_that_slides_refuses_operands_or_an_answer_in_the_other_order(bias: Bias, layout: Layout) -> None:
    with pytest.raises(InputError, match="units last and answers with the units first: take Lines"):
        bias.dense(layout, "cross", 0, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", SHUT)
def test_queries_without_an_open_key_have_finite_gradients(bias: Bias, kind: str) -> None:
    model = made(bias, kind).train()
    model(tokens(LAYOUT.source_length, 1), tokens(LAYOUT.target_length, 2), LAYOUT).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
