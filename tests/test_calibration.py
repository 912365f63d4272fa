"""Calibration: Algorithm 1 transcribed loop by loop, and planted lines found again, strongest first."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import Attention, key_count
from abc_nb.bias.lines import Direction, Line, Lines, spans, whole_matrix
from abc_nb.calibration.calibrate import PAPER, SCRIPT, Calibration, calibrate, candidates, enough_cells
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout, Operand, binary_aligned, binary_natural, table, unary

INFINITY = float("inf")
ATTENTIONS: list[Attention] = ["self", "cross"]
WIDTHS = st.integers(3, 9)
WITHOUT_TABLE: tuple[Direction, ...] = ("diagonal", "antidiagonal", "vertical")
OF_TABLE: tuple[Direction, ...] = ("by row", "above")
LAYOUTS = st.one_of(
    st.builds(unary, WIDTHS),
    st.builds(binary_natural, WIDTHS, st.just("+"), WIDTHS),
    st.builds(binary_natural, WIDTHS, st.just("*"), st.just(1)),
    st.builds(binary_aligned, WIDTHS, st.just("+")),
)
TABLES = st.builds(
    lambda one, other: table((one, other), "*", (other, one + 1), (1,)), st.integers(3, 5), st.integers(3, 5)
)
Place = tuple[Direction, str, int]  # direction, span and offset of a line


def random_attention(layout: Layout, name: Attention, heads: int, seed: int, contrast: float = 1.0) -> Tensor:
    """Attention (head, query, key) of random logits; the higher the contrast, the fewer keys hold most of it."""
    rng = torch.Generator().manual_seed(seed)
    logits = contrast * torch.randn(heads, layout.target_length, key_count(layout, name), generator=rng)
    if name == "self":
        logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -INFINITY)
    return logits.softmax(-1)


def places(lines: list[Line], head: int = 0) -> set[Place]:
    return {(line.direction, line.span, line.offset) for line in lines if line.head == head}


# ---- Algorithm 1 ------------------------------------------------------------------------------------


def algorithm_1(attention: Tensor, rows: int, columns: int, kappa: float) -> Tensor:
    """The bias (H, M, N) out of attention (H, m, n), in the order of the pseudo-code, from 0 where it counts from 1."""
    heads, m, n = attention.shape
    bias = torch.full((heads, rows, columns), -INFINITY)
    for h in range(heads):
        for delta in (1, -1, 0):
            shift = columns - n if delta < 0 else 0  # footnote 6: the top right corners are aligned
            d: dict[tuple[int, int], float] = {}
            for i in range(rows):
                for j in range(columns):
                    total, size = 0.0, 0
                    for k in range(-i, m - i):
                        if 0 <= j + k * delta - shift < n:
                            total += attention[h, i + k, j + k * delta - shift].item()
                            size += 1
                    if size:  # the line exists in A; the text closes all others
                        d[i, j] = total / size
            of_lines = [*{j - delta * i: mean for (i, j), mean in d.items()}.values()]
            threshold = kappa * pstdev(of_lines) + fmean(of_lines)
            for (i, j), mean in d.items():
                dropped = mean - max(of_lines) if mean > threshold else -INFINITY
                bias[h, i, j] = max(bias[h, i, j].item(), dropped)
        if (bias[h] == -INFINITY).all():
            bias[h] = 0.0
    return bias


def as_matrix(lines: list[Line], heads: int, rows: int, columns: int, name: Attention = "cross") -> Tensor:
    """The bias of lines at any size: a source of so many columns, so many output tokens."""
    layout = Layout(columns, (Operand(columns - 1, 1, columns),), (), rows)
    return Lines(heads, tuple(lines)).dense(layout, name, 0, heads)


@pytest.mark.parametrize("kappa", [-9.0, 0.0, 0.87, 1.5, 4.5])
@pytest.mark.parametrize(
    ("sizes", "larger"), [((5, 7), (5, 7)), ((5, 7), (9, 16)), ((8, 3), (9, 11)), ((4, 4), (11, 11)), ((1, 6), (3, 8))]
)
def test_paper_settings_are_algorithm_1(kappa: float, sizes: tuple[int, int], larger: tuple[int, int]) -> None:
    for seed in range(3):
        attention = torch.rand(3, *sizes, generator=torch.Generator().manual_seed(seed))
        lines = calibrate(attention, settings=replace(PAPER, kappa=(kappa, 99.0)))
        found = as_matrix(lines, 3, *larger)
        torch.testing.assert_close(found, algorithm_1(attention, *larger, kappa))


@given(
    st.integers(1, 6), st.integers(1, 8), st.integers(0, 5), st.integers(0, 5), st.integers(-4, 8), st.integers(0, 99)
)
def test_paper_settings_are_algorithm_1_at_any_size(
    m: int, n: int, taller: int, wider: int, quarters: int, seed: int
) -> None:
    kappa = quarters / 4 + 0.1  # of two lines one lies just at a kappa of 1
    attention = torch.rand(1, m, n, generator=torch.Generator().manual_seed(seed))
    lines = calibrate(attention, settings=replace(PAPER, kappa=(kappa, 99.0)))
    larger = (m + taller, n + wider)
    torch.testing.assert_close(as_matrix(lines, 1, *larger), algorithm_1(attention, *larger, kappa))


@pytest.mark.parametrize(("size", "larger"), [(6, 6), (9, 15)])
def test_paper_settings_for_self_attention_are_algorithm_1_under_the_causal_mask(size: int, larger: int) -> None:
    attention = random_attention(unary(size - 1), "self", 3, seed=0)
    assert attention.shape == (3, size, size)
    found = as_matrix(calibrate(attention, name="self", settings=PAPER), 3, larger, larger, "self")
    future = torch.ones(larger, larger).triu(1).bool()
    expected = algorithm_1(attention, larger, larger, 0.87).masked_fill(future, -INFINITY)
    torch.testing.assert_close(found, expected)
    assert (found > -INFINITY).sum() < 3 * (~future).sum(), "nothing was dropped"


def test_paper_settings_keep_only_the_strong_antidiagonal_and_leave_a_head_without_pattern_open() -> None:
    """At the ends of the antidiagonal short diagonals would cross it, and be strong too: it has none here."""
    attention = 0.01 * torch.rand(2, 20, 25, generator=torch.Generator().manual_seed(0))
    for i in range(4, 16):
        attention[0, i, 23 - i] += 0.9
    lines = calibrate(attention)
    assert places(lines, 0) == {("antidiagonal", "whole", -1)}
    assert places(lines, 1) == set()
    found = as_matrix(lines, 2, 40, 50)
    torch.testing.assert_close(found, algorithm_1(attention, 40, 50, 4.5))
    assert found[0].isfinite().sum() == 40
    assert (found[1] == 0).all()


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


def test_under_the_scripts_bias_a_step_without_a_line_sees_every_key_alike() -> None:
    attention = torch.zeros(1, 6, 9)
    attention[0, :3, 8] = 0.9  # one cell on each of three anti-diagonals, which end before the last steps
    lines = calibrate(attention, settings=replace(SCRIPT, kappa=(0.0, 0.0)))
    bias = replace(Lines(1, tuple(lines), SCRIPT.floor))
    opened = bias.dense(Layout(9, (Operand(8, 1, 9),), (), 12), "cross", 0, 1)
    assert (opened[0, 11] == SCRIPT.floor).all()


def test_a_layout_does_not_change_what_the_paper_finds() -> None:
    layout = binary_natural(4, "+", 4)
    attention = torch.rand(2, 5, layout.source_length, generator=torch.Generator().manual_seed(0))
    settings = replace(PAPER, kappa=(0.5, 0.5))
    assert calibrate(attention, layout, settings=settings) == calibrate(attention, settings=settings)


# ---- strongest first: planted lines -----------------------------------------------------------------


def plant(layout: Layout, name: Attention, lines: list[Place], shares: list[float], seed: int = 0) -> Tensor:
    """One head's attention: on each line its share, the rest on random keys; lines as tokens, written by hand."""
    attention = random_attention(layout, name, 1, seed)
    for step in range(layout.target_length):
        cells = [column_of(layout, place, step) for place in lines]
        found = [(cell, share) for cell, share in zip(cells, shares, strict=True) if cell is not None]
        attention[0, step] *= 1 - sum(share for _, share in found)
        for cell, share in found:
            attention[0, step, cell] += share
    return attention


def column_of(layout: Layout, place: Place, step: int) -> int | None:
    """Where a line is at a step: at the digit of this place and so many columns to the right, or at a symbol."""
    _, span, offset = place
    if span == "output":
        return step + offset if step + offset >= 0 else None
    if span.startswith("operand"):
        operand = layout.operands[int(span[-1]) - 1]
        if operand.places == 1:
            return operand.last
        column = operand.last - operand.stride * step + offset
        reach = operand.last - operand.stride * operand.places, operand.last + operand.stride
        return column if max(reach[0], 0) <= column <= min(reach[1], layout.source_length - 1) else None
    return next(column for column, symbol in [*layout.symbols] if symbol == span)


NATURAL, BY_DIGIT, UNARY = binary_natural(8, "+", 8), binary_natural(8, "*", 1), unary(8)
CROSS: list[tuple[Layout, Place]] = [
    *((NATURAL, ("antidiagonal", f"operand {number}", offset)) for number in (1, 2) for offset in (-2, -1, 0, 1, 2)),
    *((UNARY, ("antidiagonal", "operand 1", offset)) for offset in (-1, 0, 1)),
    *((NATURAL, ("vertical", symbol, 0)) for symbol in "$+&"),
    (BY_DIGIT, ("vertical", "operand 2", 0)),
    (BY_DIGIT, ("antidiagonal", "operand 1", 0)),
]


@pytest.mark.parametrize(("layout", "place"), CROSS)
def test_a_planted_line_of_cross_attention_is_found_and_no_other(layout: Layout, place: Place) -> None:
    for seed in range(5):
        attention = plant(layout, "cross", [place], [0.8], seed)
        (line,) = calibrate(attention, layout, settings=Calibration(share=0.2))
        assert line == Line("cross", 0, 0, *place, 0.0)


@pytest.mark.parametrize("offset", [0, -1, -2, -3])
def test_a_planted_diagonal_of_the_output_is_found_and_no_other(offset: int) -> None:
    place: Place = ("diagonal", "output", offset)
    attention = plant(unary(20), "self", [place], [0.8])
    assert calibrate(attention, unary(20), "self", Calibration(share=0.3)) == [Line("self", 0, 0, *place, 0.0)]


def test_the_first_token_is_found_in_self_attention() -> None:
    attention = torch.zeros(1, 9, 9)
    attention[0, :, 0] = 1.0
    assert places(calibrate(attention, UNARY, "self", Calibration(share=0.2))) == {("vertical", "$", 0)}


def test_lines_in_aligned_digits_are_found_by_their_cells() -> None:
    """A pair's second digit is also the first operand's line one column to the right."""
    layout = binary_aligned(8, "+")
    for operand in (1, 2):
        place: Place = ("antidiagonal", f"operand {operand}", 0)
        (line,) = calibrate(plant(layout, "cross", [place], [0.8]), layout, settings=Calibration(share=0.2))
        wide = binary_aligned(30, "+")
        opened = Lines(1, (line,)).dense(wide, "cross", 0, 1)[0] > -INFINITY
        columns = [column_of(wide, place, step) for step in range(31)]
        assert [row.nonzero().flatten().tolist() for row in opened] == [[column] for column in columns]


def test_several_lines_of_a_head_are_found_with_the_strongest_at_zero() -> None:
    lines: list[Place] = [("antidiagonal", "operand 1", 0), ("antidiagonal", "operand 2", 0), ("vertical", "&", 0)]
    attention = plant(NATURAL, "cross", lines, [0.3, 0.4, 0.2])
    found = calibrate(attention, NATURAL, settings=Calibration(share=0.15))
    assert places(found) == {*lines}
    assert {line.span: line.value for line in found}["operand 2"] == 0.0
    means = {}
    for place in lines:
        cells = [(step, column_of(NATURAL, place, step)) for step in range(9)]
        means[place[1]] = fmean(attention[0, step, column].item() for step, column in cells if column is not None)
    for line in found:
        assert line.value == pytest.approx(means[line.span] - means["operand 2"], abs=1e-6)


def test_heads_are_calibrated_on_their_own_and_lines_carry_the_layer_they_are_given() -> None:
    planted: list[Place] = [("antidiagonal", "operand 1", -1), ("vertical", "+", 0), ("antidiagonal", "operand 2", 1)]
    attention = torch.cat([plant(NATURAL, "cross", [place], [0.7]) for place in planted])
    found = calibrate(attention, NATURAL, settings=Calibration(share=0.2), layer=3)
    assert found == [Line("cross", 3, head, *place, 0.0) for head, place in enumerate(planted)]


def test_a_line_crossed_by_a_strong_vertical_is_not_reported() -> None:
    """Each antidiagonal meets the vertical in one cell, which alone is more than the share asked for."""
    attention = 0.002 * torch.rand(1, 9, 10, generator=torch.Generator().manual_seed(0))
    attention[0, :, 5] = 0.9
    assert attention[0, 0, 5] / 9 > 0.08
    settings = Calibration(anchor="whole", share=0.08)
    assert places(calibrate(attention, settings=settings)) == {("vertical", "whole", 5)}
    without = replace(settings, directions=("diagonal", "antidiagonal"))
    assert len(calibrate(attention, settings=without)) > 5, "the crossed lines are long and strong enough"


def test_logits_are_weighed_as_attention_and_give_values_in_their_own_unit() -> None:
    lines: list[Place] = [("antidiagonal", "operand 1", 0), ("vertical", "&", 0)]
    logits = torch.full((1, 9, NATURAL.source_length), -30.0)
    for place, logit in zip(lines, (-7.0, -7.5), strict=True):
        for step in range(9):
            column = column_of(NATURAL, place, step)
            assert column is not None
            logits[0, step, column] = logit
    found = calibrate(logits, NATURAL, settings=Calibration(source="logits", share=0.2))
    assert {line.span: line.value for line in found} == {"operand 1": 0.0, "&": -0.5}


# ---- strongest first: what always holds -------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTIONS)
@given(LAYOUTS | TABLES, st.integers(0, 10**6), st.floats(0.01, 0.9), st.sampled_from([0.0, 1.0, 4.0]))
def test_every_head_keeps_a_line_and_its_best_one_has_the_value_zero(
    name: Attention, layout: Layout, seed: int, share: float, contrast: float
) -> None:
    attention = random_attention(layout, name, 3, seed, contrast)
    found = calibrate(attention, layout, name, Calibration(share=share))
    best = [max((line.value for line in found if line.head == head), default=None) for head in range(3)]
    assert best == [0.0, 0.0, 0.0]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ATTENTIONS)
@given(LAYOUTS, st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 4.0]))
def test_a_share_of_all_attention_keeps_the_one_line_of_each_head_that_carries_most(
    name: Attention, layout: Layout, seed: int, contrast: float
) -> None:
    attention = random_attention(layout, name, 3, seed, contrast)
    alone, every = (calibrate(attention, layout, name, Calibration(share=share)) for share in (1.0, 1e-6))

    def carried(line: Line) -> float:
        opened = Lines(3, (replace(line, value=0.0),), empty="closed").dense(layout, name, 0, 3)
        return attention[opened == 0].sum().item()

    assert [(line.head, line.value) for line in alone] == [(0, 0.0), (1, 0.0), (2, 0.0)]
    for line in alone:
        assert carried(line) >= max(carried(other) for other in every if other.head == line.head) - 1e-6


@pytest.mark.parametrize("name", ATTENTIONS)
@given(LAYOUTS, st.integers(0, 10**6), st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_a_higher_share_keeps_a_part_of_the_lines(
    name: Attention, layout: Layout, seed: int, one: float, other: float
) -> None:
    attention = random_attention(layout, name, 1, seed, contrast=3.0)
    many, few = (places(calibrate(attention, layout, name, Calibration(share=s))) for s in sorted([one, other]))
    assert few <= many


@pytest.mark.parametrize(
    ("name", "anchor"), [("cross", "operands"), ("cross", "whole"), ("self", "operands"), ("self", "whole")]
)
@given(LAYOUTS, st.integers(0, 10**6))
def test_a_line_of_less_than_half_of_the_steps_is_never_kept(
    name: Attention, anchor: Literal["operands", "whole"], layout: Layout, seed: int
) -> None:
    attention = random_attention(layout, name, 1, seed, contrast=6.0)
    for line in calibrate(attention, layout, name, Calibration(share=0.01, anchor=anchor)):
        opened = Lines(1, (replace(line, value=0.0),), empty="closed").dense(layout, name, 0, 1)
        assert 2 * (opened == 0).any(-1).sum() >= layout.target_length


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("direction", WITHOUT_TABLE)
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


def test_short_lines_are_not_kept_where_all_long_ones_are_empty_or_there_are_none() -> None:
    attention = torch.zeros(1, 9, 10)
    for step in range(3):
        attention[0, step, 2 - step] = 1.0  # the three cells of a short antidiagonal hold all there is
    settings = Calibration(anchor="whole", share=0.01, directions=("antidiagonal",))
    (line,) = calibrate(attention, settings=settings)
    assert -5 <= line.offset <= 4, "the head's one line is a long one"
    sparse = replace(settings, directions=("diagonal", "antidiagonal"))
    assert calibrate(torch.rand(2, 9, 3) / 3, settings=sparse) == [], "no line has more than three cells"


@given(LAYOUTS, st.integers(0, 10**6), st.sets(st.sampled_from(WITHOUT_TABLE), min_size=1))
def test_only_the_directions_asked_for_are_searched(layout: Layout, seed: int, chosen: set[Direction]) -> None:
    attention = random_attention(layout, "cross", 2, seed, contrast=3.0)
    for kappa in (None, (0.0, 0.0)):
        share = 0.05 if kappa is None else None
        settings = Calibration(anchor="whole", share=share, kappa=kappa, directions=tuple(chosen))
        found = {line.direction for line in calibrate(attention, layout, settings=settings)}
        assert found
        assert found <= chosen


@given(LAYOUTS | TABLES, st.integers(0, 10**6), st.sampled_from(ATTENTIONS))
def test_lines_at_operands_extend_and_all_others_are_left_out(layout: Layout, seed: int, name: Attention) -> None:
    found = calibrate(random_attention(layout, name, 2, seed, 3.0), layout, name, Calibration(share=0.02))
    for line in found:
        number = line.span.startswith("operand") and layout.operands[int(line.span[-1]) - 1].places >= layout.width
        number = number or (layout.row is not None and line.span.startswith("operand"))
        expected = "diagonal" if line.span == "output" else "antidiagonal" if number else "vertical"
        of_table = {"diagonal": "above", "antidiagonal": "by row"}.get(expected) if layout.row else None
        assert line.direction in (expected, of_table)
        assert line.span != "output" or line.offset <= ((layout.row or 0) if line.direction == "above" else 0)


def test_kappa_weighs_a_diagonal_of_the_output_against_all_that_see_the_past() -> None:
    """The future, all zeros, is no part of the mean and the deviation."""
    attention = random_attention(UNARY, "self", 1, seed=0, contrast=3.0)
    diagonals = [attention[0].diagonal(-back).mean().item() for back in range(9)]
    for kappa in (0.0, 0.4, 0.8, 1.2):
        found = calibrate(attention, UNARY, "self", Calibration(kappa=(99.0, kappa)))
        threshold = fmean(diagonals) + kappa * pstdev(diagonals)
        expected = {("diagonal", "output", -back) for back, mean in enumerate(diagonals) if mean > threshold}
        assert places(found) == expected  # the vertical is the only one, and not above its own mean


def test_a_head_without_a_line_is_there_with_kappa_alone() -> None:
    attention = torch.full((1, 9, NATURAL.source_length), 1 / NATURAL.source_length)
    assert calibrate(attention, NATURAL, settings=Calibration(kappa=(9.0, 9.0))) == []
    assert len(calibrate(attention, NATURAL, settings=Calibration(share=0.9))) == 1


# ---- what cannot be calibrated ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (9,), (9, 10), (2, 2, 9, 10), (0, 9, 10), (2, 0, 10), (2, 9, 0)])
def test_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"has the shape \(.*\): give \(head, query, key\), the mean over problems"):
        calibrate(torch.rand(shape), UNARY)


@pytest.mark.parametrize("value", [float("nan"), INFINITY, -INFINITY])
@pytest.mark.parametrize("layout", [UNARY, None])
def test_what_is_not_finite_is_an_error(value: float, layout: Layout | None) -> None:
    attention = torch.rand(2, 9, 10)
    attention[1, 2, 3] = value
    sentence = "cross-attention of layer 3 is not finite everywhere: give the lowest logit where a mask closes a key"
    with pytest.raises(InputError, match=sentence):
        calibrate(attention, layout, layer=3)


@pytest.mark.parametrize(
    ("name", "queries", "keys"),
    [("cross", 9, 9), ("cross", 9, 11), ("cross", 8, 10), ("cross", 10, 10), ("self", 9, 8), ("self", 9, 10)],
)
def test_another_number_of_queries_or_keys_than_the_layout_has_is_an_error(
    name: Attention, queries: int, keys: int
) -> None:
    wanted = f"does not fit the layout, which has 9 queries and {10 if name == 'cross' else 9} keys"
    with pytest.raises(InputError, match=rf"shape \(2, {queries}, {keys}\) {wanted}"):
        calibrate(torch.rand(2, queries, keys), UNARY, name)


def test_negative_weights_are_an_error_and_negative_logits_are_not() -> None:
    attention = torch.rand(2, 9, 10)
    attention[1, 2, 3] = -0.01
    with pytest.raises(InputError, match="never negative: for logits, calibrate with source='logits'"):
        calibrate(attention, UNARY)
    assert calibrate(attention, UNARY, settings=Calibration(source="logits"))


def test_without_a_layout_lines_of_every_direction_run_over_the_whole_matrix() -> None:
    attention = torch.full((1, 8, 9), 0.01)
    attention[0, torch.arange(8), torch.arange(8)] = 0.9
    (line,) = calibrate(attention, settings=Calibration(share=0.5))
    assert (line.direction, line.span, line.offset) == ("diagonal", "whole", 0)


@pytest.mark.parametrize("arguments", [("UNARY", "cross", 0.3), (7,), (None, "cross", "PAPER")])
def test_arguments_of_another_kind_are_one_sentence(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="give a Layout, or None, and a Calibration"):
        calibrate(torch.ones(1, 8, 9), *arguments)
    for wrong in ("abc", None, [[1, 2], [3]]):
        with pytest.raises(InputError, match="cross-attention of layer 0 must be a tensor or an array of numbers"):
            calibrate(wrong)  # type: ignore[arg-type]


def test_numbers_of_any_precision_and_arrays_give_the_same_lines() -> None:
    attention = random_attention(UNARY, "cross", 2, seed=0, contrast=3.0)
    expected = calibrate(attention.bfloat16().float(), UNARY)
    assert calibrate(attention.bfloat16(), UNARY) == expected
    assert calibrate(attention.bfloat16().float().numpy(), UNARY) == expected  # type: ignore[arg-type]


def test_a_sum_over_problems_is_an_error() -> None:
    attention = random_attention(UNARY, "cross", 2, seed=0, contrast=3.0)
    with pytest.raises(InputError, match="a query's weights add up to 512, not to 1: give the mean over problems"):
        calibrate(512 * attention, UNARY)
    assert calibrate(512 * attention, UNARY, settings=Calibration(source="logits"))
    assert calibrate(1.005 * attention, UNARY), "half precision"


@pytest.mark.parametrize("kappa", [(float("nan"), 1.0), (4.5, INFINITY)])
def test_a_kappa_that_is_no_number_is_an_error(kappa: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="is not possible: give two deviations, as in"):
        Calibration(kappa=kappa)


@pytest.mark.parametrize("floor", [0.0, 5.0, float("nan")])
def test_a_floor_that_closes_nothing_is_an_error(floor: float) -> None:
    """The strongest line adds nothing and the others less: a floor from zero on would lift them all."""
    with pytest.raises(InputError, match=f"a floor of {floor} is not possible: give a negative number"):
        Calibration(floor=floor)


def test_two_thresholds_are_an_error() -> None:
    with pytest.raises(InputError, match="share and kappa are two thresholds: give one of them"):
        Calibration(share=0.2, kappa=(1.0, 1.0))


@pytest.mark.parametrize("share", [0.0, -0.2, 1.01, float("nan")])
def test_a_share_that_is_no_part_of_the_attention_is_an_error(share: float) -> None:
    with pytest.raises(InputError, match=f"a share of {share} is not possible"):
        Calibration(share=share)
    assert Calibration(share=1.0).share == 1.0


@pytest.mark.parametrize("keep", [0.0, -1.0, 80.0, float("nan")])
def test_a_part_of_the_digits_is_kept(keep: float) -> None:
    with pytest.raises(InputError, match=f"a keep of {keep} is not possible: give a part of the model's digits"):
        Calibration(keep=keep)
    assert Calibration(keep=1.0).keep == 1.0


def test_settings_of_another_type_are_an_error() -> None:
    with pytest.raises(InputError, match=r"'0\.3' is not possible as share of a Calibration"):
        Calibration(share="0.3")  # type: ignore[arg-type]


@pytest.mark.parametrize("directions", [(), ("sideways",), ("vertical", "sideways"), 5, ["vertical"], (["vertical"],)])
def test_unknown_directions_and_none_at_all_are_an_error(directions: tuple[Direction, ...]) -> None:
    with pytest.raises(
        InputError, match="not possible: choose from diagonal, antidiagonal, vertical, by row, above, in a tuple"
    ):
        Calibration(directions=directions)


@pytest.mark.parametrize("settings", [Calibration(share=0.2), Calibration(source="logits"), PAPER])
def test_attention_that_is_still_being_differentiated_gives_the_same_lines(settings: Calibration) -> None:
    attention = random_attention(UNARY, "cross", 2, seed=0, contrast=3.0)
    tracked = attention.clone().requires_grad_()
    assert calibrate(2 * tracked / 2, UNARY, settings=settings) == calibrate(attention, UNARY, settings=settings)


def test_directions_of_which_none_extends_are_an_error() -> None:
    settings = Calibration(directions=("antidiagonal",))
    with pytest.raises(InputError, match="antidiagonal extends in self-attention: diagonal and vertical lines do"):
        calibrate(torch.rand(2, 9, 9) / 9, UNARY, "self", settings)
    assert calibrate(torch.rand(2, 9, 10) / 10, UNARY, "cross", settings)


@pytest.mark.parametrize("direction", OF_TABLE)
@pytest.mark.parametrize("layout", [UNARY, None])
def test_directions_of_a_table_are_an_error_without_one(direction: Direction, layout: Layout | None) -> None:
    name: Attention = "cross" if direction == "by row" else "self"
    with pytest.raises(InputError):
        calibrate(
            torch.rand(2, 9, 10 if name == "cross" else 9) / 10, layout, name, Calibration(directions=(direction,))
        )
    with pytest.raises(InputError):
        whole_matrix(9, 10).cells(direction, 0, 9)


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
    numbers = [line for line in kept if line.span.startswith("operand")]
    assert {line.span for line in numbers} == {"operand 1", "operand 2"}
    assert all(line.offset > -places for line in numbers)
    tight = replace(binary_natural(places, "+", places), target_length=places)
    of_padded, of_tight = (
        enough_cells(candidates(spans(each, "cross"), "cross", settings, places), "cross")
        for each in (replace(layout, filled=places), tight)
    )
    assert of_padded.offsets.tolist() == of_tight.offsets.tolist()
    assert of_padded.inside.any(0).tolist() == of_tight.inside.any(0).tolist(), "those of problems of so many places"


@pytest.mark.parametrize("pooled", [False, True])
def test_a_threshold_is_that_of_a_direction_or_of_all_lines_together(pooled: bool) -> None:
    """Against a loop over lines: mean and deviation of the direction's lines, or of all."""
    attention = torch.rand(2, 9, 11, generator=torch.manual_seed(5), dtype=torch.float64)
    attention[0, torch.arange(9), torch.arange(9)] += 3
    settings = Calibration(anchor="whole", kappa=(1.5, 1.5), source="logits", pooled=pooled)
    found = {(line.head, line.direction, line.offset) for line in calibrate(attention, None, "cross", settings)}
    for head in range(2):
        means = {("diagonal", k): np.diag(attention[head], k).mean() for k in range(-8, 11)}
        means |= {("antidiagonal", k): np.diag(attention[head].flip(1), -k).mean() for k in range(-10, 9)}
        means |= {("vertical", k): attention[head, :, k].mean().item() for k in range(11)}
        for (direction, offset), mean in means.items():
            others = [value for (own, _), value in means.items() if pooled or own == direction]
            kept = mean > np.mean(others) + 1.5 * np.std(others)
            assert kept == ((head, direction, offset) in found)
