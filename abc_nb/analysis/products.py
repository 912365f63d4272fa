"""Products of two long numbers: how models of N x N do by size, and which of them are certified."""

from collections.abc import Iterable, Sequence

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.training.evaluation import TEST_SEED, correct_digits

SIZES = (6, 7, 20, 100, 1_000)  # digits of both factors


def accuracy(found: Results, models: Sequence[str]) -> pd.DataFrame:
    """A row a model that has a result: how many seeds, and the worst run's percent right by size.

    NaN where a size was not tested.
    """
    rows = found.evaluation(found.there([Name("n-by-n", model) for model in models]))
    worst = rows.pivot_table(index="model", columns="length", values="accuracy", aggfunc="min")
    worst = (100 * worst).reindex(columns=[*SIZES]).loc[[name for name in models if name in worst.index]]
    worst.insert(0, "seeds", rows.groupby("model").seed.nunique())
    return worst


def of_sizes(run: Run, sizes: Iterable[tuple[int, int]], samples: int = 1) -> pd.DataFrame:
    """A row for each size, the digits of both factors: its cells, its random problems, and how many are right.

    A problem is right if a teacher-forced pass gets every token right.
    """
    model, sampler, rows = run.model(), run.spec.sampler, []
    for size in sizes:
        batch = sampler.test_batch(size, samples, TEST_SEED)
        right = correct_digits(model, batch).all(1)
        rows.append((f"{size[0]:,} x {size[1]:,}", batch.layout.target_length - 1, len(right), int(right.sum())))
    return pd.DataFrame(rows, columns=["factors", "cells", "problems", "right"])
