"""Finished models asked anew: a row for each answer set, with task, model, seed and length in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from abc_nb.evaluation import TEST_SEED, evaluate
from abc_nb.hard import carry_runs, hard_cases, zeros_in_front
from abc_nb.model import Transformer
from abc_nb.results import titles
from abc_nb.sampling import Sampler
from abc_nb.store import Run

Measure = Callable[[Transformer, Sampler, int], pd.DataFrame]  # at a length


def by_run(runs: Sequence[Run], lengths: Sequence[int], measure: Measure) -> pd.DataFrame:
    """What is measured on each run at each length, after task, model, seed and length."""
    parts = []
    for run in runs:
        model = run.model()
        for length in lengths:
            head = pd.DataFrame([titles(run) | {"seed": run.seed, "length": length}])
            parts.append(head.merge(measure(model, run.experiment.sampler, length), how="cross"))
    return pd.concat(parts, ignore_index=True)


def hard_problems(runs: Sequence[Run], length: int, samples: int = 200) -> pd.DataFrame:
    """Percent right of each kind of hard problem, in the columns of `hard.hard_cases`."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        return hard_cases(model, sampler, length, samples)

    return in_percent(by_run(runs, [length], measure))


def carry_problems(runs: Sequence[Run], length: int, places: Sequence[int], samples: int = 20) -> pd.DataFrame:
    """Percent right of numbers with a carry through so many places, in the columns of `hard.carry_runs`."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        return carry_runs(model, sampler, length, places, samples)

    return in_percent(by_run(runs, [length], measure))


def wider_problems(runs: Sequence[Run], length: int, more: Sequence[int], samples: int = 200) -> pd.DataFrame:
    """Percent right of the same numbers with more zeros in front, in the columns of `hard.zeros_in_front`."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        return zeros_in_front(model, sampler, length, more, samples)

    return in_percent(by_run(runs, [length], measure))


def new_problems(runs: Sequence[Run], lengths: Sequence[int], samples: int = 1000) -> pd.DataFrame:
    """Evaluation rows on problems that no evaluation had before: what `tables.over_seeds` takes."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        rows = evaluate(model, sampler, [(length, samples)], test_seed=TEST_SEED + 1)
        return rows.drop(columns=["experiment", "seed", "length"])

    return by_run(runs, lengths, measure)


def in_percent(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy and its interval as percentages."""
    return rows.assign(**{name: 100 * rows[name] for name in ("accuracy", "ci_low", "ci_high")})
