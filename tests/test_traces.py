"""Traces against Python's integers, a loop from the definition, `sorted` and a recursive evaluation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.problems.expressions import expected, read, table_of, width_of, write, written_table
from abc_nb.problems.rewriting import COLUMNS, COMBINE
from abc_nb.problems.tasks import PAD, Task
from abc_nb.problems.traces import DIGITS

BASES = st.integers(2, 16)
NESTED = str | list  # a digit, or an operator and its two elements


def digits_of(number: int, base: int, places: int) -> list[int]:
    return [number // base**place % base for place in range(places)]


@st.composite
def products(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """A base, two numbers, and the places of each, zeros in front included."""
    base, places, second = draw(BASES), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return base, draw(st.integers(0, base**places - 1)), draw(st.integers(0, base**second - 1)), places, second


@given(products())
def test_a_product_is_that_of_pythons_integers(drawn: tuple[int, int, int, int, int]) -> None:
    base, a, b, places, second = drawn
    task = Task("n-by-n", base)
    operands = [np.array([digits_of(a, base, places)]), np.array([digits_of(b, base, second)])]
    tokens = task.answer(operands)[0].tolist()
    answer = write(task, tokens, task.layout((places, second)))
    assert int(answer, base) == a * b
    assert answer == "0" or answer[0] != "0"
    assert task.layout((places, second)).target_length == len(tokens) + 1


@given(products())
def test_a_cell_of_a_product_follows_from_its_neighbours(drawn: tuple[int, int, int, int, int]) -> None:
    """P[r, c] = a_c b_r + the digit up and right + the carry before; nothing stands beyond the edges."""
    base, a, b, places, second = drawn
    task = Task("n-by-n", base)
    first, other = digits_of(a, base, places), digits_of(b, base, second)
    tokens = task.answer([np.array([first]), np.array([other])])[0].tolist()
    cells: dict[tuple[int, int], int] = {}
    for row, digit in enumerate(other):
        for column in range(places + 1):
            product = first[column] * digit if column < places else 0
            above, before = cells.get((row - 1, column + 1), 0), cells.get((row, column - 1), 0)
            cells[row, column] = product + above % base + before // base
    assert [token - task.first_cell for token in tokens] == [*cells.values()]
    assert max(cells.values()) < base**2
    written = written_table(task, tokens, places + 1, [np.array([first]), np.array([other])])
    head, *lines = (line.split() for line in written.splitlines())
    assert head == [DIGITS[digit] for digit in reversed(first)]
    for row, line in enumerate(lines):
        texts = [DIGITS[cells[row, column] // base] + DIGITS[cells[row, column] % base] for column in range(places + 1)]
        assert line == ["x", DIGITS[other[row]], "|", *reversed(texts)]


def test_a_written_product_is_laid_out_as_on_paper() -> None:
    task = Task("n-by-n")
    tokens = task.answer(read(task, "12*34"))[0].tolist()
    table = [
        "             1  2",
        "x 4 |    00 04 08",  # 12 * 4 = 48
        "x 3 | 00 04 10",  # and 4 + 12 * 3 = 40
    ]
    assert written_table(task, tokens, 3, read(task, "12*34")).splitlines() == table
    assert write(task, tokens, task.layout((2, 2))) == "408"


@given(BASES, st.data())
def test_a_list_is_sorted(base: int, data: st.DataObject) -> None:
    items = data.draw(st.lists(st.integers(0, base - 1), min_size=1, max_size=12))
    task, problem = Task("sorting", base), " ".join(DIGITS[item] for item in items)
    tokens = task.answer(read(task, problem))[0].tolist()
    assert write(task, tokens, task.layout(len(items))) == " ".join(DIGITS[item] for item in sorted(items))
    rows = table_of(task, tokens, len(items))
    assert (np.sort(rows % base) == sorted(items)).all()  # a row loses no item
    for row, (upper, lower) in enumerate(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)):
        for column in range(row % 2, len(items) - 1, 2):  # pairs of the upper row
            pair = [upper[column] % base, upper[column + 1] % base]
            assert [lower[column] % base, lower[column + 1] % base] == sorted(pair, reverse=True)
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
    columns = COLUMNS * items + more
    source = [task.token(symbol) for symbol in reversed(flat(tree))]
    source += [task.token(PAD)] * (columns - len(source))
    tokens = task.answer([np.array([source])])[0].tolist()
    rows = table_of(task, tokens, columns)
    assert rows.shape == (columns + 1, columns)
    assert [task.trace.write(int(cell), base) for cell in rows[0] if cell] == [*reversed(flat(tree))]  # type: ignore[union-attr]
    assert rows[-1][rows[-1] != 0].tolist() == [1 + value(tree, base)]
    assert write(task, tokens, task.layout(columns)) == DIGITS[value(tree, base)]
    assert write(task, tokens, task.layout(columns)) == expected(task, " ".join(flat(tree)))


def test_the_longest_nested_lists_leave_one_value() -> None:
    """All on the left, and all on the right: the two deepest ones."""
    for tokens in (["SM"] * 39 + ["1"] * 40, ["SM", "1"] * 39 + ["1"]):
        assert expected(Task("listops-nested"), " ".join(tokens)) == "0"


@pytest.mark.parametrize(
    ("task", "problem", "answer"),
    [
        ("n-by-n", "123456789*987654321", str(123456789 * 987654321)),
        ("n-by-n", "007*12", "84"),
        ("n-by-n", "7 x 1000", "7000"),
        ("n-by-n", "0*0", "0"),
        ("sorting", "3 9 4 0", "0 3 4 9"),
        ("sorting", "5", "5"),
        ("listops-nested", "SM 3 MAX 2 5", "8"),
        ("listops-nested", "MIN(SM(7, 6), MAX(1, 2))", "2"),
        ("listops-nested", "4", "4"),
    ],
)
def test_answers_of_typed_problems(task: str, problem: str, answer: str) -> None:
    assert expected(Task(task), problem) == answer


@pytest.mark.parametrize(("name", "problem"), [("n-by-n", "12*34"), ("sorting", "2 1"), ("listops-nested", "SM 1 2")])
def test_tokens_that_are_no_cells_are_question_marks(name: str, problem: str) -> None:
    task = Task(name)
    operands = read(task, problem)
    layout = task.layout(width_of(task, operands))
    row = layout.row
    assert row
    tokens = [task.first_cell] * (2 * row)
    assert "?" not in write(task, tokens, layout) + written_table(task, tokens, row, operands)
    for symbol in ("0", "$", "&", PAD):
        broken = [*tokens[:-1], task.token(symbol)]
        assert write(task, broken, layout) == "?"
        assert written_table(task, broken, row, operands).count("?") == 1
    assert write(task, [], layout) == "?"
