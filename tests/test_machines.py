"""Rules of machines and of more tasks beside plain Python, and the study that trains them."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abc_nb import Input, InputError, Rule, Sampler, Task, operand
from abc_nb.bias.lines import Lines, open_keys_of_lines
from abc_nb.problems import catalogue
from abc_nb.problems.machines import BUSY_BEAVER, turing
from abc_nb.specs.spec import specify_task
from abc_nb.taught import Taught
from audit import machines as study
from audit.rules import chomsky, universal

BITS = st.text("01", min_size=1, max_size=12)
DIGIT = st.text("01234", min_size=1, max_size=1)
NAMES = {"+": "plus", "-": "minus", "*": "times", "(": "open", ")": "close", "=": "equals"}


def answer(rule: Rule, problem: str) -> str:
    """The right answer; what is typed is read, and comes back as it was typed."""
    task = Task.of(rule)
    assert task.typed(task.read(problem)) == problem
    return task.right_answer(problem)


def spaced(symbols: Any) -> str:
    return " ".join(NAMES.get(symbol, symbol) for symbol in symbols)


# ---- the universal machine


@st.composite
def tag_systems(draw: st.DrawFn) -> dict[str, str]:
    """Up to three letters, each for a word that begins with it or with a later one, and one that halts."""
    letters = "abcd"[: draw(st.integers(2, 4))]
    rest = st.text(letters, max_size=2)
    return {letter: draw(st.sampled_from(letters[at:])) + draw(rest) for at, letter in enumerate(letters[:-1])}


def word_after(tag: dict[str, str], word: str, most: int) -> str | None:
    """The word on which a tag system halts, by a queue; None where that takes long or one letter is left."""
    for _ in range(most):
        if word[:1] not in tag:
            return word
        if len(word) < 2:
            return None
        word = word[2:] + tag[word[0]]
    return None


@settings(max_examples=30)
@given(tag_systems(), st.text("abcd", min_size=2, max_size=4))
def test_the_universal_machine_does_what_a_tag_system_does(tag: dict[str, str], word: str) -> None:
    halting = {letter for then in tag.values() for letter in then} - {*tag}
    assume(len(halting) == 1 and {*word} <= {*tag} | halting)
    final = word_after(tag, word, 5)
    assume(final is not None and len(final) > 1)
    rows = study.simulated(universal.UNIVERSAL, universal.tape_of(tag, word, 400))
    assert universal.word_of(tag, rows[-1]) == str(final)[2:] == universal.by_tag(tag, word)[2:]


@pytest.mark.parametrize("count", [3, 4])
def test_a_step_of_collatz_runs_on_the_universal_machine(count: int) -> None:
    rows = study.simulated(universal.UNIVERSAL, universal.tape_of(universal.COLLATZ, "a" * count, 150))
    assert 2 + len(universal.word_of(universal.COLLATZ, rows[-1])) == (
        count // 2 if count % 2 == 0 else (3 * count + 1) // 2
    )


def test_what_is_no_tag_system_or_has_not_halted_is_refused() -> None:
    for tag in ({"a": "a"}, {"a": "bc"}, {"a": "", "b": "c"}):
        with pytest.raises(InputError, match="a tag system needs one letter that stands for nothing"):
            universal.program(tag)
    with pytest.raises(InputError, match="b stands for a word whose first letter comes before it"):
        universal.program({"a": "bc", "b": "ac"})
    for word in ("a", "ax"):
        with pytest.raises(InputError, match="is no word of this tag system"):
            universal.tape_of(universal.COLLATZ, word, 0)
    with pytest.raises(InputError, match="has not halted"):
        universal.word_of(universal.COLLATZ, universal.tape_of(universal.COLLATZ, "aaaa", 9))
    with pytest.raises(InputError, match="becomes shorter than two letters"):
        universal.by_tag(universal.COLLATZ, "aa")
    with pytest.raises(InputError, match="the head leaves the tape"):
        study.simulated(universal.UNIVERSAL, universal.tape_of(universal.COLLATZ, "aaaa", 9))


@pytest.mark.parametrize("table", [BUSY_BEAVER, universal.UNIVERSAL])
def test_a_machines_table_of_cells_is_its_simulation(table: dict[str, str]) -> None:
    rule = turing(table)
    row = ["0"] * 20 + ["A0"] + ["0"] * 19 if table is BUSY_BEAVER else universal.tape_of({"a": "b"}, "aaaa", 40)
    rows = study.simulated(table, row, extra=2)[:200]
    task = Task.of(rule)
    problem = f"{' '.join(row)} * {' '.join('0' * len(rows))}"
    cells = task.cells(task.read(problem))[0, :, ::-1]
    assert [[task.digits[number] for number in numbers] for numbers in cells] == rows
    assert task.right_answer(problem).split() == rows[-1] and task.typed(task.read(problem)) == problem
    if table is BUSY_BEAVER:
        assert rows[107] == rows[-1] != rows[106] and "".join(rows[-1]).count("1") == 13


# ---- other rules


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (9, 40), (30, 12), (6, 6)])
@pytest.mark.parametrize("unknown", [None, False, True])
def test_rows_of_stacks_and_brackets_are_always_of_their_kind(unknown: bool | None, size: tuple[int, int]) -> None:
    """The rules write nothing in a cell below other rows, and a table with such a cell is an error."""
    task = Task.of(chomsky.stack_manipulation() if unknown is None else chomsky.brackets(unknown=unknown))
    operands = Sampler(task).draw(np.empty(0, np.int64), 500, size, np.random.default_rng(0))
    assert task.cells(operands).min() >= 0


@given(st.text("0123456789", min_size=1, max_size=12), st.integers(0, 3))
def test_passes_bring_items_in_order(items: str, further: int) -> None:
    assert answer(chomsky.sorting(), f"{items}*{'0' * (len(items) + 1 + further)}") == "".join(sorted(items))


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([2, 3, 10]))
def test_a_comparison_says_which_number_is_larger_and_a_division_has_its_quotient(a: int, b: int, base: int) -> None:
    first, second = np.base_repr(a, base), np.base_repr(b, base)
    said = Task.of(catalogue.comparison(max(base, 3))).right_answer(f"{first}?{second}")
    assert said == ("0" if a == b else "1" if a < b else "2")
    divisor = b % 9 + 1
    assert answer(catalogue.division(10), f"{a}/{divisor}") == str(a // divisor).zfill(len(str(a)))


@given(BITS, st.data())
def test_strings(bits: str, data: st.DataObject) -> None:
    assert answer(chomsky.even_pairs(), bits) == str(sum(a != b for a, b in pairwise(bits)) % 2)
    assert answer(chomsky.odds_first(), f"{bits}*{'0' * (len(bits) + 1)}") == bits[1::2] + bits[::2]
    assert answer(chomsky.duplicate_string(), f"{bits}*00") == bits * 2
    missing, twice = data.draw(st.integers(0, 2 * len(bits) - 1)), [*bits * 2]
    symbol, twice[missing] = twice[missing], "2"
    assert answer(chomsky.missing_duplicate(), f"{''.join(twice[: len(bits)])}={''.join(twice[len(bits) :])}") == symbol
    task, source = Task.of(chomsky.reverse_string()), Sampler(Task.of(chomsky.reverse_string())).typed_batch(bits)
    assert task.text(source.source[0].tolist()) == ["$", *bits, "&"]
    assert task.text(source.target[0].tolist()) == ["$", *reversed(bits), "&"]


@given(DIGIT, st.lists(st.tuples(st.sampled_from("+-*"), DIGIT), max_size=9))
def test_a_sum_of_products_has_its_value_modulo_five(first: str, rest: list[tuple[str, str]]) -> None:
    expression = first + "".join(sign + digit for sign, digit in rest)
    assert answer(chomsky.modular_arithmetic(), spaced(expression))[0] == str(eval(expression) % 5)


SUMS = st.recursive(
    st.builds("{}{}".format, st.sampled_from(["", "-"]), DIGIT) | st.builds("({})".format, DIGIT),
    lambda part: st.builds("({}{}{})".format, part, st.sampled_from("+-"), part),
    max_leaves=8,
)


@settings(max_examples=30)
@given(SUMS, st.data())
def test_a_sum_in_brackets_has_its_value_and_an_equation_its_solution(expression: str, data: st.DataObject) -> None:
    value, depth = eval(expression) % 5, " ".join("0" * (3 + expression.count("(")))
    assert answer(chomsky.brackets(), f"{depth} | plus {spaced(expression)}") == str(value)
    place = data.draw(st.sampled_from([at for at, sign in enumerate(expression) if sign.isdigit()]))
    equation = f"{expression[:place]}x{expression[place + 1 :]}={value}"
    solution = answer(chomsky.brackets(unknown=True), f"{depth} | plus {spaced(equation)}")
    assert solution == expression[place]
    assert [x for x in range(5) if eval(equation.partition("=")[0], {"x": x}) % 5 == value] == [int(solution)]


@given(BITS, st.lists(st.sampled_from(["pop", "push-0", "push-1"]), max_size=9))
def test_actions_change_a_stack(stack: str, actions: list[str]) -> None:
    left = [*stack]
    for action in actions:
        left = left[:-1] if action == "pop" else [*left, action[-1]]
    said = answer(chomsky.stack_manipulation(), f"{' '.join(stack)} | {' '.join(['pop', *actions])}").split()
    assert said == ["empty"] * (len(said) - len(left)) + left


def test_each_line_by_hand_shows_what_the_rule_reads_from_either_end() -> None:
    """An operand whose first place is its leftmost is followed to the right, along columns and along rows."""
    for left, right in product([False, True], repeat=2):
        inputs = Input("place", 2, from_left=left), Input("row", 2, from_left=right)
        rule = Rule(
            "both", lambda state, a, b: (a ^ b, state), inputs, "01", (operand(0), operand(1)), notation="symbols"
        )
        task = Task.of(rule)
        layout = task.layout((3, 4))
        lines = [line for line in Lines.one_key_per_head(layout, 2, 1).lines if line.attention == "cross"]
        for number, line in enumerate(lines):
            shown = open_keys_of_lines([line], layout, "cross", 2)
            places = [step % 3 if number == 0 else step // 3 for step in range(12)]
            assert shown.index[:12, 0].tolist() == layout.operands[number].columns[places].tolist()
        first, second = ("011" if left else "110"), ("0010" if right else "0100")
        assert task.cells(task.read(f"{first}*{second}"))[0].tolist() == [[0, 1, 1], [0, 1, 1], [1, 0, 0], [0, 1, 1]]


# ---- the study


def test_the_table_of_the_study_says_what_the_rules_say() -> None:
    rows = pd.read_csv(study.FILE)
    assert not rows.duplicated(["rule", "seed"]).any() and {*rows.rule} <= {*study.ENTRIES}
    assert rows.certified.eq(rows.margin > 0).all() and (rows.right[rows.certified] == 1).all()
    for name, of_rule in rows.groupby("rule"):
        assert of_rule.lines.eq(study.line_count(study.ENTRIES[name].make)).all()
    assert {*rows[rows.run > 0].rule} == {"busy-beaver", "busy-beaver-abc", "universal"}
    assert study.summary(["universal"], range(1, 4)).certified.tolist() == ["3 of 3"]


def test_the_study_trains_nothing_that_is_there_and_refuses_what_it_does_not_have() -> None:
    before = study.FILE.read_bytes()
    frame = study.study(["universal"], [0])
    assert study.FILE.read_bytes() == before and len(frame) == len(pd.read_csv(study.FILE))
    with pytest.raises(InputError, match="'rule-1' is no rule of the study: choose of rule-110"):
        study.study(["rule-1"])


def test_a_run_is_right_only_if_every_cell_is() -> None:
    """An untrained model's is not; one row that is no step of the machine is seen before the model is asked."""
    spec = specify_task(Task.of(turing(BUSY_BEAVER)), "abs-unpractised", "quick")
    taught = Taught(spec.build(0), spec.sampler, None, ())  # type: ignore[arg-type]
    assert study.right_cells(taught, study.busy_beaver()) == 0


@pytest.mark.slow
def test_a_rule_is_taught_and_measured() -> None:
    row = study.measured("duplicate_string", 0)
    assert row["certified"] and row["right"] == 1 and row["contexts"] == 18 and row["lines"] == 5
