"""Products of two long numbers: how models of N x N do by size, and which of them are certified."""

from __future__ import annotations

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.results import Results
from abc_nb.experiments.catalogue import TRACED

SIZES = (6, 7, 20, 100, 1_000)  # digits of both factors


def accuracy(found: Results) -> pd.DataFrame:
    """A row a model: how many seeds, and the worst run's percent right by size; NaN where a size was not tested."""
    rows = found.rows("products")
    if rows.empty:
        return pd.DataFrame(columns=["model", "seeds", *SIZES])
    models = rows.experiment.str.removeprefix("n-by-n-")
    worst = rows.assign(model=models).pivot_table(index="model", columns="length", values="accuracy", aggfunc="min")
    worst = (100 * worst).reindex(columns=[*SIZES]).loc[[name for name in TRACED if name in worst.index]]
    worst.insert(0, "seeds", rows.groupby(models).seed.nunique())
    return worst.rename(
        index=lambda name: TRACED[name].title + ", decoder-only" * (TRACED[name].kind == "decoder-only")
    )


def followed(study: CalibrationStudy) -> pd.DataFrame:
    """The calibrated lines that move with a table's columns or rows, each once, with the heads that have it."""
    lines = study.lines[study.lines.direction != "vertical"]
    own = lines[~((lines.span == "output") & (lines.direction == "diagonal") & (lines.offset == 0))]
    return own.groupby(["span", "direction", "offset"]).agg(heads=("head", "nunique")).reset_index()


def certificates(found: Results) -> pd.DataFrame:
    """A row a certificate of a model of N x N."""
    own = certified.certificates(found, tuple(TRACED), ["n-by-n"])
    return own.assign(model=own.model.map(titled))


def titled(model: str) -> str:
    """What the notebook calls a model."""
    return TRACED[model].title + ", decoder-only" * (TRACED[model].kind == "decoder-only")
