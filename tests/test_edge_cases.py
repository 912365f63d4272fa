"""Hard problems: digits of the right shape, carries that run far, and a row for each kind."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
import torch
from helpers import TINY, array, build
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.analysis.further_tests import carry_runs, hard_cases, zeros_in_front
from abc_nb.model.transformer import Transformer
from abc_nb.problems import edge_cases
from abc_nb.problems.edge_cases import KINDS, carried, carries, carry, longest_run, mostly, repeated, short, uniform
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Batch, Sampler, generator
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import TEST_SEED, wilson

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


@pytest.mark.parametrize("arrangement", ["natural", "aligned"])
@pytest.mark.parametrize("name", TASKS)
def test_hard_cases_have_a_row_for_each_kind(name: str, arrangement: Arrangement) -> None:
    sampler = Sampler(Task(name), arrangement)
    model = build(TINY, sampler)
    found = hard_cases(model, sampler, 3, samples=10)
    assert list(found.kind) == [*KINDS]
    assert (found.samples == 10).all()
    assert found.accuracy.between(0, 1).all()
    for row in found.itertuples():
        assert (row.ci_low, row.ci_high) == pytest.approx(wilson(round(10 * row.accuracy), 10))
    assert found.equals(hard_cases(model, sampler, 3, samples=10)), "the same problems for every model"


def test_accuracy_of_hard_cases_is_that_of_the_models_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems of ten are said to be right; their batch holds the operands at the width of the length."""
    sampler = Sampler(Task("addition"))
    seen: list[Batch] = []

    def answered(model: Transformer, batch: Batch) -> Tensor:
        seen.append(batch)
        return torch.arange(10) < 3

    monkeypatch.setattr(edge_cases, "exact_match", answered)
    found = hard_cases(build(), sampler, 9, samples=10)
    assert found.accuracy.tolist() == pytest.approx([0.3] * len(KINDS))
    assert {batch.layout for batch in seen} == {sampler.test_batch(9, 2, 0).layout}


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


@pytest.mark.parametrize("name", ["successor", "addition"])
def test_carry_runs_have_a_row_for_each_length_of_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model is asked has the run; the wrong answers of one run are counted as such."""
    sampler, asked = Sampler(Task(name)), []

    def answered(model: Transformer, batch: Batch) -> Tensor:
        asked.append(batch)
        return torch.arange(8) < 8 - 2 * (len(asked) - 1)

    monkeypatch.setattr(edge_cases, "exact_match", answered)
    found = carry_runs(build(TINY, sampler), sampler, 20, (1, 5, 20), samples=8)
    assert found.run.tolist() == [1, 5, 20]
    assert found.accuracy.tolist() == [1.0, 0.75, 0.5]
    for row in found.itertuples():
        assert (row.ci_low, row.ci_high) == pytest.approx(wilson(round(8 * row.accuracy), 8))
    digits = asked[-1].operands(torch.arange(8), sampler.task)
    if name == "addition":
        assert (longest_run(carries(digits, 10)) >= 20).all()
    else:
        assert (digits[0][:, :20] == 9).all()


@pytest.mark.parametrize("regime", ["tight", "padded"])
@pytest.mark.parametrize("name", TASKS)
def test_zeros_in_front_leave_the_numbers_of_the_test_set(
    name: str, regime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand in the test set, and in one and in nine columns more; each is counted for itself."""
    sampler, asked = Sampler(Task(name), "aligned", regime), []

    def answered(model: Transformer, batch: Batch) -> Tensor:
        asked.append(batch)
        return torch.arange(8) < 2 * len(asked)

    monkeypatch.setattr(edge_cases, "exact_match", answered)
    found = zeros_in_front(build(), sampler, 9, (0, 1, 9), samples=8)
    tested = sampler.test_batch(9, 8, TEST_SEED)
    assert found["columns"].tolist() == [tested.layout.width + more for more in (0, 1, 9)]
    assert found["columns"].tolist() == [batch.layout.width for batch in asked]
    assert found.accuracy.tolist() == [0.25, 0.5, 0.75]
    assert torch.equal(asked[0].source, tested.source) and torch.equal(asked[0].target, tested.target)
    rows = torch.arange(8)
    for more, batch in zip((0, 1, 9), asked, strict=True):
        pairs = zip(batch.operands(rows, sampler.task), tested.operands(rows, sampler.task), strict=True)
        for wide, usual in pairs:
            wanted = usual if usual.shape[1] == 1 else np.pad(usual, [(0, 0), (0, more)])
            np.testing.assert_array_equal(wide, wanted)
        assert torch.equal(batch.target[:, :9], tested.target[:, :9])


@given(st.integers(2, 16), st.integers(0, 10**20), st.integers(0, 10**20))
def test_carries_are_those_of_schoolbook_addition(base: int, a: int, b: int) -> None:
    expected = [a % base**place + b % base**place >= base**place for place in range(1, 71)]
    assert carries([array([a], base, 70), array([b], base, 70)], base).tolist() == [expected]


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=5))
def test_longest_run_counts_true_in_a_row(flags: list[list[bool]]) -> None:
    expected = [max([len([*run]) for value, run in groupby(row) if value], default=0) for row in flags]
    assert longest_run(np.array(flags)).tolist() == expected
