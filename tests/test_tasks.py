"""Tasks: answers, tables included, against Python integers; layouts against the papers' examples; typed problems."""

import doctest
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from helpers import array, integers, places_of
from hypothesis import given
from hypothesis import strategies as st

from abc_nb import problems
from abc_nb.bias.base import CLOSED
from abc_nb.bias.lines import Lines, open_keys_of_lines
from abc_nb.common.config import from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import automaton_of, certified_automaton
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.digits import DIGITS
from abc_nb.problems.drawing import operands_of_length
from abc_nb.problems.layouts import PAD, Arrangement, Layout, Operand, unary
from abc_nb.problems.notation import stack
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task, Width

BASES = st.integers(2, 16)
FOLDS: dict[str, Callable[[int, int, int], int]] = {
    "parity": lambda x, y, base: x ^ y,
    "cycle-navigation": lambda x, y, base: (x + y) % 5,
    "listops-sm": lambda x, y, base: (x + y) % base,
    "listops-max": lambda x, y, base: max(x, y),
    "listops-min": lambda x, y, base: min(x, y),
}
FACTORS = {"n-by-1": 1, "n-by-2": 2, "n-by-3": 3}


# ---- a task is an object ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_a_name_stands_for_a_task(name: str) -> None:
    task = Task(name)
    assert task.base == {"parity": 2, "parity-classification": 2, "cycle-navigation": 5}.get(name, 10)
    assert task == Task(name, task.base) == replace(task) and hash(task) == hash(Task(name))
    assert pickle.loads(pickle.dumps(task)) == task
    assert from_data(to_data(task), (Task,)) == task and to_data(task)["type"] == "Task"
    assert [task.token(symbol) for symbol in task.digits] == [*range(task.base)]
    assert task.text([*range(len(task.vocabulary))]) == [*task.vocabulary]


ADDITION = Task("addition")
REFUSED: list[tuple[Callable[..., Any], list[Any], str]] = [
    (Task, ["modulo", "Addition", "", 3, None, ["addition"]], "unknown task .*: choose one of successor, addition"),
    (partial(Task, "addition"), [-1, 1, 17, 2.5], "base .* is not possible: Addition is written in base 2 to 16"),
    (partial(Task, "parity"), [10, 3, 17, 1], "base .* is not possible: Parity is written in base 2"),
    (partial(Task, "cycle-navigation"), [10], "base 10 is not possible: Cycle navigation is written in base 5"),
    (partial(ADDITION.layout, 4), ["algined"], "'algined' is no arrangement: choose one of natural, aligned"),
    (ADDITION.layout, [(3, 4)], r"a size of \(3, 4\) is not possible"),
    (partial(Task("n-by-n").layout, 4), ["as-written"], "a table is written row by row, units first"),
    *((Task(name).places, [0, -3], "length .* is not possible") for name in ("addition", "parity", "listops-max")),
    (
        partial(Sampler(Task("addition", 2), "as-written", "unpadded").validation_batches, size=9),
        [1],
        "no number of 2 digits in base",
    ),
    (Sampler, ["addition"], "'addition' is not possible as task"),
    (partial(Sampler, ADDITION), ["algined"], "is not possible as arrangement of a Sampler: choose one of natural"),
    (partial(Sampler, ADDITION, "natural"), ["tihgt"], "not possible as regime of a Sampler: choose one of tight"),
    (partial(Sampler, ADDITION, "natural", "tight"), [0], "0 is not possible as width_count of a Sampler: give 1"),
    (partial(Sampler, ADDITION, "natural"), ["unpadded"], "results can need a place more"),
    *(
        (
            lambda name, base=base: certified_automaton(Task(name, base).rule),
            [name],
            "no certificate: what lower places",
        )
        for name, base in [
            ("n-by-3", 10),
            ("n-by-2", 11),
            ("direct-n-by-n", 2),
            ("parity-classification", 2),
            ("direct-listops-nested", 2),
        ]
    ),
]


@pytest.mark.parametrize(("make", "wrong", "sentence"), REFUSED)
def test_what_is_not_possible_is_one_sentence(make: Callable[..., Any], wrong: list[Any], sentence: str) -> None:
    for given_value in wrong:
        with pytest.raises(InputError, match=sentence):
            make(given_value)


# ---- what is computed -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDS)
@given(st.data())
def test_the_output_is_the_fold_of_the_items_so_far(name: str, data: st.DataObject) -> None:
    task = Task(name, data.draw(st.sampled_from(Task(name).bases)))
    values = data.draw(st.lists(st.sampled_from(task.rule.inputs[0].alphabet.tolist()), min_size=1))
    expected = [reduce(lambda x, y: FOLDS[name](x, y, task.base), values[: i + 1]) for i in range(len(values))]
    assert task.answer([np.array([values])]).tolist() == [expected]
    if name == "parity":
        assert Task("parity-classification").answer([np.array([values])]).tolist() == [expected[-1:]]


@pytest.mark.parametrize("name", ["addition", "n-by-2", "parity", "listops-min"])
def test_the_automaton_of_a_task_writes_what_the_task_does(name: str) -> None:
    task = Task(name, 2 if name == "parity" else 4)
    rules, rng = automaton_of(task.rule), np.random.default_rng(0)
    operands = [rng.integers(task.base, size=(20, places)) for places in task.operand_places(9)]
    for row, right in enumerate(task.answer(operands)):
        long = np.stack([digits[row] for digits in operands[: rules.digits.shape[1]]], axis=1)
        short = operands[-1][row, : task.rule.short_digits]
        starts = [start for start in rules.start if (rules.short[start] == short).all()]
        assert len(starts) == 1
        state, written = starts[0], []
        for digits in long:
            chosen = (rules.digits == digits).all(1).argmax()
            written.append(rules.output[state, chosen])
            state = rules.following[state, chosen]
        assert written == right.tolist()
    assert (rules.digits[0] == 0).all()


def test_only_steps_are_drawn() -> None:
    task = Task("cycle-navigation")
    batch = Sampler(task).training_batch(0, 3, 200)
    assert set(batch.source[:, batch.layout.operands[0].columns].flatten().tolist()) <= {0, 1, 4}
    (operand,) = operands_of_length(task, 4, 10**6, 4, np.random.default_rng(0))
    assert len(operand) == len(np.unique(operand, axis=0)) == 3**4
    assert automaton_of(task.rule).digits[:, 0].tolist() == [0, 1, 4]


# ---- how problems are written -----------------------------------------------------------------------


def written(task: Task, operands: list[np.ndarray], width: Width, arrangement: Arrangement = "natural") -> list[str]:
    """Source and target tokens."""
    layout = task.layout(width, arrangement)
    every = task.source(operands, layout), task.target(operands, layout)
    return ["".join(task.text(tokens[0].tolist())) for tokens in every]


NUMBER, OTHER = array([123], 10, 4), array([748], 10, 4)
LIST, BITS = np.array([[4, 9, 3]]), array([0b1011], 2, 4)


@pytest.mark.parametrize(
    ("name", "operands", "natural", "aligned", "target"),
    [
        ("addition", [NUMBER, OTHER], "$0123+0748&", "$+00172438&", "$1780&"),  # 0871, least significant digit first
        ("n-by-1", [NUMBER, np.array([[6]])], "$0123*6&", "$*06162636&", "$8370&"),
        ("successor", [NUMBER], "$0123&", "$0123&", "$4210&"),
        ("parity", [BITS], "$1011&", "$1011&", "$1001&"),
        ("parity-classification", [BITS], "$1011&", "$1011&", "$1&"),
        ("listops-sm", [LIST], "$SM394&", "$SM394&", "$436&"),
    ],
)
def test_problems_are_written_as_in_the_paper(
    name: str, operands: list[np.ndarray], natural: str, aligned: str, target: str
) -> None:
    width = operands[0].shape[1]
    assert written(Task(name), operands, width) == [natural, target]
    assert written(Task(name), operands, width, "aligned") == [aligned, target]


@given(st.integers(0, 9999), st.integers(0, 9999), BASES)
def test_a_sum_as_others_write_it(first: int, second: int, base: int) -> None:
    """Operands' units first, and the answer's units last with a place for the carry."""
    width = max(places_of(number, base) for number in (first, second))
    task, operands = Task("addition", base), [array([number], base, width) for number in (first, second)]
    a, b = (np.base_repr(number, base).lower().rjust(width, "0") for number in (first, second))
    total = np.base_repr(first + second, base).lower().rjust(width + 1, "0")
    assert written(task, operands, width, "units-first")[0] == f"${a[::-1]}+{b[::-1]}&"
    assert written(task, operands, width, "as-written") == [f"${a}+{b}&", f"${total}&"]
    layout = task.layout(width, "as-written")
    assert task.write(task.target(operands, layout)[0, 1:], layout) == (total.lstrip("0") or "0")


# ---- lengths ----------------------------------------------------------------------------------------


@given(BASES)
def test_training_width_is_what_the_largest_result_of_training_numbers_needs(base: int) -> None:
    def results(number: int) -> dict[str, int]:
        few = {name: (base**digits - 1) * number for name, digits in FACTORS.items()}
        lists = {"listops-max": number, "n-by-n": number}
        return {"successor": number + 1, "addition": 2 * number, "direct-n-by-n": number**2, **few, **lists}

    for name, result in results(2**20 - 1).items():
        task, places = Task(name, base), places_of(result, base)
        assert task.training_width == places
        assert task.training_limit == 2**20 - (places_of(results(2**20)[name], base) > places)


@given(st.integers(1, 80))
def test_widths_of_a_length(length: int) -> None:
    """Parity has a place for every bit of a decimal number; a zero in front of a list would be an item."""
    bits = len(bin(10**length - 1)) - 2
    assert Task("parity").places(length) == bits and Task("successor").places(length) == length
    assert Task("parity").width(length, "tight") == max(bits, 20)
    assert Task("parity").width(length, "padded") == max(bits, len(bin(10**60)) - 2)
    assert Task("listops-sm").width(length, "padded") == length
    assert [Task("addition").width(length, "padded") for length in (1, 6, 60, 61)] == [61, 61, 61, 62]
    assert [Task("addition").width(length, "padded-20") for length in (1, 6, 20, 21, 60)] == [21, 21, 21, 22, 61]


FIELDS: dict[str, Any] = {"width": 3, "operands": (Operand(3, 1, 3),), "symbols": ((0, "$"), (4, "&"))}
FIELDS["target_length"] = 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"symbols": ((0, "$"), (5, "&"))}, "each column from 0 to 4 must hold one token"),
        ({"operands": (Operand(3, 0, 3),)}, "must hold one token"),
        ({"target_length": 0}, "a layout needs an output token"),
        ({"filled": 0}, "a place that numbers fill"),
        ({"row_length": 0}, "a cell in a row"),
        ({"width": 9}, "a width of 9 is not possible: no operand has so many places"),
        ({"symbols": {0: "$"}}, "is not possible as symbols of a Layout"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    assert Layout(**FIELDS) == unary(3)
    with pytest.raises(InputError, match=sentence):
        Layout(**FIELDS | wrong)


NUMBERS, ZEROS, SPACES = st.integers(0, 10**70), st.integers(0, 5), st.sampled_from(["", " ", "  "])


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


# ---- tables


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


@given(BASES, st.lists(st.integers(0, 10**20), min_size=1, max_size=12), st.integers(0, 2))
def test_a_row_is_the_running_sum_and_the_last_one_that_of_what_is_typed(
    base: int, numbers: list[int], zeros: int
) -> None:
    task, places = Task("sum-of-many", base), 80
    operands = [stack(task.rule, array(numbers[::-1], base, places)[None])]
    table = task.cells(operands)[0]
    assert integers(table % base, base) == [sum(numbers[::-1][: row + 1]) for row in range(len(numbers))]
    assert task.width_of(operands) == (places, len(numbers))
    *typed, total = (text(number, base) for number in (*numbers, sum(numbers)))
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


def test_the_worked_example_of_the_room_is_true() -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(problems, extraglobs={"Task": Task})
    assert len(example.examples) > 6 and runner.run(example).failed == 0
