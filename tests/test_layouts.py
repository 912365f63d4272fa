"""Layouts: every column is used once, and places are counted from an operand's right end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import (
    Layout,
    Operand,
    as_written,
    binary_aligned,
    binary_natural,
    unary,
    units_first,
)

WIDTHS = st.integers(1, 70)
LAYOUTS = st.one_of(
    st.builds(unary, WIDTHS, st.sampled_from(["", "SM"])),
    st.builds(binary_natural, WIDTHS, st.just("+"), WIDTHS),
    st.builds(binary_aligned, WIDTHS, st.just("+")),
    st.builds(units_first, st.builds(binary_natural, WIDTHS, st.just("*"), WIDTHS)),
    st.builds(as_written, st.builds(unary, WIDTHS), st.integers(0, 2)),
)


@given(LAYOUTS)
def test_every_column_has_exactly_one_token(layout: Layout) -> None:
    symbols = [column for column, _ in layout.symbols]
    digits = [int(column) for operand in layout.operands for column in operand.columns]
    assert sorted(symbols + digits) == list(range(layout.source_length))
    assert layout.symbols[0] == (0, "$") and layout.symbols[-1] == (layout.source_length - 1, "&")


@given(WIDTHS)
def test_aligned_digits_of_one_place_stand_side_by_side(width: int) -> None:
    text = "$+" + "ab" * width + "&"
    layout = binary_aligned(width, "+")
    first, second = layout.operands
    assert [*first.columns] == [i for i in reversed(range(len(text))) if text[i] == "a"]
    assert [*second.columns] == [i for i in reversed(range(len(text))) if text[i] == "b"]
    assert layout.symbols[1] == (1, "+")


FIELDS: dict[str, Any] = {"width": 3, "operands": (Operand(3, 1, 3),), "symbols": ((0, "$"), (4, "&"))}
FIELDS["target_length"] = 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"symbols": ((0, "$"), (5, "&"))}, "each column from 0 to 4 must hold one token"),
        ({"symbols": ((0, "$"), (3, "&"))}, "each column from 0 to 4 must hold one token"),
        ({"operands": (Operand(1, 1, 3),)}, "each column from 0 to 4 must hold one token"),
        ({"operands": (Operand(1, 0, 1),), "width": 1}, "a stride of 0 is not possible"),
        ({"target_length": 0}, "a layout needs an output token"),
        ({"filled": 0}, "a place that numbers fill"),
        ({"row": 0}, "a cell in a row"),
        ({"width": 9}, "a width of 9 is not possible: the widest operand has 3 places"),
        ({"symbols": {0: "$"}}, "is not possible as symbols of a Layout"),
        ({"symbols": (("$", 0),)}, "is not possible as symbols of a Layout"),
        ({"operands": Operand(3, 1, 3)}, "is not possible as operands of a Layout"),
        ({"width": 3.0}, "is not possible as width of a Layout"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    assert Layout(**FIELDS) == unary(3)
    with pytest.raises(InputError, match=sentence):
        Layout(**FIELDS | wrong)
