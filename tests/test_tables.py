"""Tables against Python's integers, a loop from the definition, `sorted` and a recursive evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import array
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.problems.digits import DIGITS
from abc_nb.problems.lists import COMBINE, Nested
from abc_nb.problems.products import Product
from abc_nb.problems.rewriting import COLUMNS
from abc_nb.problems.sorting import Sorting
from abc_nb.problems.tables import Tables, Where
from abc_nb.problems.tasks import PAD, Task

BASES = st.integers(2, 16)
NESTED = str | list  # a digit, or an operator and its two elements


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
    task, layout = Product("n-by-n", base), Task("n-by-n", base).layout((places, second))
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
    assert max(cells.values()) < task.cells
    head, *lines = (line.split() for line in task.written_table(tokens, layout, operands).splitlines())
    assert head == [DIGITS[digit] for digit in reversed(operands[0][0])]
    for row, line in enumerate(lines):
        texts = [DIGITS[cells[row, column] // base] + DIGITS[cells[row, column] % base] for column in range(places + 1)]
        assert line == ["x", DIGITS[operands[1][0, row]], "|", *reversed(texts)]


def test_a_written_product_is_laid_out_as_on_paper() -> None:
    task = Task("n-by-n")
    operands, layout = task.read("12*34"), task.layout((2, 2))
    tokens = task.answer(operands)[0].tolist()
    table = [
        "             1  2",
        "x 4 |    00 04 08",  # 12 * 4 = 48
        "x 3 | 00 04 10",  # and 4 + 12 * 3 = 40
    ]
    assert task.written_table(tokens, layout, operands).splitlines() == table
    assert task.write(tokens, layout) == "408"


@given(BASES, st.data())
def test_a_list_is_sorted(base: int, data: st.DataObject) -> None:
    items = data.draw(st.lists(st.integers(0, base - 1), min_size=1, max_size=12))
    task, problem = Sorting("sorting", base), " ".join(DIGITS[item] for item in items)
    rows = task.table(task.read(problem))[0]
    assert task.right_answer(problem) == " ".join(DIGITS[item] for item in sorted(items))
    assert (np.sort(rows % base) == sorted(items)).all()  # a row loses no item
    for row, (upper, lower) in enumerate(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)):
        for column in range(row % 2, len(items) - 1, 2):  # pairs of the upper row
            two = [upper[column] % base, upper[column + 1] % base]
            assert [lower[column] % base, lower[column + 1] % base] == sorted(two, reverse=True)
    sides = (np.arange(len(rows))[:, None] + np.arange(len(items))) % 2
    assert np.array_equal(rows // base, sides)


def trees(base: int, items: int) -> st.SearchStrategy[NESTED]:
    if items == 1:
        return st.sampled_from(DIGITS[:base])
    return st.integers(1, items - 1).flatmap(
        lambda left: st.tuples(st.sampled_from([*COMBINE]), trees(base, left), trees(base, items - left)).map(list)
    )


def value(tree: NESTED, base: int) -> int:
    if isinstance(tree, str):
        return int(tree, base)
    name, left, right = tree[0], value(tree[1], base), value(tree[2], base)
    return (left + right) % base if name == "SM" else max(left, right) if name == "MAX" else min(left, right)


def flat(tree: NESTED) -> list[str]:
    return [tree] if isinstance(tree, str) else [tree[0], *flat(tree[1]), *flat(tree[2])]


@given(BASES, st.integers(1, 8), st.integers(0, 3), st.data())
def test_a_nested_list_becomes_its_value_and_nothing_else_is_left(
    base: int, items: int, more: int, data: st.DataObject
) -> None:
    task, tree = Task("listops-nested", base), data.draw(trees(base, items))
    assert isinstance(task, Tables) and isinstance(task, Nested)
    problem, columns = " ".join(flat(tree)), COLUMNS * items + more
    rows = task.table(task.widen(task.read(problem), columns))[0]
    assert rows.shape == (columns + 1, columns)
    assert [task.cell_text(int(cell)) for cell in rows[0] if cell] == [*reversed(flat(tree))]
    assert rows[-1][rows[-1] != 0].tolist() == [1 + value(tree, base)]
    assert task.right_answer(problem) == DIGITS[value(tree, base)]
    assert Task("direct-listops-nested", base).right_answer(problem) == DIGITS[value(tree, base)]
    assert task.typed(task.read(problem)) == problem


def test_the_longest_nested_lists_leave_one_value() -> None:
    """All on the left, and all on the right: the two deepest ones."""
    for tokens in (["SM"] * 39 + ["1"] * 40, ["SM", "1"] * 39 + ["1"]):
        assert Task("listops-nested").right_answer(" ".join(tokens)) == "0"


@pytest.mark.parametrize(("name", "problem"), [("n-by-n", "12*34"), ("sorting", "2 1"), ("listops-nested", "SM 1 2")])
def test_tokens_that_are_no_cells_are_question_marks(name: str, problem: str) -> None:
    task = Task(name)
    assert isinstance(task, Tables)
    operands = task.read(problem)
    layout = task.layout(task.width_of(operands))
    assert layout.row
    tokens = [task.first_cell] * (2 * layout.row)
    assert "?" not in task.write(tokens, layout) + task.written_table(tokens, layout, operands)
    for symbol in ("0", "$", "&", PAD):
        broken = [*tokens[:-1], task.token(symbol)]
        assert task.write(broken, layout) == "?"
        assert task.written_table(broken, layout, operands).count("?") == 1
    assert task.write([], layout) == "?"


@pytest.mark.parametrize(("name", "above"), [("n-by-n", (1,)), ("sorting", (-1, 0, 1)), ("listops-nested", (-1, 0, 1))])
def test_a_layout_says_which_cells_above_a_cell_depends_on(name: str, above: tuple[int, ...]) -> None:
    assert Task(name).layout(6).above == above


@given(st.sampled_from(["n-by-n", "sorting"]), BASES, st.integers(1, 5), st.integers(1, 5), st.data())
def test_what_stands_in_a_table_is_possible_and_right(
    name: str, base: int, first: int, second: int, data: st.DataObject
) -> None:
    """For what decides a cell and the token before it, in tables of random problems."""
    task: Any = Task(name, base)
    operands = task.draw(np.empty(0), 20, (first, second) if name == "n-by-n" else first, np.random.default_rng(0))
    table = task.table(operands)
    rows, columns = table.shape[1:]
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    where, cells = Where(row, column, rows, columns), table.reshape(len(table), -1).T
    values = {
        atom: np.broadcast_to(task.value(atom, where, [each.T for each in operands], cells), 20)
        for atom in task.needed(where)
    }
    assert task.right(where, values).tolist() == table[:, row, column].tolist()
    assert task.possible(where, values).all()
    for atom in task.needed(where):
        assert atom[0] != "cell" or values[atom].max() < task.cells_at(where, atom) <= task.cells
