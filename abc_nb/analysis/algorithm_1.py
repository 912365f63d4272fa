"""Which lines Algorithm 1 keeps in each reading, and what a model that is trained under them gets right."""

from __future__ import annotations

from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.analysis.statistics import percent
from abc_nb.bias.lines import Line, Lines, cells_of
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.calibration.of_model import calibrate_model
from abc_nb.experiments.catalogue import ALGORITHM_1, MODELS, READ_LINES, SIX_LAYERS
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import OPERATIONS
from abc_nb.runs.run import Run

CALIBRATIONS = {"ABC": Calibration(), "Algorithm 1, by head and direction": PAPER} | {
    MODELS[model].title: calibration
    for model in READ_LINES
    if (calibration := MODELS[model].calibration) and model != "algorithm-1-script-none"  # whose lines are the script's
}
COMPARED = ("abc", "abc-last-layer", *ALGORITHM_1)
ENDS = ("", "-padded", *SIX_LAYERS)  # of the names of the same reading in other regimes and sizes
MEANS = ["lines", "short", "open_heads", "skill", "validation", "twenty", "sixty"]


def runs(found: Results) -> pd.DataFrame:
    """A row a run of ABC and of Algorithm 1: task, model, reading, layers, regime, seed, and what `about` measures."""
    names = found.there(found.names("abc", "algorithm 1", "padded", "deep", "paper size"))
    wanted = {f"{model}{end}" for model in COMPARED for end in ENDS}
    return pd.DataFrame([about(run) for run in found.runs(names) if run.experiment.identity.model in wanted])


def about(run: Run) -> dict[str, Any]:
    """What `measured` finds in a run's bias, and what its models get right.

    Skill is what the plain model gets right under all lines alone; validation, twenty and sixty digits are the
    retrained model's; shares are from 0 to 1. Problems padded to twenty digits have no columns for sixty.
    """
    chosen, bias, tried = run.experiment, run.bias(), run.thresholds()
    assert bias is not None and tried is not None
    found = measured(bias, chosen.calibration_batch(run.seed).layout)
    accuracy = run.evaluation().set_index("length").accuracy
    found |= {"skill": tried.skill.iloc[-1], "validation": run.validation}
    found |= {"twenty": accuracy[20], "sixty": accuracy[60]}
    where: dict[str, Any] = {"reading": reading_of(chosen.identity.model), "layers": chosen.model.decoder_layers}
    where |= {"embedding size": chosen.model.width}
    return identity(run) | where | {"regime": chosen.sampler.regime, "seed": run.seed} | found


def measured(bias: Lines, layout: Layout) -> dict[str, float]:
    """Of the last layer: its lines, those seen at less than half of the steps (short), heads without a line (a share).

    A head without a line sees every key, unless it is one of ours. `layout` is that of the averaged problems.
    """
    last = max((line.layer for line in bias.lines), default=0)
    lines = [line for line in bias.lines if line.layer == last]
    heads = {(line.attention, line.head) for line in lines}
    short = sum(is_short(line, layout) for line in lines)
    return {"lines": len(lines), "short": short, "open_heads": 1 - len(heads) / (2 * bias.heads)}


def kept(parent: Run) -> pd.DataFrame:
    """What each reading keeps of one plain model's attention, without a training: reading, `measured`, and skill."""
    model, rows = parent.model(), []
    for title, settings in CALIBRATIONS.items():
        batch = parent.experiment.sampler.calibration_batch(parent.seed, padding=settings.padding)
        found = calibrate_model(model, batch, settings)
        rows.append({"reading": title} | measured(found.bias, batch.layout) | {"skill": found.skill})
    return pd.DataFrame(rows)


def is_short(line: Line, layout: Layout) -> bool:
    """Whether a line has a cell at less than half of the steps that were averaged."""
    rows, _ = cells_of(line, layout)
    return 2 * len(rows) < layout.target_length


def reading_of(model: str) -> str:
    """The title of the reading that a model is of, whatever its regime and size."""
    end = next((f", {title}" for end, title in SIX_LAYERS.items() if model.endswith(end)), "")
    return MODELS[model].title.removesuffix(end)


def by_reading(table: pd.DataFrame) -> pd.DataFrame:
    """`runs` for reading: a row a reading, regime and size, with its tasks, and each measure's range over all runs."""
    keys = ["layers", "embedding size", "regime", "reading"]
    rows = []
    for where, own in table.groupby(keys, sort=False):
        tasks = ", ".join(OPERATIONS[task].title for task in own.task.unique())
        row = dict(zip(keys, where, strict=True)) | {"tasks": tasks, "runs": len(own)}
        row |= {name: in_range(own[name], 1.0) for name in ("lines", "short")}
        rows.append(row | {name: in_range(own[name], 100.0) for name in MEANS[2:]})
    return pd.DataFrame(rows).rename(
        columns={"open_heads": "heads without a line", "twenty": "20 digits", "sixty": "60 digits"}
    )


def in_range(values: pd.Series, times: float) -> str:
    """The lowest and the highest of some numbers, or the one there is."""
    low, high = (f"{value:.0f}" if times == 1 else percent(times * value) for value in (values.min(), values.max()))
    return low if low == high else f"{low}–{high}"
