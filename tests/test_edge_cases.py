"""Hard problems: digits of the right shape, and carries that run far."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from helpers import array
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.problems.edge_cases import KINDS, carried, carries, carry, longest_run, mostly, repeated, short, uniform
from abc_nb.problems.sampling import generator
from abc_nb.problems.tasks import Task

TASKS = ("successor", "addition", "n-by-1", "parity")
BASES = st.sampled_from([2, 3, 10, 16])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TASKS)
@given(st.integers(1, 12), BASES, st.integers(0, 99))
def test_every_kind_gives_digits_of_the_base_in_the_places_of_the_operands(
    name: str, kind: str, length: int, base: int, seed: int
) -> None:
    task = Task(name, 2 if name == "parity" else base)
    operands = KINDS[kind](task, length, 5, generator(seed))
    second = {"addition": [(5, length)], "n-by-1": [(5, 1)]}.get(name, [])
    assert [digits.shape for digits in operands] == [(5, length), *second]
    assert all(((digits >= 0) & (digits < task.base)).all() for digits in operands)


@given(st.integers(1, 40), BASES, st.integers(0, 99))
def test_a_long_carry_of_two_numbers_runs_through_half_of_the_places(length: int, base: int, seed: int) -> None:
    operands = carried(Task("addition", base), length, 20, generator(seed))
    runs = longest_run(carries(operands, base))
    assert (runs >= max(1, length // 2)).all()
    assert all(((digits >= 0) & (digits < base)).all() for digits in operands)


def test_long_carries_are_of_any_length_from_half_of_the_places_to_all() -> None:
    operands = carried(Task("addition"), 6, 500, generator(0))
    starts = carries(operands, 10)
    assert starts[:, 0].all(), "they begin at the units"
    assert {int(run) for run in longest_run(starts)} == {3, 4, 5, 6}


@pytest.mark.parametrize("name", ["successor", "n-by-1", "parity"])
def test_a_long_carry_of_one_number_is_a_run_of_the_highest_digit_from_the_units_on(name: str) -> None:
    task = Task(name)
    number = carried(task, 8, 500, generator(0))[0]
    runs = np.cumprod(number == task.base - 1, axis=1).sum(axis=1)
    assert runs.min() >= 4
    assert runs.max() == 8


@pytest.mark.parametrize(("digit", "expected"), [(0, 0), (-1, 9), (3, 3)])
def test_mostly_one_digit_is_nine_in_ten_and_the_rest_is_random(digit: int, expected: int) -> None:
    for number in mostly(digit)(Task("addition"), 20, 500, generator(0)):
        assert (number == expected).mean() == pytest.approx(0.91, abs=0.01)
        assert set(number.flatten().tolist()) == set(range(10))


def test_a_repeated_digit_fills_its_number_and_is_drawn_for_each() -> None:
    operands = repeated(Task("addition"), 7, 500, generator(0))
    for number in operands:
        assert (number == number[:, :1]).all()
        assert set(number[:, 0].tolist()) == set(range(10))
    assert (operands[0] != operands[1]).any()


def test_operands_of_different_lengths_have_zeros_in_front_and_keep_their_own_digits() -> None:
    first, second = (
        [np.max(np.nonzero(row)[0], initial=-1) + 1 for row in number]
        for number in short(Task("addition"), 6, 500, generator(0))
    )
    assert {int(places) for places in first} == {int(places) for places in second} == set(range(7))
    assert first != second
    digit = short(Task("n-by-1"), 6, 500, generator(0))[1]
    np.testing.assert_array_equal(digit, uniform(Task("n-by-1"), 6, 500, generator(0))[1])


@given(st.integers(1, 30), st.integers(1, 30), BASES, st.integers(0, 99))
def test_a_carry_of_two_numbers_runs_from_the_units_through_so_many_places(
    length: int, run: int, base: int, seed: int
) -> None:
    task, run = Task("addition", base), min(run, length)
    operands = carry(task, uniform(task, length, 20, generator(seed)), np.full((20, 1), run))
    assert carries(operands, base)[:, :run].all()
    assert all(((digits >= 0) & (digits < base)).all() for digits in operands)
    sums = operands[0] + operands[1]
    assert (sums[:, 0] == base).all() and (sums[:, 1:run] == base - 1).all()


def test_a_carry_of_one_number_is_highest_digits_and_leaves_the_rest() -> None:
    task = Task("successor")
    before = uniform(task, 9, 50, generator(1))
    (number,) = carry(task, before, np.full((50, 1), 4))
    assert (number[:, :4] == 9).all()
    np.testing.assert_array_equal(number[:, 4:], before[0][:, 4:])


@given(st.integers(1, 30), st.integers(3, 16), st.integers(0, 99))
def test_a_product_carries_from_every_place_of_the_run(length: int, base: int, seed: int) -> None:
    task = Task("n-by-1", base)
    number, factor = carry(task, uniform(task, length, 20, generator(seed)), np.full((20, 1), length))
    assert (number == base - 1).all()
    carried_on = np.zeros((20, 1), np.int64)
    for place in range(length):
        carried_on = (number[:, place : place + 1] * factor + carried_on) // base
        assert (carried_on > 0).all()
    assert (factor < base).all()


def test_in_base_2_a_factor_is_one_digit_still() -> None:
    task = Task("n-by-1", 2)
    _, factor = carry(task, uniform(task, 5, 20, generator(0)), np.full((20, 1), 5))
    assert (factor == 1).all()


@given(st.integers(2, 16), st.integers(0, 10**20), st.integers(0, 10**20))
def test_carries_are_those_of_schoolbook_addition(base: int, a: int, b: int) -> None:
    expected = [a % base**place + b % base**place >= base**place for place in range(1, 71)]
    assert carries([array([a], base, 70), array([b], base, 70)], base).tolist() == [expected]


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=5))
def test_longest_run_counts_true_in_a_row(flags: list[list[bool]]) -> None:
    expected = [max([len([*run]) for value, run in groupby(row) if value], default=0) for row in flags]
    assert longest_run(np.array(flags)).tolist() == expected
