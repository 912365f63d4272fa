"""Measurements: what is asked of several runs stands under their titles, seeds and lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from abc_nb.analysis import further_tests
from abc_nb.analysis.further_tests import carry_runs, hard_cases, zeros_in_front
from abc_nb.experiments.experiment import experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.edge_cases import KINDS
from abc_nb.problems.sampling import Sampler
from abc_nb.runs import store

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
    assert list(found) == ["task", "model", "seed", "length", "twice", "task of"]
    assert found.to_numpy().tolist() == [
        [*head, length, 2 * length + i, name]
        for *head, name in (["Successor", "Vanilla", 3, "successor"], ["Addition, base 4", "ABC", 1, "addition"])
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


def test_zeros_in_front_of_runs_are_in_percent(model: Transformer) -> None:
    found = further_tests.percent_right([RUN], 2, zeros_in_front, more=(0, 3), samples=20)
    expected = zeros_in_front(model, RUN.experiment.sampler, 2, (0, 3), 20)
    assert found["columns"].tolist() == expected["columns"].to_list()
    np.testing.assert_allclose(found.ci_high, 100 * expected.ci_high)


def test_carries_of_runs_are_in_percent(model: Transformer) -> None:
    found = further_tests.percent_right([RUN], 9, carry_runs, places=(1, 5, 9), samples=20)
    expected = carry_runs(model, RUN.experiment.sampler, 9, (1, 5, 9), 20)
    assert found.run.to_list() == [1, 5, 9]
    np.testing.assert_allclose(found.ci_high, 100 * expected.ci_high)
