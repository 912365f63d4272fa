"""Finished models asked anew: a row for each answer set, with task, model, seed and length in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from abc_nb.analysis.results import identity
from abc_nb.model.transformer import Transformer
from abc_nb.problems.edge_cases import KINDS
from abc_nb.problems.expressions import widen
from abc_nb.problems.sampling import Sampler, generator, make_batch
from abc_nb.problems.tasks import Digits
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, exact_match, wilson

Measure = Callable[[Transformer, Sampler, int], pd.DataFrame]  # at a length


def by_run(runs: Sequence[Run], lengths: Sequence[int], measure: Measure) -> pd.DataFrame:
    """What is measured on each run at each length, after task, model, seed and length."""
    parts = []
    for run in runs:
        model = run.model()
        for length in lengths:
            head = pd.DataFrame([identity(run) | {"seed": run.seed, "length": length}])
            parts.append(head.merge(measure(model, run.experiment.sampler, length), how="cross"))
    return pd.concat(parts, ignore_index=True)


def percent_right(runs: Sequence[Run], length: int, ask: Callable[..., pd.DataFrame], **asked: Any) -> pd.DataFrame:
    """What `ask` (`hard_cases`, `carry_runs` or `zeros_in_front`) finds for the model of each run, in percent.

    `asked` are that function's own arguments, after model, sampler and length.
    """
    rows = by_run(runs, [length], partial(ask, **asked))
    return rows.assign(**{name: 100 * rows[name] for name in ("accuracy", "ci_low", "ci_high")})


SCORE = ["samples", "accuracy", "ci_low", "ci_high"]


def score(
    model: Transformer, sampler: Sampler, operands: list[Digits], length: int, more: int = 0
) -> tuple[int, float, float, float]:
    """Exact match on these operands of up to `length` digits: samples, accuracy and its 95% interval, fractions.

    They get the columns that the regime gives them, and `more` columns of zeros in front.
    """
    task, width = sampler.task, sampler.task.width(length, sampler.regime) + more
    right = exact_match(model, make_batch(task, widen(operands, width, task), width, sampler.arrangement))
    return len(right), right.float().mean().item(), *wilson(int(right.sum()), len(right))


def hard_cases(model: Transformer, sampler: Sampler, length: int, samples: int = 200) -> pd.DataFrame:
    """Exact match on each kind of problem of up to `length` digits: kind, samples, accuracy, ci_low, ci_high."""
    places, rows = sampler.task.places(length), []
    for number, (kind, make) in enumerate(KINDS.items()):
        operands = make(sampler.task, places, samples, generator(TEST_SEED, length, number))
        rows.append((kind, *score(model, sampler, operands, length)))
    return pd.DataFrame(rows, columns=["kind", *SCORE])
