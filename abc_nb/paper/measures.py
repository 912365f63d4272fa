"""What claims measure: tidy rows, one a run, with its task, base, model, seed, regime and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from abc_nb.analysis import calibration_study, connections
from abc_nb.analysis.attention import AttentionStudy
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.results import Results, identity
from abc_nb.bias.base import ENCODER_DECODER
from abc_nb.runs.run import Run
from abc_nb.specs.recipes import PROFILES
from abc_nb.specs.studies import names_of

Row = dict[str, Any]
ABOUT = ["task", "model", "base", "seed", "regime"]  # which run a row is of


def measured(results: Results, rows: str) -> pd.DataFrame:
    """The rows of a measure, by its name in `MEASURES`, or else of the runs of a study that are there."""
    measure = MEASURES.get(rows, lambda results: accuracies(results.existing(names_of(rows, profile=results.profile))))
    return frame(measure(results))


def frame(rows: list[Row]) -> pd.DataFrame:
    """Rows as a frame, which has the columns `ABOUT` even without any."""
    return pd.DataFrame(rows, columns=None if rows else ABOUT)


def accuracies(runs: Iterable[Run]) -> list[Row]:
    """Percent right in validation and at every length (`at_60`), embedding size, and the positions' period T or 0."""
    rows = []
    for run in runs:
        model, evaluation = run.spec.model, run.evaluation()
        row = about(run) | {"width": model.width, "T": getattr(model.position, "period", None) or 0}
        row |= {"validation": 100 * run.validation}
        pairs = zip(evaluation.length, evaluation.accuracy, strict=True)
        rows.append(row | {f"at_{length}": 100 * accuracy for length, accuracy in pairs})
    return rows


def about(run: Run) -> Row:
    """Which run a row is of."""
    return identity(run) | {"seed": run.seed, "regime": run.spec.sampler.regime}


def plain(results: Results, task: str) -> list[AttentionStudy]:
    """The attention of every plain model of a task whose weights are there."""
    return [AttentionStudy(run) for run in results.every_seed(f"{task}-vanilla") if run.has_weights]


def needed_cells(results: Results) -> list[Row]:
    """Of each attention of Successor its best head's on the needed cell, inside the training length and beyond.

    `left` is how much of what is more than evenly spread attention inside is left beyond. (Evenly spread over the few
    tokens before it, self-attention has much of the cell anyway.)
    """
    rows = []
    for study in plain(results, "successor"):
        row, heads = about(study.run), study.best_heads()
        columns = [f"{study.length} digits, {part}" for part in ("inside", "beyond")]
        for name in ENCODER_DECODER:
            own = heads[(heads.operand == "all") & (heads.attention == name)]
            inside, beyond = own.sort_values(columns[0]).iloc[-1][columns]
            even_inside, even_beyond = study.even(name)
            left = (beyond - even_beyond) / (inside - even_inside)
            row |= {f"{name}_inside": inside, f"{name}_beyond": beyond, f"{name}_left": left}
        rows.append(row)
    return rows


def operands(results: Results) -> list[Row]:
    """Of Addition how many heads look at one operand at least twice as much as at the other: first, second, heads."""
    rows = []
    for study in plain(results, "addition"):
        sources = study.by_operand()
        ratio = sources["operand 1"] / sources["operand 2"]
        counts = {"first": int((ratio >= 2).sum()), "second": int((ratio <= 0.5).sum()), "heads": len(ratio)}
        rows.append(about(study.run) | counts)
    return rows


def needed_digits(results: Results) -> list[Row]:
    """Over output digits the correlation of attention on the needed digit with accuracy, and the latter's spread."""
    rows = []
    for study in [*plain(results, "successor"), *plain(results, "addition")]:
        mass, accuracy = study.steps.mass, study.steps.accuracy
        correlation = float(np.corrcoef(mass, accuracy)[0, 1])
        rows.append(about(study.run) | {"correlation": correlation, "spread": float(np.ptp(accuracy))})
    return rows


def calibrated(results: Results) -> list[CalibrationStudy]:
    """ABC's runs."""
    return [CalibrationStudy(run) for run in results.runs(results.names("abc"))]


def costs(results: Results) -> list[Row]:
    """`seconds` to 99% in validation, ABC's over the plain model's."""
    return [about(study.run) | {"seconds": study.cost()["seconds"]} for study in calibrated(results)]


def followed(results: Results) -> list[Row]:
    """How many heads of the last layer have lines that follow something in cross-attention.

    Of the two operands only the `first`, or only the `second`; the `number` or its sign; the `digit` of N x 1.
    """
    return [about(study.run) | heads_by_lines(study) for study in calibrated(results)]


def heads_by_lines(study: CalibrationStudy) -> Row:
    spans: list[set[str]] = [set() for _ in range(study.bias.heads)]
    for line in study.bias.lines:
        if line.attention == "cross" and line.layer == study.last:
            spans[line.head].add(line.span)
    both = {"operand 1", "operand 2"}
    return {
        "first": sum(own & both == {"operand 1"} for own in spans),
        "second": sum(own & both == {"operand 2"} for own in spans),
        "number": sum(bool(own & {"operand 1", "*"}) for own in spans),
        "digit": sum("operand 2" in own for own in spans),
        "heads": len(spans),
    }


def verticals(results: Results) -> list[Row]:
    """Of the attention on vertical lines the `share` on tokens that carry no digit: a row a seed, over all tasks."""
    rows, regime = [], PROFILES[results.profile].regime
    for seed, lines in enumerate(calibration_study.verticals(results, [str(name) for name in results.names("abc")])):
        digits = lines.token.str.startswith("operand")
        share = lines.share[~digits].sum() / lines.share.sum()
        rows.append({"task": "", "model": "abc", "base": 0, "seed": seed, "regime": regime, "share": float(share)})
    return rows


def indices(results: Results) -> list[Row]:
    """Whether RPE and ABC use the same index, and the strongest offset of each on Successor."""
    offsets = connections.on_successor(results)
    strongest = {name.lower(): int(offsets.sort_values(name)["offset"].iloc[-1]) for name in ("ABC", "RPE")}
    row = about(results.one("successor-abc")) | {"equal": connections.same_index_at_every_size(12)}
    return [row | strongest]


def changes(results: Results) -> list[Row]:
    """How far the change of the logits differs between inputs, by ABC's bias and by LoRA, on Parity."""
    spread = connections.on_parity(results).groupby("method").spread.max()
    return [about(results.one("parity-lora")) | {"abc": spread["ABC"], "lora": spread["LoRA"]}]


MEASURES: dict[str, Callable[[Results], list[Row]]] = {
    measure.__name__: measure
    for measure in (needed_cells, operands, needed_digits, costs, followed, verticals, indices, changes)
}
