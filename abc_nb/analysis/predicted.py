"""Accuracy at any length, computed from wrong contexts, beside what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates.prediction import predicted_accuracy, wrong_contexts
from abc_nb.common.errors import InputError
from abc_nb.runs.run import Run

LENGTHS = (60, 1_000, 10_000, 1_000_000)  # digits
MOST = 10_000_000  # contexts of a model whose wrong ones are listed here
SHOWN = (60, 200, 1_000, 10_000, 1_000_000)
COLUMNS = ["task", "model", "seed", "length", "predicted", "correct", "samples", "ci_low", "ci_high"]


def accuracy(found: Results, lengths: Sequence[int] = LENGTHS) -> pd.DataFrame:
    """Accuracy of each model with wrong contexts, before practice: computed at these lengths and at sampled ones.

    One row a length: `predicted` is a fraction; `correct` of `samples` problems were right, with the interval from
    `ci_low` to `ci_high`; these are empty where nothing was sampled. Models without weights are left out, other tasks
    than the paper's four, and models with more than `MOST` contexts, as listing these takes minutes.
    """
    parts = [pd.DataFrame(columns=COLUMNS)]
    for row in certified.rows(found, certified.BEFORE).to_dict("records"):
        run = found.by_seed(row["experiment"])[row["seed"]]
        if row["wrong"] and row["contexts"] <= MOST and run and run.has_weights:
            parts.append(of_run(run, row, lengths))
    return pd.concat(parts[len(parts) > 1 :], ignore_index=True)


def of_run(run: Run, certificate: dict[Any, Any], lengths: Sequence[int]) -> pd.DataFrame:
    """The rows of one run; none where its wrong contexts are such that no accuracy can be computed from them."""
    sampler, sampled = run.spec.sampler, run.evaluation()
    every = sorted({*lengths, *sampled.length})
    wrong = wrong_contexts(run.model(), sampler, certificate)
    try:
        shares = predicted_accuracy(run.model(), sampler, wrong, every)
    except InputError:
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.DataFrame({"length": every, "predicted": [shares[length] for length in every]})
    frame = frame.merge(sampled[["length", "correct", "samples", "ci_low", "ci_high"]], on="length", how="left")
    name = run.spec.identity
    return frame.assign(task=name.task, model=name.model, seed=run.seed)[COLUMNS]


def side_by_side(frame: pd.DataFrame, lengths: Sequence[int] = SHOWN) -> pd.DataFrame:
    """`accuracy` as text, a column a length; in brackets how many of the sampled problems were right."""
    chosen = frame[frame.length.isin(lengths)]
    sampled = [
        f" ({correct:.0f} of {samples:.0f})" if samples == samples else ""
        for correct, samples in zip(chosen.correct, chosen.samples, strict=True)
    ]
    cells = [f"{100 * share:.4f}%{more}" for share, more in zip(chosen.predicted, sampled, strict=True)]
    wide = chosen.assign(cell=cells).pivot(index=["task", "model", "seed"], columns="length", values="cell")
    return wide.reset_index().rename_axis(columns=None)
