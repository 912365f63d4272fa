"""The search for the shortest wrong problem of models that have no certificate."""

import re

import numpy as np
import pytest
from helpers import build, integers, places_of

import abc_nb
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import answers
from audit.shortest import hard_operands, shortest_wrong


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "n-by-1"])
def test_what_is_found_is_wrong_and_has_the_fewest_places_of_those_tried(task: str) -> None:
    run = abc_nb.load(f"{task}-vanilla")
    shortest = shortest_wrong(run.model(), run.spec.sampler, samples=50)
    first, *factor = map(int, shortest.problem.split("*"))
    assert int(shortest.right) == (first * factor[0] if factor else first + 1)
    assert abc_nb.answer(f"{task}-vanilla", shortest.problem) == shortest.answer != shortest.right
    fewer = len(str(first)) - 1
    none = ("", "", "")
    assert fewer and shortest_wrong(run.model(), run.spec.sampler, samples=50, longest=fewer) == none


@pytest.mark.parametrize(
    ("arrangement", "regime"), [("natural", "tight"), ("natural", "padded-20"), ("as-written", "unpadded")]
)
def test_an_untrained_model_is_wrong_at_one_place_however_problems_are_written(
    arrangement: Arrangement, regime: str
) -> None:
    sampler = Sampler(Task("addition"), arrangement, regime)
    model = build(sampler=sampler).eval()
    shortest = shortest_wrong(model, sampler, samples=20)
    assert re.fullmatch(r"\d\+\d", shortest.problem)
    assert int(shortest.right) == sum(map(int, shortest.problem.split("+")))
    assert [shortest.answer] == list(answers(model, sampler, [shortest.problem]))


@pytest.mark.parametrize("name", ["addition", "n-by-1", "parity"])
def test_problems_have_so_many_places(name: str) -> None:
    task = Task(name)
    for places in (1, 2, 9):
        first, *second = hard_operands(task, places, 400, np.random.default_rng(places))
        assert {places_of(number, task.base) for number in integers(first, task.base)} == {places}
        if name == "addition":
            assert {places_of(number, 10) for number in integers(second[0], 10)} == {*range(1, places + 1)}
    assert sum(len({*row[:-1]}) <= 2 for row in first.tolist()) >= 200
