"""Which lines Algorithm 1 keeps in every reading, and what a model that is trained under them gets right."""

from __future__ import annotations

from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.analysis.statistics import percent
from abc_nb.bias.lines import cells_of
from abc_nb.runs.run import Run
from abc_nb.show.titles import of_task
from abc_nb.specs.models import MODELS, SIX_LAYERS
from abc_nb.specs.readings import ALGORITHM_1

COMPARED = ("abc", "abc-unpractised", "abc-last-layer", *ALGORITHM_1)
ENDS = ("", "-padded", *SIX_LAYERS)  # of the names of the same reading in other regimes and sizes
SHARES = {  # from 0 to 1, and what readers see
    "open_heads": "heads without a line",
    "skill": "skill",
    "validation": "validation",
    "twenty": "20 digits",
    "sixty": "60 digits",
}


def runs(results: Results) -> pd.DataFrame:
    """A row a run of ABC and of Algorithm 1: task, model, reading, layers, regime, seed, and what `about` measures."""
    names = results.there(results.names("abc", "algorithm 1", "padded", "deep", "paper size", "paper size and batch"))
    wanted = {f"{model}{end}" for model in COMPARED for end in ENDS}
    return pd.DataFrame([about(run) for run in results.runs(names) if run.spec.identity.model in wanted])


def about(run: Run) -> dict[str, Any]:
    """The last layer's lines of a run, and what its models get right.

    Short lines are seen at less than half of the steps. A head without a line sees every key, unless it is one of
    ours. Skill is what the plain model gets right under all lines alone; validation, twenty and sixty digits are the
    retrained model's. Problems padded to twenty digits have no columns for sixty.
    """
    spec, bias, tried = run.spec, run.bias(), run.thresholds()
    assert bias is not None and tried is not None
    last = max((line.layer for line in bias.lines), default=0)
    lines = [line for line in bias.lines if line.layer == last]
    heads = {(line.attention, line.head) for line in lines}
    layout = spec.calibration_batch(run.seed).layout
    accuracy = run.evaluation().set_index("length").accuracy
    return identity(run) | {
        "reading": reading_of(spec.identity.model),
        "layers": spec.model.decoder_layers,
        "embedding size": spec.model.width,
        "batch": spec.training.batch,
        "regime": spec.sampler.regime,
        "seed": run.seed,
        "lines": len(lines),
        "short": sum(2 * len(cells_of(line, layout)[0]) < layout.target_length for line in lines),
        "open_heads": 1 - len(heads) / (2 * bias.heads),
        "skill": tried.skill.iloc[-1],
        "validation": run.validation,
        "twenty": accuracy[20],
        "sixty": accuracy[60],
    }


def reading_of(model: str) -> str:
    """The title of the reading that a model is of, whatever its regime and size."""
    end = next((f", {title}" for end, title in SIX_LAYERS.items() if model.endswith(end)), "")
    return MODELS[model].title.removesuffix(end)


def by_reading(table: pd.DataFrame) -> pd.DataFrame:
    """`runs` for reading: a row a reading, regime and size, with its tasks, and each measure's range over all runs."""
    keys = ["layers", "embedding size", "batch", "regime", "reading"]
    rows = []
    for where, own in table.groupby(keys, sort=False):
        row = dict(zip(keys, where, strict=True)) | {"tasks": ", ".join(map(of_task, own.task.unique()))}
        row |= {"runs": len(own)} | {name: in_range(own[name].map("{:.0f}".format)) for name in ("lines", "short")}
        rows.append(row | {title: in_range((100 * own[name]).map(percent)) for name, title in SHARES.items()})
    return pd.DataFrame(rows)


def in_range(values: pd.Series) -> str:
    """The lowest and the highest of some numbers, or the one there is."""
    ordered = sorted(values, key=float)
    return "–".join(dict.fromkeys([ordered[0], ordered[-1]]))
