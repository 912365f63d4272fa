"""Products of two long numbers: how models of N x N do by size, and which of them are certified."""

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.specs.experiment import Name

FACTOR_DIGITS = (6, 7, 20, 100, 1_000)  # digits of both factors


def accuracy(results: Results, models: Sequence[str]) -> pd.DataFrame:
    """A row a model that has a result: how many seeds, and the worst run's percent right by size.

    NaN where a size was not tested.
    """
    rows = results.evaluation(results.with_results([Name("n-by-n", model) for model in models]))
    worst = rows.pivot_table(index="model", columns="length", values="accuracy", aggfunc="min")
    worst = (100 * worst).reindex(columns=[*FACTOR_DIGITS]).loc[[model for model in models if model in worst.index]]
    worst.insert(0, "seeds", rows.groupby("model").seed.nunique())
    return worst
