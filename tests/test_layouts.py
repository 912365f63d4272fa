"""Layouts that cannot be are refused."""

from typing import Any

import pytest

from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout, Operand, unary

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
