"""Products and sums as tables, against Python's integers and a loop from the definition."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import array, integers
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.bias.base import CLOSED
from abc_nb.bias.lines import Lines, open_keys_of_lines
from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS
from abc_nb.problems.layouts import PAD
from abc_nb.problems.notation import stack
from abc_nb.problems.tasks import Task

BASES = st.integers(2, 16)
NUMBERS = st.integers(0, 10**40)


@st.composite
def products(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """A base, two numbers, and the places of each, zeros in front included."""
    base, places, second = draw(BASES), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return base, draw(st.integers(0, base**places - 1)), draw(st.integers(0, base**second - 1)), places, second


@given(products())
def test_a_product_is_that_of_pythons_integers_and_a_cell_follows_from_its_neighbours(
    drawn: tuple[int, int, int, int, int],
) -> None:
    """P[r, c] = a_c b_r + the digit up and right + the carry before; nothing stands beyond the edges."""
    base, a, b, places, second = drawn
    task, layout = Task("n-by-n", base), Task("n-by-n", base).layout((places, second))
    operands = [array([a], base, places), array([b], base, second)]
    tokens = task.answer(operands)[0].tolist()
    answer = task.write(tokens, layout)
    assert int(answer, base) == a * b and (answer == "0" or answer[0] != "0")
    assert layout.target_length == len(tokens) + 1
    cells: dict[tuple[int, int], int] = {}
    for row, digit in enumerate(operands[1][0].tolist()):
        for column in range(places + 1):
            product = int(operands[0][0, column]) * digit if column < places else 0
            above, before = cells.get((row - 1, column + 1), 0), cells.get((row, column - 1), 0)
            cells[row, column] = product + above % base + before // base
    assert [token - task.first_cell for token in tokens] == [*cells.values()]
    head, *lines = (line.split() for line in task.written_table(tokens, layout, operands).splitlines())
    assert head == [DIGITS[digit] for digit in reversed(operands[0][0])]
    for row, line in enumerate(lines):
        texts = [DIGITS[cells[row, column] // base] + DIGITS[cells[row, column] % base] for column in range(places + 1)]
        assert line == ["x", DIGITS[operands[1][0, row]], "|", *reversed(texts)]


@pytest.mark.parametrize(("name", "problem"), [("n-by-n", "12*34"), ("sum-of-many", "1+2")])
def test_tokens_that_are_no_cells_are_question_marks(name: str, problem: str) -> None:
    task = Task(name)
    operands = task.read(problem)
    layout = task.layout(task.width_of(operands))
    assert layout.row_length
    tokens = [task.first_cell] * (2 * layout.row_length)
    assert "?" not in task.write(tokens, layout)
    for symbol in ("0", "$", "&", PAD):
        broken = [*tokens[:-1], task.token(symbol)]
        assert task.write(broken, layout) == "?"
        assert name == "sum-of-many" or task.written_table(broken, layout, operands).count("?") == 1
    assert task.write([], layout) == "?"


@given(BASES, st.lists(NUMBERS, min_size=1, max_size=12), st.integers(0, 2))
def test_a_row_is_the_running_sum_and_the_last_one_that_of_what_is_typed(
    base: int, numbers: list[int], zeros: int
) -> None:
    task, places = Task("sum-of-many", base), 140
    operands = [stack(task.rule, array(numbers[::-1], base, places)[None])]
    table = task.cells(operands)[0]
    assert integers(table % base, base) == [sum(numbers[::-1][: row + 1]) for row in range(len(numbers))]
    assert task.width_of(operands) == (places, len(numbers))
    *typed, total = (np.base_repr(number, base).lower() for number in (*numbers, sum(numbers)))
    assert task.right_answer(" + ".join("0" * zeros + number for number in typed)) == total
    assert task.typed(task.read("+".join(typed))) == "+".join(typed)


def test_a_sum_is_written_row_by_row_with_a_plus_before_each_number() -> None:
    task = Task("sum-of-many")
    operands = task.read("7+12+99")
    layout = task.layout(task.width_of(operands))
    assert "".join(task.text(task.source(operands, layout)[0].tolist())) == "$+07+12+99&"
    assert layout.row_length == 3 and layout.above == (0,) and layout.operands[0].by_rows
    tokens = task.answer(operands)[0].tolist()
    assert task.text(tokens) == ["09", "09", "00", "11", "11", "01", "08", "01", "01"]
    assert task.write(tokens, layout) == "118"
    for wrong in ("1+", "", "1-2", "1+x"):
        with pytest.raises(InputError, match=r"Sum of many numbers takes a problem in numbers with a \+ between them"):
            task.read(wrong)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
def test_one_line_follows_the_numbers_cell_by_cell(digits: int, numbers: int, back: int) -> None:
    layout = Task("sum-of-many", 3).layout((digits, numbers))
    line = next(line for line in Lines.one_key_per_head(layout, 4, 1).lines if line.attention == "cross")
    keys = open_keys_of_lines([replace(line, offset=back)], layout, "cross", line.head + 1)
    columns = layout.operands[0].columns
    for step in range(layout.target_length - 1):
        opened = keys.value[line.head, step, 0] > CLOSED
        if step >= back:
            assert opened and int(keys.index[step, 0]) == columns[step - back]
