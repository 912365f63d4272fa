"""Problems typed by people: reading, right answers against Python integers, writing."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.common.errors import InputError
from abc_nb.problems.expressions import expected, read, typed_places, write
from abc_nb.problems.tasks import Task

NUMBERS, BASES, ZEROS = st.integers(0, 10**70), st.integers(2, 16), st.integers(0, 5)
SPACES = st.sampled_from(["", " ", "  "])


def text(number: int, base: int = 10) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, base)
        digits = "0123456789abcdef"[digit] + digits
    return digits


# ---- right answers ----------------------------------------------------------------------------------


@given(BASES, NUMBERS, NUMBERS, ZEROS, ZEROS, SPACES)
def test_sums_are_those_of_integers(base: int, a: int, b: int, zeros: int, more: int, space: str) -> None:
    expression = f"{space}{'0' * zeros}{text(a, base)}{space}+{space}{'0' * more}{text(b, base)}{space}"
    assert expected(Task("addition", base), expression) == text(a + b, base)


@given(BASES, NUMBERS, st.integers(0, 15), ZEROS, st.sampled_from(["*", "x", "×", " X "]))
def test_products_are_those_of_integers(base: int, a: int, digit: int, zeros: int, sign: str) -> None:
    digit %= base
    expression = f"{'0' * zeros}{text(a, base)}{sign}{text(digit, base)}"
    assert expected(Task("n-by-1", base), expression) == text(a * digit, base)


@given(BASES, NUMBERS, ZEROS)
def test_successors_are_those_of_integers(base: int, number: int, zeros: int) -> None:
    assert expected(Task("successor", base), "0" * zeros + text(number, base)) == text(number + 1, base)


@given(NUMBERS, ZEROS, st.sampled_from(["parity", "parity-classification"]))
def test_parity_is_that_of_the_bits(number: int, zeros: int, name: str) -> None:
    assert expected(Task(name), "0" * zeros + text(number, 2)) == str(number.bit_count() % 2)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sampled_from([" ", ",", ", ", "  "]))
def test_lists_are_folded(items: list[int], separator: str) -> None:
    expression = separator.join(map(str, items))
    assert expected(Task("listops-sm"), expression) == str(reduce(lambda x, y: (x + y) % 10, items))
    assert expected(Task("listops-max"), expression) == str(max(items))
    assert expected(Task("listops-min"), expression) == str(min(items))


@pytest.mark.parametrize("name", ["listops-sm", "listops-max", "listops-min"])
@pytest.mark.parametrize("form", ["{} 3 9 4", "{}(3 9 4)", "{}(3, 9, 4)", "(3 9 4)"])
def test_a_list_may_name_its_operator(name: str, form: str) -> None:
    task = Task(name)
    for operator in (task.operation.operator, task.operation.operator.lower()):
        assert read(task, form.format(operator))[0].tolist() == [[4, 9, 3]]


def test_hexadecimal_digits_are_read_in_either_case() -> None:
    assert expected(Task("addition", 16), "FF+1") == "100"
    assert expected(Task("addition", 16), "a+b") == "15"


def test_numbers_of_thousands_of_digits_are_computed() -> None:
    assert expected(Task("addition"), "9" * 5000 + "+1") == "1" + "0" * 5000


def test_operands_are_digits_least_significant_first_without_leading_zeros() -> None:
    assert [operand.tolist() for operand in read(Task("addition"), "0123 + 0")] == [[[3, 2, 1]], [[0]]]


@pytest.mark.parametrize(
    ("name", "base", "expression"),
    [
        ("addition", 10, "12a+3"),
        ("addition", 10, ""),
        ("addition", 10, "+"),
        ("addition", 10, "1+"),
        ("addition", 10, "1+2+3"),
        ("addition", 10, "1-2"),
        ("addition", 10, "-1+2"),
        ("addition", 10, "1.5+2"),
        ("addition", 10, "1 2+3"),
        ("addition", 10, "١+2"),  # an Arabic digit
        ("addition", 2, "2+1"),
        ("n-by-1", 10, "12*34"),
        ("n-by-1", 10, "12"),
        ("n-by-1", 10, "12*"),
        ("successor", 10, "1+1"),
        ("successor", 10, "12 13"),
        ("parity", 2, "102"),
        ("listops-sm", 10, "12 3"),
        ("listops-sm", 10, ""),
        ("listops-sm", 10, "SM"),
        ("listops-sm", 10, "MAX 1 2"),
        ("listops-max", 10, "()"),
    ],
)
def test_what_is_no_problem_of_the_task_is_an_error_with_an_example(name: str, base: int, expression: str) -> None:
    task = Task(name, base)
    with pytest.raises(InputError) as caught:
        read(task, expression)
    sentence = str(caught.value)
    assert sentence.startswith(f"cannot read {expression.strip()!r}: ")
    assert f"; {task.title} takes a problem in digits 0-" in sentence
    assert ", as in " in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("name", "expression", "reason"),
    [
        ("addition", "1-2", "'-' is no digit, and the sign is +"),
        ("addition", "-5+3", "'-' is no digit, and the sign is +"),
        ("addition", "1+2+3", "numbers in it: 3, needed: 2"),
        ("addition", "1+", "numbers in it: 1, needed: 2"),
        ("n-by-1", "12*34", "the second number has 2 digits, which is more than 1"),
        ("successor", "1+1", "'+' is no digit"),
        ("listops-sm", "3+4", "'3+4' is no item"),
        ("listops-sm", "SM", "there is no item"),
        ("listops-nested", "3+4", "'3+4' is no item"),
        ("listops-nested", "SM 1", "its operators and items do not make one list"),
    ],
)
def test_an_error_names_what_was_wrong(name: str, expression: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(Task(name), expression)
    assert str(caught.value).startswith(f"cannot read {expression!r}: {reason}; ")


@pytest.mark.parametrize("base", [2, 10, 16])
def test_the_example_of_an_error_can_itself_be_read(base: int) -> None:
    for name in ("addition", "n-by-1", "successor", "listops-sm"):
        with pytest.raises(InputError) as caught:
            read(Task(name, base), "?")
        read(Task(name, base), str(caught.value).split("as in ")[1])


# ---- writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "output", "written"),
    [
        ("addition", "1780&", "871"),
        ("addition", "000&", "0"),
        ("addition", "321", "123"),  # no end
        ("addition", "32&1", "23"),
        ("addition", "3+1&", "1?3"),
        ("addition", "&", "?"),
        ("parity", "1001&", "1"),
        ("parity", "110&", "0"),
        ("parity-classification", "1&", "1"),
        ("parity", "&", "?"),
    ],
)
def test_output_is_written_as_a_person_would(name: str, output: str, written: str) -> None:
    task = Task(name)
    assert write(task, [task.token(symbol) for symbol in output]) == written


# ---- width ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "text", "places"),
    [
        (Task("addition"), "007+12", 3),
        (Task("addition"), "7+0012", 4),
        (Task("successor"), "0099", 4),
        (Task("n-by-1"), "00012x7", 5),
        (Task("addition", 16), "ff+1", 2),
        (Task("listops-max"), "(3 9 4)", 3),
    ],
)
def test_typed_places_count_zeros_in_front_and_items(task: Task, text: str, places: int) -> None:
    assert typed_places(task, text) == places
