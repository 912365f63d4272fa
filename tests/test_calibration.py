"""Calibration: Algorithm 1 transcribed loop by loop, and planted lines found again, strongest first."""

import re
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from helpers import layouts, random_attention, table
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Direction, Line, Lines
from abc_nb.calibration.calibrate import PAPER, SCRIPT, Calibration, calibrate
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout, Operand, binary_natural, unary

INFINITY = float("inf")
ATTENTIONS: list[Attention] = ["self", "cross"]
SEEDS = st.integers(0, 10**6)
LAYOUTS = layouts(st.integers(3, 9))
TABLES = st.builds(lambda one, other: table((one, other), (other, one + 1)), st.integers(3, 5), st.integers(3, 5))
Place = tuple[Direction, str, int]  # direction, span and offset of a line


def places(lines: list[Line], head: int = 0) -> set[Place]:
    return {(line.direction, line.span, line.offset) for line in lines if line.head == head}


# ---- Algorithm 1 ------------------------------------------------------------------------------------


def algorithm_1(attention: Tensor, rows: int, columns: int, kappa: float, pooled: bool = False) -> Tensor:
    """The bias (H, M, N) out of attention (H, m, n) by the pseudo-code, from 0 where it counts from 1.

    `pooled`: mean, deviation and maximum are those of all lines, as the text has it.
    """
    heads, m, n = attention.shape
    bias = torch.full((heads, rows, columns), -INFINITY)
    for h in range(heads):
        cells: dict[int, dict[tuple[int, int], float]] = {1: {}, -1: {}, 0: {}}
        for delta, d in cells.items():
            shift = columns - n if delta < 0 else 0  # footnote 6: the top right corners are aligned
            for i in range(rows):
                for j in range(columns):
                    total, size = 0.0, 0
                    for k in range(-i, m - i):
                        if 0 <= j + k * delta - shift < n:
                            total += attention[h, i + k, j + k * delta - shift].item()
                            size += 1
                    if size:  # the line exists in A; the text closes all others
                        d[i, j] = total / size
        lines = {delta: {j - delta * i: mean for (i, j), mean in d.items()} for delta, d in cells.items()}
        for delta, d in cells.items():
            of_lines = [mean for other in lines if pooled or other == delta for mean in lines[other].values()]
            threshold = kappa * pstdev(of_lines) + fmean(of_lines)
            for (i, j), mean in d.items():
                dropped = mean - max(of_lines) if mean > threshold else -INFINITY
                bias[h, i, j] = max(bias[h, i, j].item(), dropped)
        if (bias[h] == -INFINITY).all():
            bias[h] = 0.0
    return bias


def as_matrix(lines: list[Line], heads: int, rows: int, columns: int, name: Attention) -> Tensor:
    """The bias of lines at any size: a source of so many columns, so many output tokens."""
    layout = Layout(columns, (Operand(columns - 1, 1, columns),), (), rows)
    return Lines(heads, tuple(lines)).dense(layout, name, 0, heads)


@given(st.tuples(st.integers(1, 6), st.integers(1, 8)), st.integers(0, 5), st.integers(0, 5), st.integers(-4, 8), SEEDS)
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_paper_settings_are_algorithm_1_at_any_size(
    name: Attention, pooled: bool, size: tuple[int, int], taller: int, wider: int, quarters: int, seed: int
) -> None:
    """In self-attention under the causal mask."""
    kappa = quarters / 4 + 0.1  # of two lines one lies just at a kappa of 1
    rows, columns = size if name == "cross" else (size[0], size[0])
    assume(rows * columns > 1)  # of one cell all lines are equal, and rounding decides
    larger = rows + taller, columns + (wider if name == "cross" else taller)
    future = torch.full(larger, name == "self").triu(1)
    attention = torch.rand(1, rows, columns, generator=torch.Generator().manual_seed(seed))
    attention = attention.masked_fill(future[:rows, :columns], 0.0)
    lines = calibrate(attention, name=name, settings=replace(PAPER, kappa=(kappa, kappa), pooled=pooled))
    expected = algorithm_1(attention, *larger, kappa, pooled).masked_fill(future, -INFINITY)
    torch.testing.assert_close(as_matrix(lines, 1, *larger, name), expected)


@pytest.mark.parametrize(("name", "slope", "kappa"), [("cross", -1, 1.0), ("self", 1, 0.5)])
def test_the_script_takes_sums_along_one_direction_and_a_threshold_of_those_that_are_not_zero(
    name: Attention, slope: int, kappa: float
) -> None:
    attention = random_attention(unary(6), name, 3, seed=1, contrast=3.0)
    found = calibrate(attention, name=name, settings=replace(SCRIPT, kappa=(kappa, kappa)))
    expected = {}
    for head, matrix in enumerate(attention.tolist()):
        corner = len(matrix[0]) - 1 if slope < 0 else 0
        sums: dict[int, float] = {}
        for i, row in enumerate(matrix):
            for j, weight in enumerate(row):
                sums[j - slope * i - corner] = sums.get(j - slope * i - corner, 0.0) + weight
        known = [value for value in sums.values() if value]
        threshold = fmean(known) + kappa * pstdev(known)
        expected |= {(head, offset): value for offset, value in sums.items() if value > threshold}
    assert {line.direction for line in found} == {"antidiagonal" if slope < 0 else "diagonal"}
    values = {(line.head, line.offset): line.value for line in found}
    assert values == {place: pytest.approx(value, rel=1e-5) for place, value in expected.items()}


# ---- strongest first: planted lines -----------------------------------------------------------------


def cells(layout: Layout, name: Attention, place: Place) -> list[tuple[int, int]]:
    """Queries and keys of a line."""
    opened = Lines(1, (Line(name, 0, 0, *place, 0.0),), empty="closed").dense(layout, name, 0, 1)[0]
    return [(int(step), int(key)) for step, key in opened.isfinite().nonzero()]


def plant(layout: Layout, name: Attention, lines: list[Place], shares: list[float], seed: int = 0) -> Tensor:
    """One head's attention: on each line its share, the rest on random keys."""
    attention = random_attention(layout, name, 1, seed)
    planted = torch.zeros_like(attention)
    for place, share in zip(lines, shares, strict=True):
        for step, key in cells(layout, name, place):
            planted[0, step, key] += share
    return attention * (1 - planted.sum(-1, keepdim=True)) + planted


NATURAL, BY_DIGIT, UNARY = binary_natural(8, "+", 8), binary_natural(8, "*", 1), unary(8)
PLANTED: list[tuple[Layout, Attention, Place]] = [
    *((NATURAL, "cross", ("antidiagonal", f"operand {number}", offset)) for number in (1, 2) for offset in (-2, 0, 1)),
    (UNARY, "cross", ("antidiagonal", "operand 1", -1)),
    *((NATURAL, "cross", ("vertical", symbol, 0)) for symbol in "$+&"),
    (BY_DIGIT, "cross", ("vertical", "operand 2", 0)),
    (BY_DIGIT, "cross", ("antidiagonal", "operand 1", 0)),
    *((unary(20), "self", ("diagonal", "output", offset)) for offset in (0, -1, -3)),
    (unary(20), "self", ("vertical", "$", 0)),
]


@pytest.mark.parametrize(("layout", "name", "place"), PLANTED)
def test_a_planted_line_is_found_and_no_other(layout: Layout, name: Attention, place: Place) -> None:
    for seed in range(5):
        attention = plant(layout, name, [place], [0.8], seed)
        share = 0.2 if name == "cross" else 0.3
        assert calibrate(attention, layout, name, Calibration(share=share)) == [Line(name, 0, 0, *place, 0.0)]


def test_several_lines_of_a_head_are_found_with_their_values_in_the_unit_of_what_is_averaged() -> None:
    lines: list[Place] = [("antidiagonal", "operand 1", 0), ("antidiagonal", "operand 2", 0), ("vertical", "&", 0)]
    attention = plant(NATURAL, "cross", lines, [0.3, 0.4, 0.2])
    for source, numbers in (("weights", attention), ("logits", attention.log()), ("mask", attention)):
        found = calibrate(numbers, NATURAL, settings=Calibration(source, share=0.15))  # type: ignore[arg-type]
        means = {line: fmean(numbers[0, *cell].item() for cell in cells(NATURAL, "cross", line)) for line in lines}
        values = {line: 0.0 if source == "mask" else mean - max(means.values()) for line, mean in means.items()}
        assert {(own.direction, own.span, own.offset): own.value for own in found} == pytest.approx(values, abs=1e-6)


def test_a_line_crossed_by_a_strong_vertical_is_not_reported() -> None:
    """Each antidiagonal meets the vertical in one cell, which alone is more than the share asked for."""
    attention = 0.002 * torch.rand(1, 9, 10, generator=torch.Generator().manual_seed(0))
    attention[0, :, 5] = 0.9
    settings = Calibration(anchor="whole", share=0.08)
    assert places(calibrate(attention, settings=settings)) == {("vertical", "whole", 5)}
    without = replace(settings, directions=("diagonal", "antidiagonal"))
    assert len(calibrate(attention, settings=without)) > 5, "the crossed lines are long and strong enough"


# ---- strongest first: what always holds -------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTIONS)
@given(LAYOUTS | TABLES, SEEDS, st.floats(0.01, 0.9), st.sampled_from([0.0, 1.0, 4.0]))
def test_every_head_keeps_a_line_and_its_best_one_has_the_value_zero(
    name: Attention, layout: Layout, seed: int, share: float, contrast: float
) -> None:
    attention = random_attention(layout, name, 3, seed, contrast)
    found = calibrate(attention, layout, name, Calibration(share=share))
    best = [max((line.value for line in found if line.head == head), default=None) for head in range(3)]
    assert best == [0.0, 0.0, 0.0]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("direction", ["diagonal", "antidiagonal", "vertical"])
@pytest.mark.parametrize(("queries", "wider"), [(5, 0), (8, 0), (9, 0), (4, 5), (9, 3)])
def test_of_one_direction_all_lines_that_are_seen_at_half_of_the_steps_are_kept(
    name: Attention, direction: Direction, queries: int, wider: int
) -> None:
    """In self-attention the future is not seen; lines of one direction do not cross."""
    keys = queries if name == "self" else queries + wider
    attention = random_attention(Layout(keys, (Operand(keys - 1, 1, keys),), (), queries), name, 1, seed=0)
    seen: dict[int, int] = {}
    for i in range(queries):
        for j in range(keys if name == "cross" else i + 1):
            offset = {"diagonal": j - i, "antidiagonal": j - (keys - 1) + i, "vertical": j}[direction]
            seen[offset] = seen.get(offset, 0) + 1
    found = calibrate(attention, None, name, Calibration(anchor="whole", share=1e-6, directions=(direction,)))
    assert {line.offset for line in found} == {offset for offset, steps in seen.items() if 2 * steps >= queries}


def test_kappa_weighs_a_diagonal_of_the_output_against_all_that_see_the_past() -> None:
    """The future, all zeros, is no part of the mean and the deviation."""
    attention = random_attention(UNARY, "self", 1, seed=0, contrast=3.0)
    diagonals = [attention[0].diagonal(-back).mean().item() for back in range(9)]
    for kappa in (0.0, 0.4, 0.8, 1.2):
        found = calibrate(attention, UNARY, "self", Calibration(kappa=(99.0, kappa)))
        threshold = fmean(diagonals) + kappa * pstdev(diagonals)
        expected = {("diagonal", "output", -back) for back, mean in enumerate(diagonals) if mean > threshold}
        assert places(found) == expected  # the vertical is the only one, and not above its own mean


# ---- what cannot be calibrated ----------------------------------------------------------------------

WEIGHTS = torch.full((2, 9, 10), 0.1)
HOLE = WEIGHTS.index_fill(2, torch.tensor(3), float("nan"))


@pytest.mark.parametrize(
    ("attention", "name", "sentence"),
    [
        (torch.rand(9, 10), "cross", "give (head, query, key)"),
        (torch.rand(0, 9, 10), "cross", "give (head, query, key)"),
        (HOLE, "cross", "cross-attention of layer 3 is not finite everywhere: give the lowest logit"),
        (WEIGHTS, "self", "the shape (2, 9, 10): the layout has 9 queries and 9 keys"),
        (-WEIGHTS, "cross", "never negative: for logits, calibrate with source='logits'"),
        (512 * WEIGHTS, "cross", "a query's weights add up to 512, not to 1: give the mean over problems"),
        (WEIGHTS, "encoder", "unknown attention 'encoder': choose one of self, cross"),
    ],
)
def test_what_is_no_averaged_attention_is_one_sentence(attention: Tensor, name: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        calibrate(attention, UNARY, name, layer=3)


@pytest.mark.parametrize("settings", [Calibration(share=0.2), Calibration(source="logits"), PAPER])
def test_numbers_of_any_precision_arrays_and_what_is_being_differentiated_give_the_same_lines(
    settings: Calibration,
) -> None:
    """Weights of half precision need not add up to one."""
    attention = random_attention(UNARY, "cross", 2, seed=0, contrast=3.0).bfloat16()
    expected = calibrate(attention.float(), UNARY, settings=settings)
    tracked = 2 * attention.float().requires_grad_() / 2
    for other in (attention, attention.float().numpy(), tracked):
        assert calibrate(other, UNARY, settings=settings) == expected  # type: ignore[arg-type]
    assert calibrate(1.005 * WEIGHTS, UNARY)


NAN = float("nan")
NOTHING: list[dict[str, Any]] = [{"kappa": (NAN, 1.0)}, {"kappa": (4.5, INFINITY)}, {"share": 0.2, "kappa": (1.0, 1.0)}]
NOTHING += [{"script": True}, {"share": "0.3"}, {"floor": 0.0}, {"floor": NAN}, {"share": 0.0}, {"keep": 1.01}]
NOTHING += [{"directions": wrong} for wrong in ((), ("sideways",), 5, ["vertical"], (["vertical"],))]


@pytest.mark.parametrize("fields", NOTHING, ids=str)
def test_every_setting_is_checked(fields: dict[str, Any]) -> None:
    *_, name = fields
    with pytest.raises(InputError, match=name):
        Calibration(**fields)


@pytest.mark.parametrize(
    ("name", "directions"), [("self", ("antidiagonal",)), ("self", ("above",)), ("cross", ("diagonal", "by row"))]
)
def test_directions_of_which_none_extends_are_an_error(name: Attention, directions: tuple[Direction, ...]) -> None:
    attention = random_attention(UNARY, name, 2, seed=0)
    with pytest.raises(InputError, match=f"extends in {name}-attention: .* and vertical lines do"):
        calibrate(attention, UNARY, name, Calibration(directions=directions))


@pytest.mark.parametrize("places", [3, 7, 20])
def test_columns_of_zeros_in_front_carry_no_line(places: int) -> None:
    """All attention is on one line over zeros: with `filled` it is none of the lines that can be kept."""
    layout = replace(binary_natural(61, "+", 61), target_length=places)
    attention = torch.full((1, places, layout.source_length), 1e-4)
    steps = torch.arange(places)
    attention[0, steps, layout.operands[0].last - places - 2 - steps] = 0.9
    settings = Calibration(share=1e-5)
    (strongest,) = calibrate(attention, layout, "cross", replace(settings, share=0.5))
    assert (strongest.span, strongest.direction, strongest.offset) == ("operand 1", "antidiagonal", -places - 2)
    kept = calibrate(attention, replace(layout, filled=places), "cross", settings)
    offsets = {line.offset for line in kept if line.span.startswith("operand")}
    assert offsets and min(offsets) > -places and max(offsets) <= places + 1
