"""Finished models asked anew: a row for each answer set, with task, model, seed and length in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from abc_nb.evaluation import TEST_SEED, evaluate
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


def percent_right(runs: Sequence[Run], length: int, ask: Callable[..., pd.DataFrame], **asked: Any) -> pd.DataFrame:
    """What `hard` asks of a model (`hard_cases`, `carry_runs`, `zeros_in_front`) of each run's, in percent.

    `asked` are that function's own arguments, after model, sampler and length.
    """
    rows = by_run(runs, [length], partial(ask, **asked))
    return rows.assign(**{name: 100 * rows[name] for name in ("accuracy", "ci_low", "ci_high")})


def new_problems(runs: Sequence[Run], lengths: Sequence[int], samples: int = 1000) -> pd.DataFrame:
    """Evaluation rows on problems that no evaluation had before: what `tables.over_seeds` takes."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        rows = evaluate(model, sampler, [(length, samples)], test_seed=TEST_SEED + 1)
        return rows.drop(columns=["experiment", "seed", "length"])

    return by_run(runs, lengths, measure)
