"""Problems typed by people: reading, right answers against Python integers, and answers in order."""

from __future__ import annotations

from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb import api
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.problems import expressions
from abc_nb.problems.expressions import expected, read, typed_places, write
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import Task
from abc_nb.runs import runner
from abc_nb.training.answers import answers

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
    assert sentence.startswith(f"cannot read {expression.strip()!r}: {task.title} takes a problem in digits 0-")
    assert ", as in " in sentence
    assert "\n" not in sentence


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


# ---- answers of a model -----------------------------------------------------------------------------


def perfect_decoder(task: Task):  # type: ignore[no-untyped-def]
    """In place of greedy decoding: the right sum, read from the source's text."""

    def decode(model: object, source: Tensor, layout: Layout, start: int) -> Tensor:
        assert start == task.token("$")
        rows = []
        for row in source.tolist():
            a, b = "".join(task.text(row)).strip("$&").split("+")
            total = f"{int(a) + int(b):0{layout.width}}"[::-1] + "&"
            rows.append([task.token(symbol) for symbol in total])
        return torch.tensor(rows)

    return decode


@given(st.lists(st.tuples(NUMBERS, NUMBERS, ZEROS), max_size=12))
def test_answers_keep_their_order_whatever_their_widths(problems: list[tuple[int, int, int]]) -> None:
    chosen = experiment("addition-vanilla", "smoke")
    model = chosen.build(0)
    expressions = [f"{'0' * zeros}{a}+{b}" for a, b, zeros in problems]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(expressions, "greedy", perfect_decoder(chosen.task))
        assert [*answers(model, chosen.sampler, expressions)] == [str(a + b) for a, b, _ in problems]


@pytest.mark.parametrize("name", ["addition-window", "n-by-1-window", "n-by-1-vanilla", "parity-vanilla"])
def test_a_model_is_asked_at_least_at_its_training_width(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, asked = experiment(name, "smoke"), list[int]()

    def decode(model: object, source: Tensor, layout: Layout, start: int) -> Tensor:
        asked.append(layout.width)
        assert source.shape == (1, layout.source_length)
        return torch.zeros(1, layout.target_length, dtype=torch.long)

    monkeypatch.setattr(expressions, "greedy", decode)
    short, long = {"add": ("1+1", "1" * 50 + "+1"), "n-b": ("1*1", "1" * 50 + "*1"), "par": ("1", "1" * 50)}[name[:3]]
    for expression in (short, long):
        [*answers(chosen.build(0), chosen.sampler, [expression])]
    assert asked == [chosen.task.training_width, 50 + chosen.task.operation.grows]


@pytest.mark.parametrize(
    "name", ["addition-window", "n-by-1-rpe", "successor-rope", "parity-classifier", "listops-max-nope"]
)
def test_answers_of_a_model_do_not_depend_on_their_company(name: str) -> None:
    chosen = experiment(name, "smoke")
    model = chosen.build(0)
    expressions = {
        "addition": ["1+2", "123456789+1", "7+8"],
        "n-by-1": ["12*3", "123456789*9", "0*0"],
        "successor": ["9", "123456789012", "10"],
        "parity-classification": ["1", "1" * 40, "0"],
        "listops-max": ["1 2", "3", "4 5 6 7 8 9 0 1 2"],
    }[chosen.task.name]
    together = [*answers(model, chosen.sampler, expressions)]
    assert together == [answer for expression in expressions for answer in answers(model, chosen, [expression])]


def test_an_answer_by_name_is_that_of_the_trained_model(
    tiny: Experiment, folders: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "experiment", lambda *_: tiny)
    with pytest.raises(InputError, match="not trained yet"):
        api.answer("successor-vanilla", "123")
    run = runner.ensure(tiny, 0)
    assert api.answer("successor-vanilla", "123") == next(answers(run.model(), tiny, ["123"]))


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
