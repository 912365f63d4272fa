"""Layouts: every column is used once, and places are counted from an operand's right end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.bias import ALiBi, Bias, Window
from abc_nb.bias.window import Near
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import (
    Arrangement,
    Layout,
    Operand,
    as_written,
    binary_aligned,
    binary_natural,
    unary,
    units_first,
)
from abc_nb.problems.tasks import Task

WIDTHS = st.integers(1, 70)
LAYOUTS = st.one_of(
    st.builds(unary, WIDTHS, st.sampled_from(["", "SM"]), st.sampled_from([None, 1])),
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


@pytest.mark.parametrize(
    ("layout", "source_length", "target_length"),
    [
        (unary(5), 7, 6),
        (unary(5, "SM"), 8, 6),
        (unary(5, outputs=1), 7, 2),
        (binary_natural(4, "+", 4), 11, 5),
        (binary_natural(4, "*", 1), 8, 5),
        (binary_aligned(4, "+"), 11, 5),
    ],
)
def test_lengths_count_every_token(layout: Layout, source_length: int, target_length: int) -> None:
    assert (layout.source_length, layout.target_length) == (source_length, target_length)


@pytest.mark.parametrize(
    ("operand", "symbols", "sentence"),
    [
        (Operand(3, 1, 3), ((0, "$"), (5, "&")), "each column from 0 to 4 must hold one token"),
        (Operand(3, 1, 3), ((0, "$"), (3, "&")), "each column from 0 to 4 must hold one token"),
        (Operand(1, 1, 3), ((2, "$"), (3, "&")), "each column from 0 to 4 must hold one token"),
        (Operand(1, 0, 1), ((0, "$"), (2, "&")), "a stride of 0 is not possible"),
    ],
)
def test_a_layout_whose_tokens_do_not_fill_its_columns_is_refused(
    operand: Operand, symbols: tuple[tuple[int, str], ...], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        Layout(operand.places, (operand,), symbols, 4)


def test_a_layout_without_output_or_numbers_is_refused() -> None:
    for wrong in ({"target_length": 0}, {"filled": 0}, {"row": 0}):
        with pytest.raises(InputError, match="a layout needs an output token, a place that numbers fill and a cell"):
            replace(unary(3), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("arrangement", ["units-first", "as-written"])
@pytest.mark.parametrize("bias", [Window(), ALiBi(cross=True), Near()])
def test_a_bias_that_would_follow_an_order_the_wrong_way_refuses_it(arrangement: Arrangement, bias: Bias) -> None:
    assert bias.dense(Task("addition").layout(4), "cross", 0, 2) is not None
    with pytest.raises(InputError, match="units last and answers with the units first"):
        bias.dense(Task("addition").layout(4, arrangement), "cross", 0, 2)


def test_a_width_that_no_operand_has_is_an_error() -> None:
    """All operands would be taken for factors of a few digits, at which lines stand still."""
    with pytest.raises(InputError, match="a width of 9 is not possible: the widest operand has 7 places"):
        Layout(9, (Operand(7, 1, 7),), ((0, "$"), (8, "&")), 8)


@pytest.mark.parametrize(
    "wrong", [{"symbols": {0: "$"}}, {"symbols": (("$", 0),)}, {"operands": Operand(7, 1, 7)}, {"width": 7.0}]
)
def test_fields_of_another_type_are_one_sentence(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"width": 7, "operands": (Operand(7, 1, 7),), "symbols": ((0, "$"), (8, "&"))}
    with pytest.raises(InputError, match=f"is not possible as {next(iter(wrong))} of a Layout"):
        Layout(**fields | {"target_length": 8} | wrong)
