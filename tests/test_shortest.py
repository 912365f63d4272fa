"""The search for the shortest wrong problem of models that have no certificate."""

from __future__ import annotations

import pytest

import abc_nb
from abc_nb.analysis.shortest import shortest_wrong, table


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "n-by-1"])
def test_what_is_found_is_wrong_and_no_shorter_problem_was_asked_in_vain(task: str) -> None:
    run = abc_nb.load(f"{task}-vanilla")
    (row,) = table([run], samples=50).to_dict("records")
    first, *factor = map(int, row["problem"].split("*"))
    assert int(row["right"]) == (first * factor[0] if factor else first + 1)
    assert abc_nb.answer(f"{task}-vanilla", row["problem"]) == row["answer"] != row["right"]
    places = len(str(first))
    assert shortest_wrong(run.model(), run.experiment.sampler, samples=50, longest=places - 1) is None


@pytest.mark.slow
def test_a_certified_model_has_none() -> None:
    run = abc_nb.load("successor-abc")
    assert shortest_wrong(run.model(), run.experiment.sampler, samples=20, longest=12) is None
    assert table([run], samples=1).problem.tolist() == [""]
