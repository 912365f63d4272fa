"""What far digits have to do with mistakes: models asked as they are, and with far digits closed."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.results import identity
from abc_nb.bias.window import Near
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, exact_match


def far_digits_closed(runs: Sequence[Run], lengths: Sequence[int], samples: int = 100) -> pd.DataFrame:
    """Exact match (percent) of models as they are, and with far digits closed at test: no weight is changed.

    Columns task, model, seed, length, samples, open, closed.
    """
    rows = []
    for run in runs:
        tested = {"open": run.model(), "closed": run.model().with_bias(Near(2))}
        for length in lengths:
            batch = run.spec.sampler.test_batch(length, samples, TEST_SEED)
            row = identity(run) | {"seed": run.seed, "length": length, "samples": len(batch.source)}
            shares = {name: 100 * exact_match(model, batch).float().mean().item() for name, model in tested.items()}
            rows.append(row | shares)
    return pd.DataFrame(rows)


def open_and_closed(frame: pd.DataFrame) -> pd.DataFrame:
    """`far_digits_closed` for reading: a row a seed, a column a length with digits open or closed."""
    long = frame.melt(["seed", "length"], ["open", "closed"], "digits", "percent").round()
    long["digits"] = long.length.astype(str) + " digits, " + long.digits
    return long.pivot(index="seed", columns="digits", values="percent")[list(dict.fromkeys(long.digits))]
