"""Mistakes: where answers go wrong, on which digits, and what far digits have to do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.bias.base import Near
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, exact_match

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


def without_far_digits(runs: Sequence[Run], lengths: Sequence[int], samples: int = 200, reach: int = 2) -> pd.DataFrame:
    """Exact match (percent) of models as they are, and with far digits closed at test: no weight is changed.

    Columns task, model, seed, length, samples, open, closed.
    """

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        batch = sampler.test_batch(length, samples, TEST_SEED)
        tested = {"open": model, "closed": model.with_bias(Near(reach))}
        shares = {name: 100 * exact_match(each, batch).float().mean().item() for name, each in tested.items()}
        return pd.DataFrame([{"samples": len(batch.source), **shares}])

    return by_run(runs, lengths, measure)


def far_digits_closed(found: Results, lengths: Sequence[int], samples: int = 100) -> pd.DataFrame:
    """`without_far_digits` of RPE's models of Addition, counted by place."""
    return without_far_digits(found.runs(["addition-rpe-by-place"]), lengths, samples)


def open_and_closed(frame: pd.DataFrame) -> pd.DataFrame:
    """`without_far_digits` for reading: a row a seed, a column a length with digits open or closed."""
    long = frame.melt(["seed", "length"], ["open", "closed"], "digits", "percent").round()
    long["digits"] = long.length.astype(str) + " digits, " + long.digits
    return long.pivot(index="seed", columns="digits", values="percent")[list(dict.fromkeys(long.digits))]
