"""Problems typed by people: reading, right answers against Python integers, writing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.common.errors import InputError
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task

NUMBERS, BASES, ZEROS = st.integers(0, 10**70), st.integers(2, 16), st.integers(0, 5)
SPACES = st.sampled_from(["", " ", "  "])


def text(number: int, base: int) -> str:
    return np.base_repr(number, base).lower()


# ---- right answers ----------------------------------------------------------------------------------


@given(BASES, NUMBERS, NUMBERS, ZEROS, ZEROS, SPACES)
def test_sums_are_those_of_integers(base: int, a: int, b: int, zeros: int, more: int, space: str) -> None:
    expression = f"{space}{'0' * zeros}{text(a, base)}{space}+{space}{'0' * more}{text(b, base)}{space}"
    assert Task("addition", base).right_answer(expression) == text(a + b, base)
    assert Task("successor", base).right_answer("0" * zeros + text(a, base)) == text(a + 1, base)


Tree = str | tuple  # a digit, or an operator and its two elements


def trees(base: int) -> st.SearchStrategy[Tree]:
    digits = st.sampled_from("0123456789abcdef"[:base])
    return st.recursive(digits, lambda inner: st.tuples(st.sampled_from(["SM", "MAX", "MIN"]), inner, inner))


def value(tree: Tree, base: int) -> int:
    if isinstance(tree, str):
        return int(tree, base)
    first, second = (value(element, base) for element in tree[1:])
    return {"SM": (first + second) % base, "MAX": max(first, second), "MIN": min(first, second)}[tree[0]]


def prefix(tree: Tree) -> str:
    return tree if isinstance(tree, str) else " ".join([tree[0], *map(prefix, tree[1:])])


@given(BASES, st.data())
def test_a_nested_list_is_evaluated_from_inside(base: int, data: st.DataObject) -> None:
    task, tree = Task("direct-listops-nested", base), data.draw(trees(base))
    problem = prefix(tree)
    assert task.right_answer(problem) == text(value(tree, base), base)
    assert task.typed(task.read(problem)) == problem


# ---- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem", "operands"),
    [
        ("listops-max", "MAX 3 9 4", [[[4, 9, 3]]]),
        ("listops-max", "max 3 9 4", [[[4, 9, 3]]]),
        ("listops-max", "3 9 4", [[[4, 9, 3]]]),
        ("addition", "123 + 0", [[[3, 2, 1]], [[0]]]),
        ("addition", "007+12", [[[7, 0, 0]], [[2, 1]]]),
    ],
)
def test_operands_are_digits_least_significant_first(name: str, problem: str, operands: list[list[list[int]]]) -> None:
    """Zeros in front count, and a list may name its operator."""
    assert [digits.tolist() for digits in Task(name).read(problem)] == operands


@pytest.mark.parametrize(
    ("name", "problem", "reason"),
    [
        ("addition", "", "a number is missing"),
        ("n-by-1", "12 *", "a number is missing"),
        ("addition", "1 2+3", "' ' is no digit"),
        ("addition", "12", "numbers in it: 1, needed: 2"),
        ("addition", "1+2+3", "numbers in it: 3, needed: 2"),
        ("addition", "١+2", "'١' is no digit"),  # an Arabic digit
        ("n-by-1", "12*34", "the second number has 2 digits, which is more than 1"),
        ("listops-sm", "SM", "there is no item"),
        ("listops-sm", "MAX 1 2", "'MAX' is no item"),
        ("cycle-navigation", "1 2", "'2' is no item"),
        ("subtraction", "1-2", "the second number is larger than the first"),
        ("direct-listops-nested", "SM 1", "its operators and items do not make one list"),
    ],
)
def test_what_is_no_problem_of_the_task_is_one_sentence_with_an_example(name: str, problem: str, reason: str) -> None:
    task = Task(name)
    with pytest.raises(InputError) as caught:
        task.read(problem)
    takes = f"{task.title} takes a problem in {task.takes}, as in {task.example}"
    assert str(caught.value) == f"cannot read {problem!r}: {reason}; {takes}"


@pytest.mark.parametrize("name", REGISTRY)
def test_the_example_of_a_task_can_be_read_in_every_base(name: str) -> None:
    for base in Task(name).bases:
        task = Task(name, base)
        assert task.typed(task.read(task.example)) == task.example
        assert task.right_answer(task.example)


# ---- writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "output", "written"),
    [
        ("addition", "1780&", "871"),
        ("addition", "000", "0"),  # no end
        ("addition", "32&1", "23"),
        ("addition", "3+1&", "1?3"),
        ("addition", "&", "?"),
        ("parity", "1001&", "1"),
        ("parity", "&", "?"),
    ],
)
def test_output_is_written_as_a_person_would(name: str, output: str, written: str) -> None:
    task = Task(name)
    assert task.write([task.token(symbol) for symbol in output]) == written


@given(st.sampled_from(["addition", "n-by-1", "successor"]), st.integers(1, 999), st.integers(1, 9), st.integers(0, 3))
def test_a_problem_is_typed_with_the_zeros_that_a_result_leaves_room_for(
    name: str, number: int, digit: int, more: int
) -> None:
    task = Task(name)
    problem = f"{number}{task.rule.sign}{digit}" if task.rule.sign else str(number)
    width = len(str(number)) + more + 1
    operands = task.widen(task.read(problem), width)
    assert task.typed(operands) == problem
    typed = task.typed(operands, zeros=True)
    assert task.width_of(task.read(typed)) == width and task.typed(task.read(typed)) == problem
