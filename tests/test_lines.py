"""Lines against a loop over cells, and lines that mean the same at every length."""

from typing import Any, Literal

import pytest
import torch
from helpers import assert_open_keys_are, layouts, table
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import DIRECTIONS, Direction, Line, Lines
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Arrangement, Layout, binary_natural, unary
from abc_nb.problems.tasks import Task
from audit.models import by_head

ARRANGEMENTS: tuple[Arrangement, ...] = ("natural", "units-first", "as-written")
INFINITY = float("inf")
WIDTHS = st.integers(1, 12)
LAYOUTS = layouts(WIDTHS)
TABLES = st.builds(
    lambda first, second, rows, columns: table((first, second), (rows, columns)), *(st.integers(1, 5),) * 4
)
ATTENTIONS: list[Attention] = ["self", "cross"]


# ---- the definition, cell by cell -------------------------------------------------------------------


def run_of_keys(layout: Layout, attention: Attention, name: str) -> tuple[range, int, int]:
    """A span's columns, the column at which offset 0 starts, and its stride."""
    keys = layout.target_length if attention == "self" else layout.source_length
    if name == "output":
        return range(keys), 0, 1
    if attention == "self":  # "$", the token before the first output
        return range(1), 0, 1
    if name.startswith("operand"):
        operand = layout.operands[int(name.split()[1]) - 1]
        columns = operand.columns.tolist()
        if layout.row_length is None and len(columns) < layout.width:  # a factor of a few digits
            return range(min(columns), max(columns) + 1), max(columns), operand.stride
        reached = [min(columns) - operand.stride, max(columns) + operand.stride]
        return range(max(0, reached[0]), min(reached[1], keys - 1) + 1), max(columns), operand.stride
    column = next(column for column, symbol in layout.symbols if symbol == name)
    return range(column, column + 1), column, 1


def column_at(line: Line, layout: Layout, step: int) -> int | None:
    """The column that a line opens at a step, if any."""
    if line.span == "whole":
        keys = layout.target_length if line.attention == "self" else layout.source_length
        run, origin, stride = range(keys), keys - 1 if line.direction == "antidiagonal" else 0, 1
    else:
        run, origin, stride = run_of_keys(layout, line.attention, line.span)
    in_table = layout.row_length is not None and line.span.startswith(("operand", "output"))
    row, place = divmod(step, layout.row_length) if in_table and layout.row_length else (0, step)
    move = {"diagonal": place, "antidiagonal": -place, "vertical": 0, "by row": -row, "above": place}[line.direction]
    column = origin + stride * move + line.offset
    if in_table and line.span == "output":
        return cell_at(line, layout, row, column, step)
    return column if column in run and (line.attention == "cross" or column <= step) else None


def cell_at(line: Line, layout: Layout, row: int, column: int, step: int) -> int | None:
    """Key `k` of the output holds the token before cell `k`: that of column c - 1, or the row's predecessor at 0."""
    assert layout.row_length is not None
    if line.direction == "above":
        fits, key = row > 0 and 1 <= column <= layout.row_length, (row - 1) * layout.row_length + column
    else:
        fits, key = 0 <= column <= layout.row_length, row * layout.row_length + column
    return key if fits and key <= step else None


def cell_by_cell(bias: Lines, layout: Layout, attention: Attention, layer: int) -> Tensor:
    keys = layout.target_length if attention == "self" else layout.source_length
    matrix = torch.empty(bias.heads, layout.target_length, keys)
    for head in range(bias.heads):
        own = [line for line in bias.lines if (line.attention, line.layer, line.head) == (attention, layer, head)]
        for i in range(layout.target_length):
            for j in range(keys):
                values = [line.value for line in own if column_at(line, layout, i) == j]
                matrix[head, i, j] = max(values, default=-INFINITY if bias.floor is None else bias.floor)
                if not own and bias.empty == "transparent":
                    matrix[head, i, j] = 0.0
                if attention == "self" and j > i:
                    matrix[head, i, j] = -INFINITY
    return matrix


def span_names(layout: Layout, attention: Attention) -> list[str]:
    if attention == "self":
        return ["$", "output", "whole"]
    operands = [f"operand {i + 1}" for i in range(len(layout.operands))]
    return [*(symbol for _, symbol in layout.symbols), *operands, "whole"]


@st.composite
def layouts_and_lines(draw: st.DrawFn) -> tuple[Layout, int, tuple[Line, ...]]:
    """A layout, a number of heads, and lines of two layers that lie anywhere, also beyond their spans."""
    layout, heads = draw(st.one_of(LAYOUTS, TABLES)), draw(st.integers(1, 3))

    def line() -> Line:
        attention = draw(st.sampled_from(ATTENTIONS))
        name, offset = draw(st.sampled_from(span_names(layout, attention))), draw(st.integers(-8, 8))
        head, layer, value = draw(st.integers(0, heads - 1)), draw(st.integers(0, 1)), draw(st.integers(-8, 0)) / 4
        directions = DIRECTIONS if layout.row_length and name.startswith(("operand", "output")) else DIRECTIONS[:3]
        return Line(attention, layer, head, draw(st.sampled_from(directions)), name, offset, value)

    return layout, heads, tuple(line() for _ in range(draw(st.integers(0, 8))))


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("floor", "empty"), [(None, "transparent"), (None, "closed"), (-3.0, "transparent")])
@given(layouts_and_lines())
def test_lines_are_their_definition_cell_by_cell(
    attention: Attention,
    floor: float | None,
    empty: Literal["transparent", "closed"],
    drawn: tuple[Layout, int, tuple[Line, ...]],
) -> None:
    layout, heads, lines = drawn
    bias = Lines(heads, lines, floor, empty)
    for layer in (0, 1):
        expected = cell_by_cell(bias, layout, attention, layer)
        torch.testing.assert_close(bias.dense(layout, attention, layer, heads), expected, rtol=0, atol=0)
        keys = bias.open_keys(layout, attention, layer)
        with_lines = {line.head for line in lines if (line.attention, line.layer) == (attention, layer)}
        assert (keys is None) == (floor is not None or (empty == "transparent" and len(with_lines) < heads))
        if keys is not None:
            assert_open_keys_are(keys, expected)


def test_lines_that_a_layout_or_a_bias_has_no_place_for_are_an_error() -> None:
    def bias(direction: Direction, operand: int) -> Lines:
        return Lines(1, (Line("cross", 0, 0, direction, f"operand {operand}", 0, 0.0),), empty="closed")

    missing = r"follows 'operand 2', which the layout does not have: it has \$, &, operand 1"
    for ask in (Lines.dense, Lines.open_keys):
        with pytest.raises(InputError, match=missing):
            ask(bias("antidiagonal", 2), unary(3), "cross", 0)
        for direction in DIRECTIONS[3:]:
            with pytest.raises(InputError, match="output that is a table"):
                ask(bias(direction, 1), unary(3), "cross", 0)
    with pytest.raises(InputError, match="heads are numbered 0 to 1"):
        Lines(2, (Line("cross", 0, 2, "vertical", "&", 0, 0.0),))


# ---- lines that hold at any length ------------------------------------------------------------------


@pytest.mark.parametrize(("few", "heads"), [(1, 8), (2, 8), (3, 8), (2, 3), (3, 1)])
@pytest.mark.parametrize("width", [5, 12])
def test_by_head_every_head_has_keys_of_its_own_and_together_they_see_what_a_place_needs(
    few: int, heads: int, width: int
) -> None:
    layout = binary_natural(width, "*", few)
    tokens = ["$", *(f"a{i}" for i in range(width)[::-1]), "*", *(f"b{i}" for i in range(few)[::-1]), "&"]
    bias = by_head(layout, heads, layers=2)
    needed = 2 * few  # digits of the factor, and as many places of the number
    for layer in (0, 1):
        opened_at = bias.dense(layout, "cross", layer, heads).isfinite()
        for step in range(few, width):
            seen = [{tokens[key] for key in head[step].nonzero().flatten().tolist()} for head in opened_at]
            assert set.union(*seen) == {f"b{i}" for i in range(few)} | {f"a{step - i}" for i in range(few)}
            assert max(len(keys) for keys in seen) == -(-needed // heads)
        own = bias.dense(layout, "self", layer, heads).isfinite()
        assert all(head[step].nonzero().flatten().tolist() == [step - 1, step] for head in own for step in (1, 4))


@given(st.sampled_from(ARRANGEMENTS), st.integers(2, 30), st.integers(0, 1))
def test_one_key_per_head_follows_places_however_operands_and_answer_are_written(
    arrangement: Arrangement, width: int, below: int
) -> None:
    """The digit of the output's own place, or that of the place below it, is the one key of a head."""
    layout = Task("addition").layout(width, arrangement)
    bias = Lines.one_key_per_head(layout, heads=6, layers=1)
    written = [("$", 0), *[("a", place) for place in range(width - 1, -1, -1)], ("+", 0)]
    written += [*[("b", place) for place in range(width - 1, -1, -1)], ("&", 0)]
    if arrangement == "units-first":
        written[1 : width + 1], written[width + 2 : -1] = written[width:0:-1], written[-2 : width + 1 : -1]
    outputs = layout.target_length - 1
    places = [*range(outputs)] if arrangement != "as-written" else [*reversed(range(outputs))]
    for head, name in ((below, "a"), (2 + below, "b")):
        cells = bias.opened(layout, "cross", 0)[head]
        for step, place in enumerate(places):
            wanted = [column for column, token in enumerate(written) if token == (name, place - below)]
            found = cells[step].nonzero().flatten().tolist()
            assert found == wanted or not wanted, "outside the operand only the token next to it may be open"
    assert ((bias.opened(layout, "self", 0).sum(-1) + bias.opened(layout, "cross", 0).sum(-1)) <= 1).all()
    own = bias.opened(layout, "source", 0)
    assert torch.equal(own, torch.eye(layout.source_length, dtype=torch.bool).expand_as(own))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"attention": "crss"}, "'crss' is not possible as attention of a Line: choose one of self, cross, source"),
        ({"direction": "sideways"}, "'sideways' is not possible as direction of a Line"),
        ({"layer": -1}, "-1 is not possible as layer of a Line: give 0 or more"),
        ({"value": float("nan")}, "nan is not possible as value of a Line"),
    ],
)
def test_a_line_that_cannot_be_is_refused(settings: dict[str, Any], sentence: str) -> None:
    line = {
        "attention": "cross",
        "layer": 0,
        "head": 0,
        "direction": "vertical",
        "span": "$",
        "offset": 0,
        "value": 0.0,
    }
    with pytest.raises(InputError, match=sentence):
        Line(**line | settings)
    with pytest.raises(InputError, match="0 is not possible as heads of a Lines"):
        Lines(0, ())
