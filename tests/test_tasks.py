"""Tasks: every result against Python integers, every encoding against the papers' examples."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from helpers import array, integers, places_of
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.common.errors import InputError
from abc_nb.problems.expressions import expected, read
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import OPERATIONS, Task
from abc_nb.problems.traces import DIGITS

BASES = st.integers(2, 16)
NUMBERS = st.integers(0, 10**40)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4)


def items(base: int) -> st.SearchStrategy[tuple[int, list[int]]]:
    return st.tuples(st.just(base), st.lists(st.integers(0, base - 1), min_size=1, max_size=30))


FOLDS = {
    "listops-sm": lambda x, y, base: (x + y) % base,
    "listops-max": lambda x, y, base: max(x, y),
    "listops-min": lambda x, y, base: min(x, y),
}


# ---- what is computed -------------------------------------------------------------------------------


@given(BASES, PAIRS)
def test_addition_is_integer_addition(base: int, pairs: list[tuple[int, int]]) -> None:
    places = max(places_of(a + b, base) for a, b in pairs)
    operands = [array(column, base, places) for column in zip(*pairs, strict=True)]
    assert integers(Task("addition", base).answer(operands), base) == [a + b for a, b in pairs]


@given(BASES, st.lists(NUMBERS, min_size=1, max_size=4))
def test_successor_is_one_more(base: int, numbers: list[int]) -> None:
    places = max(places_of(number + 1, base) for number in numbers)
    answer = Task("successor", base).answer([array(numbers, base, places)])
    assert integers(answer, base) == [number + 1 for number in numbers]


@given(BASES, PAIRS)
def test_n_by_1_is_integer_multiplication(base: int, pairs: list[tuple[int, int]]) -> None:
    numbers, digits = [a for a, _ in pairs], [b % base for _, b in pairs]
    places = max(places_of(a, base) for a in numbers) + 1
    answer = Task("n-by-1", base).answer([array(numbers, base, places), np.array(digits)[:, None]])
    assert integers(answer, base) == [a * b for a, b in zip(numbers, digits, strict=True)]


@given(BASES, PAIRS, st.sampled_from(["n-by-2", "n-by-3", "direct-n-by-n"]))
def test_longer_products_are_integer_multiplication(base: int, pairs: list[tuple[int, int]], name: str) -> None:
    task = Task(name, base)
    few = task.operation.second
    numbers, factors = [a for a, _ in pairs], [b % base**few if few else b for _, b in pairs]
    width = task.result_places(max(places_of(number, base) for number in (*numbers, *factors)))
    operands = [array(numbers, base, width), array(factors, base, few or width)]
    assert integers(task.answer(operands), base) == [a * b for a, b in zip(numbers, factors, strict=True)]


@st.composite
def nested_lists(draw: st.DrawFn) -> tuple[int, list[str], int]:
    """A base, a list in prefix notation, and its value by recursion."""
    base = draw(BASES)

    def element(depth: int) -> tuple[list[str], int]:
        if depth == 0 or draw(st.booleans()):
            digit = draw(st.integers(0, base - 1))
            return [DIGITS[digit]], digit
        operator = draw(st.sampled_from(["SM", "MAX", "MIN"]))
        (first, x), (second, y) = element(depth - 1), element(depth - 1)
        return [operator, *first, *second], FOLDS[f"listops-{operator.lower()}"](x, y, base)

    return base, *element(4)


@given(nested_lists())
def test_nested_lists_are_evaluated_from_the_inside(drawn: tuple[int, list[str], int]) -> None:
    base, symbols, value = drawn
    task = Task("direct-listops-nested", base)
    assert expected(task, " ".join(symbols)) == DIGITS[value]
    (tokens,) = read(task, " ".join(symbols))
    assert task.answer([tokens]).tolist() == [[value]]


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_parity_scratchpad_is_the_parity_of_the_bits_so_far(numbers: list[int]) -> None:
    bits = array(numbers, 2, 140)
    expected = [[(number % 2 ** (place + 1)).bit_count() % 2 for place in range(140)] for number in numbers]
    assert Task("parity").answer([bits]).tolist() == expected
    assert Task("parity-classification").answer([bits]).tolist() == [[number.bit_count() % 2] for number in numbers]


@pytest.mark.parametrize("name", FOLDS)
@given(BASES.flatmap(items))
def test_listops_scratchpad_is_the_fold_of_the_items_so_far(name: str, given_items: tuple[int, list[int]]) -> None:
    base, values = given_items
    expected = [reduce(lambda x, y: FOLDS[name](x, y, base), values[: i + 1]) for i in range(len(values))]
    assert Task(name, base).answer([np.array([values])]).tolist() == [expected]


@given(st.sampled_from(["successor", "addition", "n-by-1"]), BASES, st.integers(1, 60))
def test_largest_result_fits_the_width(name: str, base: int, length: int) -> None:
    task, largest = Task(name, base), base**length - 1
    largest_result = {"successor": largest + 1, "addition": 2 * largest, "n-by-1": largest * (base - 1)}[name]
    assert places_of(largest_result, base) <= task.width(length, "tight") <= task.width(length, "padded")


# ---- how problems are written -----------------------------------------------------------------------


def source_text(task: Task, operands: list[np.ndarray], width: int, arrangement: Arrangement = "natural") -> str:
    layout = task.layout(width, arrangement)
    return "".join(task.text(task.source(operands, layout)[0].tolist()))


def target_text(task: Task, operands: list[np.ndarray]) -> str:
    return "".join(task.text(task.target(operands)[0].tolist()))


@given(st.integers(0, 9999), st.integers(0, 9999), BASES)
def test_a_sum_as_others_write_it(first: int, second: int, base: int) -> None:
    """Operands' units first, and the answer's units last with a place for the carry."""
    width = max(places_of(each, base) for each in (first, second))
    task, operands = Task("addition", base), [array([each], base, width) for each in (first, second)]
    a, b = (np.base_repr(each, base).lower().rjust(width, "0") for each in (first, second))
    assert source_text(task, operands, width, "units-first") == f"${a[::-1]}+{b[::-1]}&"
    assert source_text(task, operands, width, "as-written") == f"${a}+{b}&"
    target = "".join(task.text(task.target(operands, task.layout(width, "as-written"))[0].tolist()))
    assert target == f"${np.base_repr(first + second, base).lower().rjust(width + 1, '0')}&"


def test_addition_is_written_as_in_the_paper() -> None:
    task, operands = Task("addition"), [array([123], 10, 4), array([748], 10, 4)]
    assert source_text(task, operands, 4) == "$0123+0748&"
    assert source_text(task, operands, 4, "aligned") == "$+00172438&"
    assert target_text(task, operands) == "$1780&"  # 0871, least significant digit first


def test_n_by_1_is_written_as_in_the_paper() -> None:
    task, operands = Task("n-by-1"), [array([123], 10, 4), np.array([[6]])]
    assert source_text(task, operands, 4) == "$0123*6&"
    assert source_text(task, operands, 4, "aligned") == "$*06162636&"
    assert target_text(task, operands) == "$8370&"


@pytest.mark.parametrize("arrangement", ["natural", "aligned"])
def test_unary_tasks_are_written_the_same_in_either_arrangement(arrangement: Arrangement) -> None:
    assert source_text(Task("successor"), [array([999], 10, 4)], 4, arrangement) == "$0999&"
    assert source_text(Task("parity"), [array([0b1011], 2, 4)], 4, arrangement) == "$1011&"
    assert source_text(Task("listops-sm"), [np.array([[4, 9, 3]])], 3, arrangement) == "$SM394&"


def test_targets_of_unary_tasks() -> None:
    assert target_text(Task("successor"), [array([999], 10, 4)]) == "$0001&"
    assert target_text(Task("parity"), [array([0b1011], 2, 4)]) == "$1001&"
    assert target_text(Task("parity-classification"), [array([0b1011], 2, 4)]) == "$1&"
    assert target_text(Task("listops-sm"), [np.array([[4, 9, 3]])]) == "$436&"


@given(BASES, NUMBERS, NUMBERS)
def test_operands_can_be_read_back_from_the_source(base: int, a: int, b: int) -> None:
    task, width = Task("addition", base), max(places_of(a, base), places_of(b, base))
    operands = [array([a], base, width), array([b], base, width)]
    natural, aligned = source_text(task, operands, width), source_text(task, operands, width, "aligned")
    assert [int(text, base) for text in natural.strip("$&").split("+")] == [a, b]
    assert [int(aligned[2:-1:2], base), int(aligned[3:-1:2], base)] == [a, b]


# ---- vocabulary, lengths, errors --------------------------------------------------------------------


def test_decimal_vocabulary_is_the_papers_fifteen_tokens_in_order() -> None:
    assert Task("addition").vocabulary == tuple("0123456789+*$&@")


@given(st.sampled_from([*OPERATIONS]), BASES)
def test_token_i_is_the_digit_i(name: str, base: int) -> None:
    task = Task(name, 2 if OPERATIONS[name].binary_digits else base)
    assert [int(symbol, 16) for symbol in task.vocabulary[: task.base]] == list(range(task.base))
    symbols, cells = (
        task.vocabulary[: task.first_cell],
        task.vocabulary[task.first_cell :],
    )  # a cell can look like a digit
    assert len(set(symbols)) == len(symbols) and len(set(cells)) == len(cells)
    assert [task.token(symbol) for symbol in symbols] == [*range(len(symbols))]
    assert task.text([*range(len(task.vocabulary))]) == [*task.vocabulary]
    assert bool(cells) == (task.trace is not None)


def test_lists_have_their_operators_as_extra_tokens() -> None:
    assert Task("listops-max").vocabulary == (*"0123456789+*$&@", "SM", "MAX", "MIN")


def test_parity_is_binary_and_another_base_is_an_error() -> None:
    assert Task("parity") == Task("parity", 2)
    with pytest.raises(InputError, match="base 7 is not possible: Parity is written in base 2"):
        Task("parity", 7)
    assert Task("parity").vocabulary == tuple("01+*$&@")


@given(st.integers(1, 80))
def test_parity_has_a_place_for_every_bit_of_a_decimal_number(length: int) -> None:
    assert Task("parity").places(length) == len(bin(10**length - 1)) - 2
    assert Task("successor").places(length) == length


@given(BASES)
def test_training_width_is_what_the_largest_result_of_training_numbers_needs(base: int) -> None:
    def results(number: int) -> dict[str, int]:
        few = {f"n-by-{k}": (base**k - 1) * number for k in (1, 2, 3)}
        return {"successor": number + 1, "addition": 2 * number, "direct-n-by-n": number**2, **few}

    for name, result in results(2**20 - 1).items():
        task, places = Task(name, base), places_of(result, base)
        assert task.training_width == places
        assert task.width(1, "tight") == max(places, task.result_places(1))
        assert task.training_limit == 2**20 - (places_of(results(2**20)[name], base) > places)


def test_in_every_base_a_sum_of_training_numbers_reaches_the_highest_place() -> None:
    """With one place more it would be zero in all of training, and the carry into it never seen."""
    for base in (2, 4, 8, 10, 16):
        batch = Sampler(Task("addition", base)).training_batch(0, 0, 2000)
        assert (batch.target[:, -2] > 0).any()


def test_training_fills_the_highest_place_where_results_do_not_grow() -> None:
    """The largest training number below 2^20 has 20 bits, and its highest one is 1."""
    assert Task("parity").training_width == len(f"{2**20 - 1:b}") == 20
    assert [Task("parity").width(length, "tight") for length in (1, 6, 7)] == [20, 20, len(f"{10**7 - 1:b}")]
    assert Task("parity-classification").training_width == 20
    assert Task("listops-max").training_width == len(str(2**20 - 1))


def test_widths_of_the_padded_regime_are_those_of_sixty_digits() -> None:
    assert [Task("addition").width(length, "padded") for length in (1, 6, 60, 61)] == [61, 61, 61, 62]
    assert [Task("addition").width(length, "padded-20") for length in (1, 6, 20, 21, 60)] == [21, 21, 21, 22, 61]
    assert Task("parity").width(6, "padded") == len(bin(10**60)) - 2
    assert Task("listops-sm").width(6, "padded") == 6  # a zero in front would be an item


def test_unknown_task_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown task 'division': choose one of successor, addition"):
        Task("division")


@pytest.mark.parametrize("base", [-1, 1, 17, True, False, 2.5])
def test_base_outside_two_to_sixteen_is_an_error(base: int) -> None:
    with pytest.raises(InputError, match=f"base {base} is not supported"):
        Task("addition", base)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_task_without_a_base_has_its_usual_one(name: str) -> None:
    usual = 2 if name.startswith("parity") else 10
    assert Task(name).base == usual
    assert Task(name) == Task(name, usual)


@pytest.mark.parametrize("name", ["parity", "parity-classification"])
@pytest.mark.parametrize("base", [10, 3, 17, 1])
def test_parity_is_written_in_base_two_and_in_no_other(name: str, base: int) -> None:
    """Also where the other base is ten, which most tasks have."""
    with pytest.raises(InputError) as caught:
        Task(name, base)
    sentence = f"base {base} is not possible: {OPERATIONS[name].title} is written in base 2"
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["addition", "parity", "listops-max"])
@pytest.mark.parametrize("length", [0, -3])
def test_length_below_one_is_an_error(name: str, length: int) -> None:
    with pytest.raises(InputError, match=f"length {length} is not possible"):
        Task(name).places(length)
