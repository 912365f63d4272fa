"""Subtraction, the sum of many numbers and cycle navigation, against Python's integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import array, integers
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.bias.base import CLOSED
from abc_nb.bias.lines import Lines, on_lines
from abc_nb.common.errors import InputError
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.sums import SumOfMany
from abc_nb.problems.tasks import Task

BASES = st.integers(2, 16)
NUMBERS = st.integers(0, 10**40)


# ---- subtraction ------------------------------------------------------------------------------------


@given(NUMBERS, NUMBERS)
def test_the_larger_number_comes_first(first: int, second: int) -> None:
    larger, smaller = max(first, second), min(first, second)
    assert Task("subtraction").right_answer(f"{larger} - {smaller}") == str(larger - smaller)
    if larger > smaller:
        with pytest.raises(InputError, match="the second number is larger than the first; Subtraction takes a problem"):
            Task("subtraction").read(f"{smaller}-{larger}")


# ---- cycle navigation -------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=60))
def test_a_walk_around_the_ring_ends_at_the_sum_of_its_steps(steps: list[int]) -> None:
    task = Task("cycle-navigation")
    problem = " ".join(map(str, steps))
    assert task.right_answer(problem) == str(sum(steps) % 5)
    assert task.typed(task.read(problem)) == problem
    (operand,) = task.read(problem)
    places = [sum(steps[::-1][: number + 1]) % 5 for number in range(len(steps))]
    assert task.answer([operand]).tolist() == [places], "read from the right, as lists are"


def test_only_steps_are_drawn_and_read() -> None:
    task = Task("cycle-navigation")
    batch = Sampler(task).training_batch(0, 3, 200)
    assert set(batch.source[:, batch.layout.operands[0].columns].flatten().tolist()) <= {0, 1, 4}
    (operand,) = task.test_operands(4, 10**6, 4, np.random.default_rng(0))
    assert len(operand) == len(np.unique(operand, axis=0)) == 3**4
    rules = task.automaton()
    assert rules.digits[:, 0].tolist() == [0, 1, 4] and rules.states == 5
    with pytest.raises(InputError, match="'2' is no item; Cycle navigation takes a problem in steps -1, 0 and 1"):
        task.read("1 2")


# ---- the sum of many numbers ------------------------------------------------------------------------


@given(BASES, st.lists(NUMBERS, min_size=1, max_size=30))
def test_a_row_is_the_running_sum(base: int, numbers: list[int]) -> None:
    task = SumOfMany("sum-of-many", base)
    places = 140
    operands = task.written(array(numbers[::-1], base, places)[None])
    table = task.table(operands)[0]
    assert integers(table % base, base) == [sum(numbers[::-1][: row + 1]) for row in range(len(numbers))]
    assert table.max() < task.cells and task.width_of(operands) == (places, len(numbers))


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.integers(0, 2))
def test_a_typed_sum_is_that_of_integers(numbers: list[int], zeros: int) -> None:
    task, problem = Task("sum-of-many"), "+".join(map(str, numbers))
    assert task.right_answer(" + ".join("0" * zeros + str(number) for number in numbers)) == str(sum(numbers))
    assert task.typed(task.read(problem)) == problem


def test_a_sum_is_written_row_by_row_with_a_plus_before_each_number() -> None:
    task = SumOfMany("sum-of-many")
    operands = task.read("7+12+99")
    layout = task.layout(task.width_of(operands))
    assert "".join(task.text(task.source(operands, layout)[0].tolist())) == "$+07+12+99&"
    assert layout.row == 3 and layout.above == (0,) and layout.operands[0].rows
    tokens = task.answer(operands)[0].tolist()
    assert task.written_table(tokens, layout, operands).splitlines() == ["00 09 09", "01 11 11", "01 01 08"]
    assert task.write(tokens, layout) == "118"
    for wrong in ("1+", "", "1-2", "1+x"):
        with pytest.raises(InputError, match=r"Sum of many numbers takes a problem in numbers with a \+ between them"):
            task.read(wrong)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
def test_one_line_follows_the_numbers_cell_by_cell(digits: int, numbers: int, back: int) -> None:
    layout = Task("sum-of-many", 3).layout((digits, numbers))
    line = next(line for line in Lines.one_key_a_head(layout, 4, 1).lines if line.attention == "cross")
    keys = on_lines([replace(line, offset=back)], layout, "cross", line.head + 1)
    columns = layout.operands[0].columns
    for step in range(layout.target_length - 1):
        opened = keys.value[line.head, step, 0] > CLOSED
        if step >= back:
            assert opened and int(keys.index[step, 0]) == columns[step - back]
