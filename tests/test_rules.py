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
from abc_nb.bias.base import CLOSED
from abc_nb.bias.lines import Line, Lines
from abc_nb.certificates.certify import contexts_of
from abc_nb.certificates.fingerprints import determined
from abc_nb.common import paths
from abc_nb.common.config import from_data, to_data
from abc_nb.problems.automaton import automaton_of
from abc_nb.problems.machines import elementary, turing
from abc_nb.problems.rules import EDGE
from abc_nb.problems.tasks import REGISTRY
from abc_nb.problems.text import Pattern, spans_in
from abc_nb.specs.spec import specify_task
from abc_nb.taught import Widest, read_out, spec_of

README = (paths.ROOT / "README.md").read_text()
ROWS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def rule_60(state: Any, left: Any, here: Any, first: Any) -> tuple[Any, Any]:
    return np.where(here < 0, first, np.maximum(left, 0) ^ here), state


READS = (cell(-1, 1), cell(-1, 0), operand(0))
RULE_60 = Rule("my-60", rule_60, (Input("place", 2), Input("row", 1)), "01", READS, notation="symbols")


def test_no_public_name_becomes_a_module_once_it_was_used() -> None:
    for name in abc_nb.__all__:
        assert not isinstance(getattr(abc_nb, name), ModuleType) and not isinstance(getattr(abc_nb, name), ModuleType)


def test_lines_are_read_out_where_they_determine_the_rule() -> None:
    """A model under lines by hand looks along these; an untrained plain one along none that are enough."""
    spec = spec_of(RULE_60)
    assert spec.identity.task == RULE_60.name
    batch = Widest(spec.task, width_count=3).calibration_batch(0, 50)
    assert batch.layout.row_length == 6 and isinstance(spec.model.bias, Lines)
    by_hand = {replace(line, value=0.0) for line in spec.model.bias.lines if line.attention != "source"}
    assert {replace(line, value=0.0) for line in read_out(spec, spec.build(0), batch).lines} == by_hand
    plain = specify_task(spec.task, "vanilla", "quick").build(0)
    with pytest.raises(InputError, match="the lines of a plain model do not determine my-60"):
        read_out(spec, plain, batch)


def problem_of(first: list[int], rows: int) -> str:
    return f"{''.join(map(str, first))}*{'0' * rows}"


def life(number: int, first: list[int], rows: int) -> list[list[int]]:
    """The rows of an elementary automaton, cell by cell."""
    rows_so_far = [first]
    while len(rows_so_far) < rows:
        padded = [0, *rows_so_far[-1], 0]
        cases = [4 * padded[at] + 2 * padded[at + 1] + padded[at + 2] for at in range(len(first))]
        rows_so_far.append([number >> case & 1 for case in cases])
    return rows_so_far


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
        Rule("odd", rule_60, inputs, "01", reads)


@pytest.mark.parametrize("notation", ["number", "symbols"])
@pytest.mark.parametrize("alphabet", ["01", "0123456789"])
def test_a_rule_that_writes_outside_of_its_alphabet_is_named_before_it_is_trained(notation: Any, alphabet: str) -> None:
    """As one that forgets to take a sum modulo the base."""
    place, most = Input("place", len(alphabet)), len(alphabet) - 1
    odd = Rule("odd", lambda carry, *digits: (carry + sum(digits), carry), (place, place), alphabet, notation=notation)
    with pytest.raises(InputError, match=f"odd writes token {most + 1}, but its alphabet has tokens 0 to {most}"):
        spec_of(odd)
    for beyond, said in ((2, "odd writes cell 3, but it has cells 0 to 1"), (-2, "odd writes no token in a cell")):
        table = Rule("odd", lambda _, here, more=beyond: (here + more, _), (PLACE, ROW), "01", (operand(0),))
        with pytest.raises(InputError, match=said):
            Task.of(table).right_answer("1*1")


def test_a_rule_that_treats_every_second_place_in_another_way_is_refused_before_it_is_trained() -> None:
    """As Luhn's checksum, which doubles every second digit; the token says the sum so far, and which comes next."""

    def luhn(state: Any, digit: np.ndarray) -> tuple[Any, Any]:
        added = np.where(state < 10, digit, 2 * digit - 9 * (digit > 4))
        return ((state % 10 + added) % 10 + 10 * (state < 10),) * 2

    rule = Rule("luhn", luhn, (Input("place", 10),), "0123456789abcdefghij", notation="symbols", said="last")
    with pytest.raises(InputError, match="alternates from place to place for ever; let a token stand for as many"):
        spec_of(rule)


def test_equal_symbols_typed_names_and_names_of_tasks_are_told_apart() -> None:
    """Lines at one of two equal symbols, as in `1+2+3`, open that one; of these the last keeps the symbol's name."""

    def add(carry: Any, *digits: Any) -> tuple[Any, Any]:
        return (sum(digits) + carry) % 10, (sum(digits) + carry) // 10

    three = Task.of(Rule("three", add, (Input("place", 10),) * 3))
    layout = three.layout(4)
    for span, column in (("* 2", 5), ("*", 10)):
        line = Line("cross", 0, 0, "vertical", span, 0, 0.0)
        keys = Lines(1, (line,), empty="closed").open_keys(layout, "cross", 0)
        assert keys is not None and {*keys.index[keys.value[0] > CLOSED].tolist()} == {column}
    with pytest.raises(InputError, match="cannot be written into a text"):
        Pattern(three, "{a}+{b}+{c}=")
    items = Task.of(Rule("items", add, (Input("place", 10),) * 2, notation="items", typed={"-1": "4"}))
    operands = [np.array([[4, 0]]), np.array([[0, 2]])]
    assert items.typed(operands) == "0 -1 * 2 0"
    assert all(map(np.array_equal, items.read("0 -1 * 2 0"), operands))
    with pytest.raises(InputError, match="parity is the name of a task of this package: give the rule another one"):
        spec_of(Rule("parity", add, (Input("place", 10),)))


@pytest.mark.slow
def test_the_rule_of_the_readme_is_taught_and_right_at_every_length() -> None:
    names: dict[str, Any] = {}
    (code,) = (block for block in re.findall("```python\n(.*?)```", README, re.DOTALL) if "Rule(" in block)
    exec(code, names)
    taught = names["taught"]
    assert taught.certificate.certified and f"certified, {taught.certificate.contexts:,} contexts" in code
    typed, said = re.findall(r'answer\("(\d+)"\)  # \'(\d)\'', code)[0]
    assert taught.answer(typed) == said
    for number in (typed, "0", "7", "006", *("1234567890" * count for count in (1, 100))):
        assert int(taught.answer(number)) == int(number) % 7


@pytest.mark.slow
def test_a_checksum_of_two_digits_a_token_is_taught_and_right_at_every_length() -> None:
    """Luhn's, of card numbers: every second digit is doubled, and with two in a token no place differs from another."""

    def step(total: Any, pair: Any) -> tuple[Any, Any]:
        doubled = 2 * (pair // 10)
        total = (total + doubled - 9 * (doubled > 9) + pair % 10) % 10
        return total, total

    pairs = [f"{pair:02}" for pair in range(100)]
    taught = abc_nb.teach(
        Rule("checksum", step, (Input("place", 100),), pairs, notation="items", said="last"), steps=300
    )
    assert taught.certificate.certified and taught.answer("45 39 57 87 63 62 14 86") == "00"
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
    operands = [rng.integers(task.base, size=(4000, operand_input.digits or 5)) for operand_input in rule.inputs]
    operands = [np.concatenate([digits, np.full((1, digits.shape[1]), task.base - 1)]) for digits in operands]
    wide = [np.pad(digits, [(0, 0), (0, 9)]) if digits.shape[1] == 5 else digits for digits in operands]
    written = rule.answer_in_a_row(wide)[:, 5:]
    ends = written.any(0) if name in ("successor", "addition", "n-by-1", "n-by-2") else np.zeros(9, bool)
    assert automaton_of(rule).grows == ends.sum() <= task.grows


def test_a_readers_rule_is_data_and_stands_in_a_text() -> None:
    """Another rule of a registered name would be given that task's runs, and is refused."""

    def double(carry: Any, digit: Any) -> tuple[Any, Any]:
        return (2 * digit + carry) % 10, (2 * digit + carry) // 10

    task, addition = Task.of(Rule("double", double, (Input("place", 10),))), Task("addition")
    assert task.grows == 1 and task.right_answer("789") == "1578" and task.example == "012"
    assert to_data(task) == {"type": "Task", "name": "double", "base": 10}
    assert from_data(to_data(addition), (Task,)) == addition == Task.of(addition.rule)
    with pytest.raises(InputError, match="addition is the name of a task of this package"):
        Task.of(Rule("addition", double, (Input("place", 10),)))
    assert pickle.loads(pickle.dumps(Task.of(RULE_60))).rule.name == "my-60"
    pattern = Pattern(task, "double({a})=")
    (span,) = spans_in("double(789)=", [pattern])
    assert pattern.answer(span.operands) == "8751"
    for wrong in (Task.of(RULE_60), Task("n-by-n"), Task("direct-n-by-n"), Task("listops-sm"), Task("addition", 11)):
        with pytest.raises(InputError, match="cannot be written into a text"):
            Pattern(wrong, "{a}+{b}=")


WRONG_RULES: list[tuple[dict[str, Any], str]] = [
    ({"notation": "itms"}, "'itms' is not possible as notation of odd: choose number or items or symbols"),
    ({"said": "lst"}, "'lst' is not possible as said of odd: choose number or last"),
    ({"alphabet": "0", "inputs": (Input("place", 1),)}, "the alphabet of odd has two symbols or more"),
    ({"alphabet": "ACGT", "inputs": (Input("place", 4),)}, "the alphabet of odd has .* of numbers those from 0 on"),
    ({"alphabet": ["a", "a b"], "inputs": (Input("place", 2),), "notation": "items"}, "odd have no spaces"),
    ({"writes": range(2**15), "notation": "items"}, "odd has 32,783 tokens, and 32,768 at most are possible"),
    *(
        ({"inputs": (Input("place", 2),)} | change, "the tokens of odd must differ from each other, from its operator")
        for change in ({"operator": "1"}, {"alphabet": "00"}, {"alphabet": "0+"}, {"alphabet": "0$"})
    ),
    ({"inputs": (Input("place", 0),)}, "an operand of odd has tokens"),
    ({"inputs": (Input("place", 10), Input("all", 10))}, "an operand of odd has tokens, and digits if"),
    ({"inputs": (Input("place", 12),), "notation": "items"}, "tokens that are not in its alphabet of 10"),
    ({"inputs": (Input("place", (3, 4)),)}, "the numbers of odd have all its digits"),
    ({"inputs": (Input("place", 10, from_left=True),)}, "the numbers of odd .* are read from the right"),
    ({"inputs": (Input("place", 10), Input("row", 10)), "reads": (operand(0),), "more_columns": abs}, "odd is no rule"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG_RULES)
def test_a_rule_that_cannot_be_is_refused_in_a_sentence(changed: dict[str, Any], said: str) -> None:
    """Also where nobody would be told before a certificate speaks of problems that there are not."""
    with pytest.raises(InputError, match=said):
        Rule(
            **{"name": "odd", "step": lambda state, *read: (read[0], state), "inputs": (Input("place", 10),)} | changed
        )


def two_states(state: Any, digit: Any) -> tuple[Any, Any]:
    return digit, (state, digit)


def branching(state: Any, digit: Any) -> tuple[Any, Any]:
    return (digit if digit > 4 else state), state


@pytest.mark.parametrize("step", [two_states, branching, lambda state, digit: (digit / 2, state), lambda *_: (1, 2, 3)])
def test_a_step_that_takes_no_arrays_is_refused_in_a_sentence(step: Any) -> None:
    with pytest.raises(InputError, match="the step of odd has to take a state and arrays"):
        spec_of(Rule("odd", step, (Input("place", 10),)))


@pytest.mark.parametrize("said", ["number", "last"])
def test_a_rule_under_which_zeros_in_front_mean_something_is_no_rule_of_numbers(said: Any) -> None:
    """As nines' complement: that of 12 is 87, and with seven places 9999987."""
    steps = {
        "number": lambda state, digit: (9 - digit, state),
        "last": lambda state, digit: (np.minimum(state + 1, 9),) * 2,
    }
    rule = Rule("odd", steps[said], (Input("place", 10),), said=said)
    with pytest.raises(InputError, match="zeros in front of a number change what odd writes"):
        spec_of(rule)
    spec_of(replace(rule, notation="symbols"))


def test_what_cannot_be_learned_or_practised_is_not_trained() -> None:
    """The end of `abab`, whose automaton has states that the match alone does not show; written, they are learned."""
    search = np.array([[1, 0], [1, 2], [3, 0], [1, 4], [3, 0]])
    seen = Rule(
        "search", lambda s, c: (search[s, c] == 4, search[s, c]), (Input("place", 2),), "ab", notation="symbols"
    )
    with pytest.raises(InputError, match="no model can learn search: what a token can look at does not decide it"):
        abc_nb.teach(seen)
    written = replace(seen, step=lambda s, c: (search[s, c],) * 2, alphabet="ab234", name="states")
    assert determined(contexts_of(spec_of(written).model, spec_of(written).sampler))
    five = Rule("five", lambda state, *digits: (sum(digits) % 10, state), (Input("place", 10),) * 5)
    with pytest.raises(InputError, match="no practice: there are 20,000,200,000 contexts"):
        abc_nb.teach(five)
    for wrong in ({"rule": "five"}, {"seed": -1}, {"steps": 0}, {"rounds": -1}):
        with pytest.raises(InputError, match="give a Rule, a seed from 0 on"):
            abc_nb.teach(**{"rule": five} | wrong)


def test_a_table_of_one_column_is_read_without_its_end() -> None:
    task = Task.of(elementary(110))
    assert task.right_answer("1*000") == "1"
    assert task.write([1, 1, task.token("&")], task.layout((1, 2))) == "1"


def test_lists_of_other_lengths_are_no_problem_of_one_row() -> None:
    place = Input("place", (1, 2, 3))
    task = Task.of(Rule("odd", lambda s, a, b: ((a + 2 * b) % 4, s), (place, place), "abcd", notation="symbols"))
    assert task.right_answer("bcd*dcb") == "dcb"
    with pytest.raises(InputError, match="its operands have 3 and 1 symbols, and need as many"):
        task.right_answer("bcd*d")


def test_contexts_with_more_tokens_than_a_byte_has_values() -> None:
    """A model that reads token 280 as 281 is wrong; numbers of eight bits took both for lower ones."""
    rule = Rule(
        "odd", lambda _, item: (item % 2, 0), (Input("place", 300),), [f"{n:03}" for n in range(300)], notation="items"
    )
    spec = spec_of(rule)
    contexts = contexts_of(spec.model, spec.sampler)
    tokens = {token for shape in contexts.shapes for block in contexts.blocks(shape) for token in block.values.flat}
    assert tokens >= {*range(300)}


@pytest.mark.parametrize(("more", "slanted"), [(0, False), (0, True), (1, True), (3, False)])
def test_a_table_that_is_wider_than_its_operand_shows_all_its_shapes_in_small_sizes(more: int, slanted: bool) -> None:
    def step(state: Any, first: Any, below: Any, before: Any) -> tuple[Any, Any]:
        return np.where(first == EDGE, 1, first) + 2 * (below == EDGE) * (before == EDGE), state

    reads = operand(0), cell(-1, 0), cell(0, -1)
    rule = Rule(
        "odd", step, (PLACE, ROW), "01", reads, writes="abcd", more_columns=more, slanted=slanted, notation="symbols"
    )
    spec = spec_of(rule)
    contexts = contexts_of(spec.model, spec.sampler)
    for width in ((1, 20), (2, 17), (21, 1), (19, 16)):
        steps = range(spec.task.layout(width).target_length)
        assert {contexts.shape((width, step)) for step in steps} <= {*contexts.shapes}
