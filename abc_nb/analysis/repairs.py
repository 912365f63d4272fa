"""What follows from wrong contexts: repaired models, and accuracy that is computed and not sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.prediction import predicted_accuracy, wrong_contexts
from abc_nb.common.errors import InputError
from abc_nb.runs.run import Run
from abc_nb.specs.spec import spec

LENGTHS = (60, 1_000, 10_000, 1_000_000)  # digits
MOST = 10_000_000  # contexts of a model whose wrong ones are listed here
SHOWN = (60, 200, 1_000, 10_000, 1_000_000)
COLUMNS = ["task", "model", "seed", "length", "predicted", "correct", "samples", "ci_low", "ci_high"]


def by_seed(found: Results, models: Sequence[str]) -> pd.DataFrame:
    """A row a model with a certificate: whether it is certified before and after repair; steps and seconds of repair.

    A repaired model counts for the seed of the model that it was made from, if that one is not certified.
    """
    made = certified.read(found, models)
    plain = [each for each in made if each["recipe"] == files.PLAIN]
    repairs = {repaired_from(each): each for each in made if each["recipe"] == files.REPAIRED}
    rows = []
    for each in plain:
        repair = repairs.get((each["experiment"], each["seed"]))
        own = each["name"]
        done = {} if repair is None or each["certified"] else cost(found, repair)
        after = bool(each["certified"] or (repair is not None and repair["certified"]))
        rows.append({"task": own.task, "model": own.model, "before": each["certified"], "after": after} | done)
    return pd.DataFrame(rows, columns=["task", "model", "before", "after", "steps", "seconds"])


def before_and_after(found: Results, models: Sequence[str] = certified.ENCODER_DECODERS) -> pd.DataFrame:
    """By task and model: certified seeds before and after repair, and of the repairs their steps and seconds.

    Steps and seconds are sums, certificates included; a dash stands where no repaired run is there.
    """
    grouped = by_seed(found, models).groupby(["task", "model"], sort=False)
    counted = {name: grouped[name].agg(share) for name in ("before", "after")}
    return pd.DataFrame(counted | {name: grouped[name].agg(total) for name in ("steps", "seconds")}).reset_index()


def summary(found: Results) -> pd.DataFrame:
    """`certified.summary` of ABS and ABC, with the seeds that are certified after repair and the steps that it took."""
    plain = certified.summary(found, certified.certificates(found, certified.MODELS))
    after = before_and_after(found).set_index(["task", "model"])[["after", "steps"]]
    return plain.join(after).rename(columns={"after": "after repair", "steps": "steps of repair"})


def share(part: pd.Series[bool]) -> str:
    return f"{int(part.sum())} of {len(part)}"


def total(part: pd.Series[float]) -> str:
    return f"{part.sum():.0f}" if part.notna().any() else "–"


def repaired_from(certificate: dict[str, Any]) -> tuple[str, int]:
    """The experiment and seed of the model that a repaired one was made from."""
    parent = spec(certificate["experiment"], certificate["profile"]).parent
    if parent is None:
        raise InputError(f"{certificate['experiment']} is no repaired model, but its certificate says so")
    return parent.name, certificate["seed"]


def cost(found: Results, certificate: dict[str, Any]) -> dict[str, float]:
    """Steps and seconds of a repair; nothing where the run is not there."""
    run = found.by_seed(certificate["experiment"]).get(certificate["seed"])
    return {} if run is None else {"steps": run.manifest["steps"], "seconds": run.manifest["seconds"]["training"]}


def predicted(found: Results, lengths: Sequence[int] = LENGTHS) -> pd.DataFrame:
    """Accuracy of each plain model with wrong contexts: computed at these lengths, and at those that were sampled.

    One row a length: `predicted` is a fraction; `correct` of `samples` problems were right, with the interval from
    `ci_low` to `ci_high`; these are empty where nothing was sampled. Models without weights are left out, other tasks
    than the paper's four, and models with more than `MOST` contexts, as listing these takes minutes.
    """
    parts = [
        rows_of(run, each, lengths)
        for each in certified.read(found)
        if each["recipe"] == files.PLAIN and each["wrong"] and each["contexts"] <= MOST
        for run in [found.by_seed(each["experiment"]).get(each["seed"])]
        if run is not None and run.has_weights
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def rows_of(run: Run, certificate: dict[str, Any], lengths: Sequence[int]) -> pd.DataFrame:
    """The rows of one run; none where its wrong contexts are such that no accuracy can be computed from them."""
    model, sampler = run.model(), run.spec.sampler
    sampled = run.evaluation()
    every = sorted({*lengths, *sampled.length})
    wrong = wrong_contexts(model, sampler, certificate)
    try:
        shares = predicted_accuracy(model, sampler, wrong, every)
    except InputError:
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.DataFrame({"length": every, "predicted": [shares[length] for length in every]})
    frame = frame.merge(sampled[["length", "correct", "samples", "ci_low", "ci_high"]], on="length", how="left")
    name = run.spec.identity
    return frame.assign(task=name.task, model=name.model, seed=run.seed)[COLUMNS]


def side_by_side(frame: pd.DataFrame, lengths: Sequence[int] = SHOWN) -> pd.DataFrame:
    """`predicted` as text, a column a length; in brackets how many of the sampled problems were right."""
    chosen = frame[frame.length.isin(lengths)]
    sampled = [
        f" ({correct:.0f} of {samples:.0f})" if samples == samples else ""
        for correct, samples in zip(chosen.correct, chosen.samples, strict=True)
    ]
    cells = [f"{100 * share:.4f}%{more}" for share, more in zip(chosen.predicted, sampled, strict=True)]
    wide = chosen.assign(cell=cells).pivot(index=["task", "model", "seed"], columns="length", values="cell")
    return wide.reset_index().rename_axis(columns=None)
