"""Rules: a reader's in a few lines, machines against plain loops, and what is computed from a rule instead of said."""

import pickle
import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abc_nb
from abc_nb import Input, InputError, Rule, Task, cell, operand
from abc_nb.bias.lines import Lines
from abc_nb.common import paths
from abc_nb.common.config import from_data, to_data
from abc_nb.problems.automaton import automaton_of
from abc_nb.problems.machines import elementary, turing
from abc_nb.problems.spans import Pattern, spans_in
from abc_nb.problems.tasks import REGISTRY
from abc_nb.specs.spec import specify_task
from abc_nb.taught import Widest, read_out, spec_of

README = (paths.ROOT / "README.md").read_text()
ROWS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def rule_110(state: Any, left: Any, here: Any, right: Any, first: Any) -> tuple[Any, Any]:
    case = 4 * np.maximum(left, 0) + 2 * np.maximum(here, 0) + np.maximum(right, 0)
    return np.where(here < 0, first, 110 >> case & 1), state


READS = (cell(-1, 1), cell(-1, 0), cell(-1, -1), operand(0))
RULE_110 = Rule("my-110", rule_110, (Input("place", 2), Input("row", 1)), "01", READS, notation="symbols")


def test_no_public_name_becomes_a_module_once_it_was_used() -> None:
    for name in abc_nb.__all__:
        assert not isinstance(getattr(abc_nb, name), ModuleType) and not isinstance(getattr(abc_nb, name), ModuleType)


def test_lines_are_read_out_where_they_determine_the_rule() -> None:
    """A model under lines by hand looks along these; an untrained plain one along none that are enough."""
    spec = spec_of(RULE_110)
    assert spec.identity.task == RULE_110.name
    batch = Widest(spec.task, width_count=3).calibration_batch(0, 50)
    assert batch.layout.row_length == 6 and isinstance(spec.model.bias, Lines)
    by_hand = {replace(line, value=0.0) for line in spec.model.bias.lines if line.attention != "source"}
    assert {replace(line, value=0.0) for line in read_out(spec, spec.build(0), batch).lines} == by_hand
    plain = specify_task(spec.task, "vanilla", "quick").build(0)
    with pytest.raises(InputError, match="the lines of a plain model do not determine my-110"):
        read_out(spec, plain, batch)


def problem_of(first: list[int], rows: int) -> str:
    return f"{''.join(map(str, first))}*{'0' * rows}"


def life(number: int, first: list[int], rows: int) -> list[list[int]]:
    """The rows of an elementary automaton, cell by cell."""
    found = [first]
    while len(found) < rows:
        padded = [0, *found[-1], 0]
        cases = [4 * padded[at] + 2 * padded[at + 1] + padded[at + 2] for at in range(len(first))]
        found.append([number >> case & 1 for case in cases])
    return found


@given(st.integers(0, 255), ROWS, st.integers(1, 9))
def test_an_elementary_automaton_is_its_definition(number: int, first: list[int], rows: int) -> None:
    task, problem = Task.of(elementary(number)), problem_of(first, rows)
    assert task.right_answer(problem) == "".join(map(str, life(number, first, rows)[-1]))
    assert task.typed(task.read(problem)) == problem
    cells = task.cells(task.read(problem))[0, :, ::-1].tolist()
    assert cells == life(number, first, rows)


def test_what_is_no_machine_is_refused() -> None:
    for table in ({}, {"A": "1RB"}, {"A0": "1XB"}, {"A0": "1R"}):
        with pytest.raises(InputError, match="a machine has entries like"):
            turing(table)
    with pytest.raises(InputError, match="rule 256 is not possible"):
        elementary(256)


PLACE, ROW = Input("place", 2), Input("row", 2)


@pytest.mark.parametrize(
    ("inputs", "reads"),
    [
        ((), ()),
        ((Input("all", 2, 1),), ()),
        ((Input("all", 2, 1), PLACE), ()),
        ((PLACE,), (cell(0, -1),)),  # one row hands on a state
        ((PLACE, ROW), ()),
        ((ROW, PLACE), (operand(0),)),
        ((ROW,), (operand(0),)),
        ((PLACE, ROW), (cell(0, 0),)),
        ((PLACE, ROW), (cell(0, 1),)),  # not written yet
        ((PLACE, ROW), (cell(-2, 0),)),  # no line shows it
        ((PLACE, ROW), (operand(2),)),
        ((Input("cell", 2), ROW), (operand(0),)),
    ],
)
def test_what_is_no_rule_is_refused(inputs: tuple[Input, ...], reads: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="odd is no rule: in one row"):
        Rule("odd", rule_110, inputs, "01", reads)


def test_tokens_that_cannot_be_told_apart_are_refused() -> None:
    for alphabet in ("00", "0+", "0$"):
        with pytest.raises(InputError, match="the tokens of odd must differ"):
            Rule("odd", rule_110, (PLACE,), alphabet)


def test_a_rule_that_writes_no_token_is_named() -> None:
    odd = Rule("odd", lambda _, here: (np.full_like(here, -1), _), (PLACE, ROW), "01", (operand(0),))
    with pytest.raises(InputError, match="odd writes no token in a cell"):
        Task.of(odd).right_answer("1*1")


@pytest.mark.parametrize("notation", ["number", "symbols"])
@pytest.mark.parametrize("alphabet", ["01", "0123456789"])
def test_a_rule_that_writes_outside_of_its_alphabet_is_named_before_it_is_trained(notation: Any, alphabet: str) -> None:
    """As one that forgets to take a sum modulo the base."""
    place, most = Input("place", len(alphabet)), len(alphabet) - 1
    odd = Rule("odd", lambda carry, *digits: (carry + sum(digits), carry), (place, place), alphabet, notation=notation)
    with pytest.raises(InputError, match=f"odd writes token {most + 1}, but its alphabet has tokens 0 to {most}"):
        spec_of(odd)
    table = Rule("odd", lambda _, here: (here + 2, _), (PLACE, ROW), "01", (operand(0),))
    with pytest.raises(InputError, match="odd writes cell 3, but it has cells 0 to 1"):
        Task.of(table).right_answer("1*1")


def test_a_rule_that_treats_every_second_place_in_another_way_is_refused_before_it_is_trained() -> None:
    """As Luhn's checksum, which doubles every second digit; the token says the sum so far, and which comes next."""

    def luhn(state: Any, digit: np.ndarray) -> tuple[Any, Any]:
        added = np.where(state < 10, digit, 2 * digit - 9 * (digit > 4))
        return ((state % 10 + added) % 10 + 10 * (state < 10),) * 2

    rule = Rule("luhn", luhn, (Input("place", 10),), "0123456789abcdefghij", notation="symbols", said="last")
    with pytest.raises(InputError, match="alternates from place to place for ever; let a token stand for as many"):
        spec_of(rule)


@pytest.mark.slow
def test_the_checksum_of_the_readme_is_taught_and_right_at_every_length() -> None:
    """Two digits in one token: then no place differs from another."""
    names: dict[str, Any] = {"abc_nb": abc_nb}
    (code,) = (block for block in re.findall("```python\n(.*?)```", README, re.DOTALL) if "Rule(" in block)
    exec(code, names)
    taught = names["taught"]
    assert taught.certificate.certified and f"certified, {taught.certificate.contexts:,} contexts" in code
    problem, said = re.findall(r'answer\("(.*)"\)  # \'(\d+)\'', code)[0]
    assert taught.answer(problem) == said == "00"
    for count in (1, 8, 9, 500):
        digits = np.random.default_rng(count).integers(10, size=2 * count)
        right = sum(int(d) if i % 2 == 0 else sum(divmod(2 * int(d), 10)) for i, d in enumerate(digits[::-1])) % 10
        assert int(taught.answer(" ".join(f"{a}{b}" for a, b in digits.reshape(-1, 2)))) == right


@pytest.mark.parametrize("name", ["successor", "addition", "n-by-1", "n-by-2", "parity", "listops-max"])
@pytest.mark.parametrize("base", [2, 3])
def test_how_much_a_result_grows_follows_from_the_rule(name: str, base: int) -> None:
    """It is what the largest operands of some places need, beside which no others need more."""
    task = Task(name, 2 if name == "parity" else base)
    rule = REGISTRY[name].make(task.base)
    rng = np.random.default_rng(0)
    operands = [rng.integers(task.base, size=(4000, given.digits or 5)) for given in rule.inputs]
    operands = [np.concatenate([digits, np.full((1, digits.shape[1]), task.base - 1)]) for digits in operands]
    wide = [np.pad(digits, [(0, 0), (0, 9)]) if digits.shape[1] == 5 else digits for digits in operands]
    written = rule.answer_in_a_row(wide)[:, 5:]
    ends = written.any(0) if name in ("successor", "addition", "n-by-1", "n-by-2") else np.zeros(9, bool)
    assert automaton_of(rule).grows == ends.sum() <= task.grows


def test_a_readers_rule_is_data_and_stands_in_a_text() -> None:
    """Known by its name to nobody, it is told apart from one that is; only registered ones are read back from data."""

    def double(carry: Any, digit: Any) -> tuple[Any, Any]:
        return (2 * digit + carry) % 10, (2 * digit + carry) // 10

    task, known = Task.of(Rule("addition", double, (Input("place", 10),))), Task("addition")
    assert task != known and task.grows == 1 and task.right_answer("789") == "1578" and task.example == "012"
    assert to_data(task) == to_data(known) == {"type": "Task", "name": "addition", "base": 10}
    assert from_data(to_data(known), (Task,)) == known
    assert pickle.loads(pickle.dumps(Task.of(RULE_110))).rule.name == "my-110"
    pattern = Pattern(task, "double({a})=")
    (span,) = spans_in("double(789)=", [pattern])
    assert pattern.answer(span.operands) == "8751"
    for wrong in (Task.of(RULE_110), Task("n-by-n"), Task("direct-n-by-n"), Task("listops-sm"), Task("addition", 11)):
        with pytest.raises(InputError, match="cannot be written into a text"):
            Pattern(wrong, "{a}+{b}=")
