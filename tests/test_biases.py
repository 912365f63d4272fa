"""Attention biases against their papers' definitions, written as loops."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from helpers import assert_open_keys_are
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.bias.alibi import ALiBi, PlacedALiBi
from abc_nb.bias.base import Attention, Bias, Causal, OpenKeys
from abc_nb.bias.window import Sides, Window
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout, binary_aligned, binary_natural, unary

WIDTHS, WINDOWS = st.integers(1, 20), st.integers(0, 4)
LAYOUTS = st.one_of(
    st.builds(unary, WIDTHS, st.sampled_from(["", "SM"]), st.sampled_from([None, 1])),
    st.builds(binary_natural, WIDTHS, st.just("+"), WIDTHS),
    st.builds(binary_aligned, WIDTHS, st.just("+")),
)
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


# ---- window (ABS) -----------------------------------------------------------------------------------


@given(LAYOUTS, WINDOWS, SIDES)
def test_window_of_self_attention_is_the_token_and_w_before_it(layout: Layout, w: int, sides: Sides) -> None:
    length = layout.target_length
    expected = torch.full((1, length, length), -INFINITY)
    for i in range(length):
        for j in range(length):
            for k in range(w + 1):
                if i - k == j:
                    expected[0, i, j] = 0.0
    torch.testing.assert_close(dense(Window(w, sides), layout, "self"), expected)


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


def test_window_of_one_on_aligned_digits_opens_three_keys_to_one_side_and_four_to_both() -> None:
    one, both = (dense(Window(1, sides), binary_aligned(5, "+"), "cross")[0] for sides in ("one", "both"))
    assert (one == 0).sum(dim=1).tolist() == [3] * 6
    assert one[2].tolist() == [-INFINITY] * 6 + [0.0] * 3 + [-INFINITY] * 4  # $+ababab, ab and the a before them
    assert (both == 0).sum(dim=1).tolist() == [4, 4, 4, 4, 4, 3]
    assert both[2].tolist() == [-INFINITY] * 5 + [0.0] * 4 + [-INFINITY] * 4  # $+ab(b)


def test_a_window_is_open_to_one_side_unless_it_is_said() -> None:
    assert Window() == Window(1, "one")
    with pytest.raises(InputError, match="'left' is not possible as sides of a Window: choose one of one, both"):
        Window(1, "left")  # type: ignore[arg-type]


@pytest.mark.parametrize("attention", ["self", "cross"])
@given(LAYOUTS, WINDOWS, SIDES)
def test_open_keys_are_the_dense_matrix_and_hold_no_key_twice(
    attention: Attention, layout: Layout, w: int, sides: Sides
) -> None:
    keys = Window(w, sides).open_keys(layout, attention, layer=0)
    assert_open_keys_are(keys, dense(Window(w, sides), layout, attention))


@pytest.mark.parametrize(("sides", "keys"), [("one", 3), ("both", 4)])
def test_number_of_open_keys_does_not_grow_with_length(sides: Sides, keys: int) -> None:
    layouts = [binary_aligned(width, "+") for width in (5, 50, 5000)]
    assert {Window(1, sides).open_keys(layout, "cross", 0).index.shape[-1] for layout in layouts} == {keys}


def test_open_keys_become_dense_head_by_head() -> None:
    """Both heads look at the same keys, each with its own values."""
    index = torch.tensor([[0, 2], [1, 1]])
    value = torch.tensor([[[0.5, 1.5], [-2.0, -INFINITY]], [[-INFINITY, 3.0], [-INFINITY, -INFINITY]]])
    expected = torch.full((2, 2, 3), -INFINITY)
    expected[0, 0, 0], expected[0, 0, 2], expected[0, 1, 1], expected[1, 0, 2] = 0.5, 1.5, -2.0, 3.0
    torch.testing.assert_close(OpenKeys(index, value).dense(3), expected)


# ---- causal and ALiBi -------------------------------------------------------------------------------


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


def test_alibi_counts_from_the_units_of_the_number_behind_which_a_factor_stands() -> None:
    matrix = dense(ALiBi(cross=True), binary_natural(7, "*", 1), "cross", 8)
    assert [int(matrix[0, i].argmax()) for i in range(7)] == [7, 6, 5, 4, 3, 2, 1]
