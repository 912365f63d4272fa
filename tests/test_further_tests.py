"""Further tests of finished models: a row for each answer set, under the titles, seeds and lengths of several runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import TINY, build
from torch import Tensor

from abc_nb.analysis import further_tests
from abc_nb.analysis.further_tests import hard_cases
from abc_nb.experiments.experiment import experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.edge_cases import KINDS
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.training.evaluation import wilson

TASKS = ("successor", "addition", "n-by-1", "parity")

RUN = store.Run(experiment("successor-vanilla", "smoke"), 3, Path(), {})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """Every run's model."""
    model = RUN.experiment.build(0)
    monkeypatch.setattr(store.Run, "model", lambda self: model)
    return model


def test_rows_are_those_of_each_run_at_each_length_in_order(model: Transformer) -> None:
    def measure(asked: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        assert asked is model
        return pd.DataFrame({"twice": [2 * length, 2 * length + 1], "task of": sampler.task.name})

    other = replace(RUN, experiment=experiment("addition-abc-base4", "smoke"), seed=1)
    found = further_tests.by_run([RUN, other], [6, 20], measure)
    assert list(found) == ["task", "model", "base", "seed", "length", "twice", "task of"]
    assert found.to_numpy().tolist() == [
        [*head, length, 2 * length + i, name]
        for *head, name in (["successor", "vanilla", 10, 3, "successor"], ["addition", "abc", 4, 1, "addition"])
        for length in (6, 20)
        for i in (0, 1)
    ]


def test_hard_cases_of_runs_are_in_percent(model: Transformer) -> None:
    found = further_tests.percent_right([RUN], 2, hard_cases, samples=50)
    expected = hard_cases(model, RUN.experiment.sampler, 2, 50)
    assert found.kind.to_list() == list(KINDS)
    for name in ("accuracy", "ci_low", "ci_high"):
        np.testing.assert_allclose(found[name], 100 * expected[name])
    assert set(found.samples) == {50} and set(found.length) == {2} and set(found.seed) == {3}
    assert (found.ci_high > 1).all(), "percent: the interval of 0 of 50 ends at 7.1"


# ---- one model --------------------------------------------------------------------------------------


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

    monkeypatch.setattr(further_tests, "exact_match", answered)
    found = hard_cases(build(), sampler, 9, samples=10)
    assert found.accuracy.tolist() == pytest.approx([0.3] * len(KINDS))
    assert {batch.layout for batch in seen} == {sampler.test_batch(9, 2, 0).layout}
