"""The search for the shortest wrong problem of models that have no certificate."""

from __future__ import annotations

import pytest
from helpers import integers

import abc_nb
from abc_nb.analysis.results import Results
from abc_nb.analysis.shortest import hard_operands, of_models_without_certificate, shortest_wrong
from abc_nb.problems.tasks import Task


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "n-by-1"])
def test_what_is_found_is_wrong_and_has_the_fewest_places_of_those_tried(task: str) -> None:
    run = abc_nb.load(f"{task}-vanilla")
    found = shortest_wrong(run.model(), run.experiment.sampler, samples=50)
    assert found is not None
    first, *factor = map(int, found.problem.split("*"))
    assert int(found.right) == (first * factor[0] if factor else first + 1)
    assert abc_nb.answer(f"{task}-vanilla", found.problem) == found.answer != found.right
    fewer = len(str(first)) - 1
    assert fewer and shortest_wrong(run.model(), run.experiment.sampler, samples=50, longest=fewer) is None


@pytest.mark.slow
def test_a_certified_model_has_none() -> None:
    run = abc_nb.load("successor-abc")
    assert shortest_wrong(run.model(), run.experiment.sampler, samples=20, longest=12) is None


@pytest.mark.slow
def test_the_table_has_the_models_without_a_certificate_whose_weights_are_there() -> None:
    frame = of_models_without_certificate(Results("quick", "shipped", [0, 1]), samples=5, tasks=["parity"])
    assert {*frame.model} >= {"vanilla", "decoder-vanilla"} and not {"abc", "window-cyclic"} & {*frame.model}
    assert {*frame.seed} == {0} and not frame.duplicated(["task", "model"]).any()
    for row in frame.itertuples():
        assert not row.problem or (row.right == str(row.problem.count("1") % 2) and row.answer != row.right)


@pytest.mark.parametrize("task", ["addition", "n-by-1", "parity"])
def test_problems_have_so_many_places(task: str) -> None:
    own = Task(task)
    for places in (1, 2, 9):
        first, *second = hard_operands(own, places, 400)
        lengths = {len(f"{number:b}" if own.base == 2 else str(number)) for number in integers(first, own.base)}
        assert lengths == {places}
        if task == "addition":
            shown = {len(str(number)) for number in integers(second[0], 10)}
            assert shown == {*range(1, places + 1)}
    repeated = sum(len({*row[:-1]}) <= 2 for row in first.tolist())
    assert repeated >= 200
