"""The rules of this project's tasks, each for any base that it can have: numbers, lists and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from abc_nb.problems.digits import DIGITS, Digits, digit_count
from abc_nb.problems.rules import EDGE, Input, Rule, Step, cell, operand

Make = Callable[[int], Rule]
Words = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A rule for each of some bases."""

    make: Make
    bases: Sequence[int]
    program: str  # the command that knows it by name, or nothing where it is a form of texts alone


REGISTRY: dict[str, Family] = {}
PROGRAM = "abc-nb"


def known_as(name: str, bases: Sequence[int] = range(2, 17), program: str = PROGRAM) -> Callable[[Make], Make]:
    """Make a rule known by its name, so that experiments can be called by it."""

    def register(make: Make) -> Make:
        REGISTRY[name] = Family(cache(make), bases, program)  # the same rule at every call
        return REGISTRY[name].make

    return register


def carried(base: int, total: Callable[..., Any]) -> Step:
    """The digit of a total, and what is carried to the next place."""
    return lambda carry, *digits: (total(carry, *digits) % base, abs(total(carry, *digits) // base))


def running(combine: Callable[..., Any]) -> Step:
    """A running value, which is written after each item."""
    return lambda value, item: (combine(value, item),) * 2


# ---- numbers


@known_as("successor")
def successor(base: int) -> Rule:
    step = carried(base, lambda carry, digit: digit + carry)  # what is added is carried into the units
    return Rule("successor", step, (Input("place", base),), DIGITS[:base], start=1, title="Successor", example="999")


@known_as("addition")
def addition(base: int) -> Rule:
    step, inputs = carried(base, lambda carry, a, b: a + b + carry), (Input("place", base),) * 2
    return Rule("addition", step, inputs, DIGITS[:base], title="Addition", example="123+456", operator="+")


@known_as("subtraction")
def subtraction(base: int) -> Rule:
    step, inputs = carried(base, lambda borrow, a, b: a - b - borrow), (Input("place", base),) * 2
    words = Words(title="Subtraction", example="456-123", operator="-")
    return Rule("subtraction", step, inputs, DIGITS[:base], larger_first=True, **words)


def by_few(name: str, title: str, example: str, digits: int) -> Make:
    """A long number times a factor of `digits` digits. The product is up to `digits` places longer."""

    def make(base: int) -> Rule:
        step = carried(base, lambda carry, digit, factor: digit * factor + carry)
        inputs = (Input("place", base), Input("all", base, digits))
        return Rule(name, step, inputs, DIGITS[:base], grows=digits, title=title, example=example)

    return known_as(name)(make)


by_few("n-by-1", "N x 1", "123*4", 1)


@known_as("parity", bases=(2,))
def parity(base: int) -> Rule:
    """The scratchpad of Parity: y_1 = x_1, y_i = y_{i-1} xor x_i (v2/3 section 3.3); lengths count decimal digits."""
    step, words = running(lambda value, bit: value ^ bit), Words(title="Parity", example="1011", unit="decimal digits")
    return Rule("parity", step, (Input("place", 2),), DIGITS[:2], counted_in=10, said="last", **words)


by_few("n-by-2", "N x 2", "123*45", 2)
by_few("n-by-3", "N x 3", "123*456", 3)

# ---- forms of texts alone


@known_as("comparison", bases=range(3, 17), program="")
def comparison(base: int) -> Rule:
    """Whether the first of two numbers is equal (0), smaller (1) or larger (2), as far as their places were read."""

    def step(so_far: Any, a: Digits, b: Digits) -> tuple[Any, Any]:
        return (np.where(a == b, so_far, np.where(a < b, 1, 2)),) * 2

    words = Words(title="Comparison", example="123?456", operator="?", said="last")
    return Rule("comparison", step, (Input("place", base),) * 2, DIGITS[:base], **words)


@known_as("division", program="")
def division(base: int) -> Rule:
    """A number divided by a digit, from the highest place on; the state is the remainder, smaller than the divisor."""

    def step(remainder: Any, digit: Digits, divisor: Digits) -> tuple[Digits, Digits]:
        return np.divmod(base * remainder + digit, divisor)

    inputs = Input("place", base, from_left=True), Input("all", (*range(1, base),), 1)
    words = Words(title="Division by a digit", example="9876/4", operator="/", notation="symbols", grows=0)
    return Rule("division", step, inputs, DIGITS[:base], **words)


# ---- lists

COMBINE: dict[str, Callable[..., Any]] = {  # the operators of lists, with their base
    "SM": lambda x, y, base: (x + y) % base,
    "MAX": lambda x, y, base: np.maximum(x, y),
    "MIN": lambda x, y, base: np.minimum(x, y),
}


def list_of(name: str, operator: str) -> Make:
    """One operator over all items, written as a running value."""

    def make(base: int) -> Rule:
        step, start = running(lambda x, y: COMBINE[operator](x, y, base)), (base - 1) * (operator == "MIN")
        words = Words(
            title=f"ListOps {operator}", example="3 9 4", operator=operator, words=tuple(COMBINE), unit="items"
        )
        inputs = (Input("place", base),)
        return Rule(name, step, inputs, DIGITS[:base], (), start, notation="items", said="last", **words)

    return known_as(name)(make)


for operator in COMBINE:
    list_of(f"listops-{operator.lower()}", operator)


@known_as("cycle-navigation", bases=(5,))
def cycle_navigation(base: int) -> Rule:
    """Steps around a ring of five places, written as the place after each (Deletang et al. 2023, appendix A)."""
    step, back = running(lambda place, move: (place + move) % base), base - 1  # a step back is four steps on
    words = Words(title="Cycle navigation", example="1 -1 0 1", unit="steps", takes="steps -1, 0 and 1", said="last")
    inputs, typed = (Input("place", (0, 1, back)),), {"-1": DIGITS[back]}
    return Rule("cycle-navigation", step, inputs, DIGITS[:base], notation="items", typed=typed, **words)


# ---- tables


def with_carry(base: int, cells: int) -> tuple[str, ...]:
    """The names of cells that are a carry times the base and a digit."""
    return tuple(DIGITS[number // base] + DIGITS[number % base] for number in range(cells))


@known_as("n-by-n")
def n_by_n(base: int) -> Rule:
    """The product of two long numbers: row `r` adds `a * b_r` to the row above, which stands one column further left.

    Cell (r, c) is (digit of cell (r - 1, c + 1)) + a_c b_r + (carry of cell (r, c - 1)): its digit and its carry.
    """

    def step(state: int, a: Digits, b: Digits, above: Digits, before: Digits) -> tuple[Digits, int]:
        product = np.where(a == EDGE, 0, a * b)
        return product + np.where(above == EDGE, 0, above % base) + np.where(before == EDGE, 0, before // base), state

    def result(table: np.ndarray) -> Digits:
        """Column 0 from the top, then what is left of the last row."""
        return np.concatenate([table[:, :, 0], table[:, -1, 1:]], axis=1) % base

    inputs, reads = (Input("place", base), Input("row", base)), (operand(0), operand(1), cell(-1, 1), cell(0, -1))
    cells = Words(writes=with_carry(base, base**2), more_columns=1, result=result)
    words = Words(title="N x N", example="123*456", lengths="factors of any two lengths")
    return Rule("n-by-n", step, inputs, DIGITS[:base], reads, **cells, **words)


@known_as("sum-of-many")
def sum_of_many(base: int) -> Rule:
    """Row `r` is the sum of the last `r + 1` numbers, whose digits are written row by row as the table is.

    Each has zeros in front as far as the sum needs them, and a plus before them, in the last column. Cell (r, c) is the
    digit of number `r`, the digit above it and the carry of the cell before, together less than twice the base.
    """

    def step(state: int, digit: Digits, above: Digits, before: Digits) -> tuple[Digits, int]:
        total = np.where(digit == EDGE, 0, digit) + np.where(above == EDGE, 0, above % base)
        total = total + np.where(before == EDGE, 0, before // base)
        return np.where((digit == EDGE) & (total >= base), EDGE, total), state  # columns are enough for the sum

    plus, reads = base, (operand(0), cell(-1, 0), cell(0, -1))  # the first token after the digits
    cells = Words(writes=with_carry(base, 2 * base), more_columns=lambda rows: digit_count(rows, base))
    words = Words(title="Sum of many numbers", example="12+34+56", takes="numbers with a + between them")
    words |= {"result": lambda table: table[:, -1] % base, "lengths": "any number of numbers of any length"}
    return Rule("sum-of-many", step, (Input("cell", base, mark=plus),), DIGITS[:base], reads, **cells, **words)
