"""What claims measure: tidy rows, one a run, with its task, base, model, seed, regime, validation and numbers.

Notebooks show `best_heads` and `cost`, too.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.analysis.attention import AttentionStudy, masses, needed, on_cells
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.results import identity
from abc_nb.bias.base import ENCODER_DECODER, Attention, key_count
from abc_nb.bias.lines import Line, cells_of
from abc_nb.calibration.calibrate import SHARE, Calibration, calibrate
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import TRAINED
from abc_nb.runs.store import Run
from abc_nb.specs.recipes import PROFILES
from abc_nb.training.evaluation import TEST_SEED, correct_tokens, record
from audit import connections, encoder_only, unlearnable
from audit.models import LONGER
from audit.results import Results, problems, reached
from audit.statistics import BAR
from audit.studies import names_of

Row = dict[str, Any]
ABOUT = ["task", "model", "base", "seed", "regime", "validation"]  # which run a row is of, and how well it learned


def measured(results: Results, rows: str) -> pd.DataFrame:
    """The rows of a measure, by its name in `MEASURES`, or else the accuracies of a study's runs that are there."""
    if rows in MEASURES:
        return frame(MEASURES[rows](results))
    return frame([accuracies(run) for run in results.existing_runs(names_of(rows, profile=results.profile))])


def frame(rows: list[Row]) -> pd.DataFrame:
    """Rows as a frame, which has the columns `ABOUT` even without any."""
    return pd.DataFrame(rows, columns=None if rows else ABOUT)


def about(run: Run) -> Row:
    """The columns `ABOUT`; validation in percent."""
    return identity(run) | {"regime": run.spec.sampler.regime, "validation": 100 * run.validation}


def accuracies(run: Run) -> Row:
    """Percent right at every length (`at_60`), embedding size, and the positions' period T or 0."""
    model, tests = run.spec.model, run.evaluation()
    row = about(run) | {"width": model.width, "T": getattr(model.position, "period", None) or 0}
    return row | {f"at_{length}": 100 * right for length, right in zip(tests.length, tests.accuracy, strict=True)}


def plain(task: str, measure: Callable[[AttentionStudy], Row]) -> Callable[[Results], list[Row]]:
    """A measure of every plain model of a task whose weights are there."""

    def rows(results: Results) -> list[Row]:
        runs = [run for run in results.every_seed(f"{task}-vanilla") if run.weights]
        return [about(run) | measure(AttentionStudy(run)) for run in runs]

    return rows


def needed_cells(study: AttentionStudy) -> Row:
    """Of each attention its best head's on the needed cell, inside the training length and beyond.

    `left` is how much of what is more than evenly spread attention inside is left beyond. (Evenly spread over the few
    tokens before it, self-attention has much of the cell anyway.)
    """
    row: Row = {}
    heads = study.best_heads()
    columns = [f"{study.length} digits, {part}" for part in ("inside", "beyond")]
    for name in ENCODER_DECODER:
        inside, beyond = heads[heads.attention == name].sort_values(columns[0]).iloc[-1][columns]
        even_inside, even_beyond = even(study, name)
        left = (beyond - even_beyond) / (inside - even_inside)
        row |= {f"{name}_inside": inside, f"{name}_beyond": beyond, f"{name}_left": left}
    return row


def even(study: AttentionStudy, name: Attention) -> tuple[float, float]:
    """Mean mass, inside the training length and beyond, of attention that is evenly spread over open keys."""
    layout = study.batch(study.length).layout
    cells = torch.ones(1, 1, layout.target_length, key_count(layout, name))
    cells = cells.tril() if name == "self" else cells
    (row,) = masses({(name, 0): cells / cells.sum(-1, keepdim=True)}, layout, study.trained_places).to_dict("records")
    return row["inside"], row["beyond"]


def best_heads(studies: Sequence[AttentionStudy]) -> pd.DataFrame:
    """`AttentionStudy.best_heads` of several tasks."""
    rows = pd.concat({study.run.spec.task.title: study.best_heads() for study in studies}, names=["task"])
    return rows.round(3).reset_index("task").reset_index(drop=True)


def operands(study: AttentionStudy) -> Row:
    """Of Addition how many heads look at one operand at least twice as much as at the other: first, second, heads.

    `untrained` is how many look at either so in the model that the training began with.
    """
    heads = by_operand(study)
    first, second = preferring(heads)
    untrained = preferring(by_operand(study, study.run.spec.build(study.run.seed)))
    return {"first": first, "second": second, "untrained": sum(untrained), "heads": len(heads)}


def preferring(sources: pd.DataFrame) -> tuple[int, int]:
    """How many heads look at the first operand at least twice as much as at the second, and the other way round."""
    ratio = sources["operand 1"] / sources["operand 2"]
    return int((ratio >= 2).sum()), int((ratio <= 0.5).sum())


def by_operand(study: AttentionStudy, model: Transformer | None = None) -> pd.DataFrame:
    """The share of each cross-attention head (row) on each operand (column) at training length, of any model."""
    batch = study.batch(TRAINED)
    every = record(model or study.model, batch, average=True).weights
    kept = [own for (name, _), own in every.items() if name == "cross"]
    means = torch.cat([weights[:, : batch.layout.width].mean(1) for weights in kept]).numpy()  # (head, key)
    operands = enumerate(batch.layout.operands, 1)
    return pd.DataFrame({f"operand {number}": means[:, part.columns].sum(-1) for number, part in operands})


def needed_digits(study: AttentionStudy) -> Row:
    """Over output digits the correlation of attention on the needed digit with accuracy, and the latter's spread."""
    batch = study.batch(study.length)
    accuracy = pd.Series(correct_tokens(study.model, batch)[:, : batch.layout.width].float().mean(0).numpy())
    mass = pd.Series(weakest_operand(record(study.model, batch).weights, batch.layout))
    return {"correlation": mass.corr(accuracy), "spread": np.ptp(accuracy)}


def weakest_operand(weights: Mapping[tuple[Attention, int], Tensor], layout: Layout) -> np.ndarray:
    """Cross-attention on the needed digit by step: its best head's, of the operand that is looked at least."""
    cross = torch.cat([own for (name, _), own in weights.items() if name == "cross"], dim=1)
    operands = range(len(layout.operands))
    best = [on_cells(cross, needed(layout, "cross", operand), layout).amax(0) for operand in operands]
    return torch.stack(best).amin(0).numpy()


def of_studies(measure: Callable[[CalibrationStudy], Row]) -> Callable[[Results], list[Row]]:
    """A measure of every run of ABC."""
    return lambda results: [about(run) | measure(CalibrationStudy(run)) for run in results.runs(results.names("abc"))]


def costs(study: CalibrationStudy) -> Row:
    """Problems seen to 99% in validation, ABC's over the plain model's: between `low` and `high`; and seconds."""
    (before, own), (parent_before, parent) = map(problems_seen, (study.run, study.parent_run))
    return {"low": before / parent, "high": own / max(parent_before, 1), "seconds": cost(study)["seconds"]}


def problems_seen(run: Run) -> tuple[int, float]:
    """Problems seen at the last validation below 99%, and at the next one, infinite if there was none."""
    first, steps = reached(run, BAR), run.table("history").step
    below = steps[steps < first["step"]]
    return problems(run, int(below.max())) if len(below) else 0, first["problems"]


def cost(study: CalibrationStudy) -> dict[str, object]:
    """Task, seed, threshold, lines, skill left, and what retraining costs, in shares of what the parent cost.

    `problems`, `steps` and `seconds` (with calibration; they depend on how busy the machine was) up to the first
    validation of 99%, infinite if there was none; `whole` is the problems of both to their end.
    """
    tried = study.run.table("thresholds").iloc[-1]
    own, parent = reached(study.run, BAR), reached(study.parent_run, BAR)
    own["seconds"] += study.run.facts["calibration_seconds"]
    row = {"task": study.run.spec.task.title, "seed": study.run.seed, "share": tried.share}
    row |= {"lines": len(study.bias.lines), "skill": tried.skill}
    costs = {"problems": "problems", "steps": "step", "seconds": "seconds"}
    row |= {name: own[of] / parent[of] if parent[of] < math.inf else math.inf for name, of in costs.items()}
    return row | {"whole": problems(study.run) / problems(study.parent_run)}


def of_last_layer(study: CalibrationStudy) -> list[Line]:
    return [line for line in study.bias.lines if (line.attention, line.layer) == ("cross", study.last)]


def followed(study: CalibrationStudy) -> Row:
    """How many heads of the last layer have lines that follow something in cross-attention.

    Of the two operands only the `first`, or only the `second`; the `number` or its sign; the `digit` of N x 1.
    """
    spans: list[set[str]] = [set() for _ in range(study.bias.heads)]
    for line in of_last_layer(study):
        spans[line.head].add(line.span)
    both = {"operand 1", "operand 2"}
    return {
        "first": sum(own & both == {"operand 1"} for own in spans),
        "second": sum(own & both == {"operand 2"} for own in spans),
        "number": sum(bool(own & {"operand 1", "*"}) for own in spans),
        "digit": sum("operand 2" in own for own in spans),
        "heads": len(spans),
    }


def open_elements(study: CalibrationStudy) -> Row:
    """The `share` of the open elements of the last layer's cross-attention that lie on anti-diagonals.

    In how many of its `heads` there is one (`with_one`).
    """
    sizes: Counter[str] = Counter()
    for line in of_last_layer(study):
        sizes[line.direction] += len(cells_of(line, study.layout)[0])
    with_one = {line.head for line in of_last_layer(study) if line.direction == "antidiagonal"}
    share = sizes["antidiagonal"] / max(1, sizes.total())
    return {"share": share, "with_one": len(with_one), "heads": study.bias.heads}


def classified(results: Results) -> list[Row]:
    """Accuracy (percent) of Parity as classification beyond ten digits; at `constant` lengths of one answer."""
    rows = []
    for run in results.existing_runs(names_of("classifier", profile=results.profile)):
        tests, constant = run.evaluation(), 0
        for length, samples, correct in zip(tests.length, tests.samples, tests.correct, strict=True):
            answers = run.spec.sampler.test_batch(length, samples, TEST_SEED).target[:, 1]
            constant += correct in answers.bincount().tolist()
        far = 100 * tests.accuracy[tests.length >= 10]
        rows.append(about(run) | {"least": far.min(), "most": far.max(), "constant": constant, "lengths": len(tests)})
    return rows


def verticals(results: Results) -> list[Row]:
    """Of the attention on vertical lines the `share` on tokens that carry no digit, of all tasks: a row a seed."""
    names, by_seed = results.names("abc"), dict[int, list[CalibrationStudy]]()
    for study in (CalibrationStudy(run) for name in names for run in results.every_seed(name)):
        with suppress(InputError):  # another plain model is there
            if study.parent_run.weights:
                by_seed.setdefault(study.run.seed, []).append(study)
    rows, regime = [], PROFILES[results.profile].regime
    for seed, studies in by_seed.items():
        if len(studies) == len(names):
            lines = pd.concat([strong_verticals(study) for study in studies])
            share = lines.share[~lines.token.str.startswith("operand")].sum() / lines.share.sum()
            about_seed = {"task": "", "model": "abc-unpractised", "base": 0, "seed": seed, "regime": regime}
            rows.append(about_seed | {"share": float(share)})
    return rows


def strong_verticals(study: CalibrationStudy) -> pd.DataFrame:
    """Strong vertical lines of cross-attention wherever they stand: token, share of a head's attention."""
    tokens, wanted, rows = dict(study.layout.symbols), Calibration(anchor="whole", share=SHARE), []
    for number, operand in enumerate(study.layout.operands, 1):
        tokens |= dict.fromkeys(operand.columns.tolist(), f"operand {number}")
    for (name, layer), weights in study.averages.items():
        for line in calibrate(weights, None, "cross", wanted, layer) if name == "cross" else []:
            if line.direction == "vertical":
                rows.append((tokens[line.offset], weights[line.head, :, line.offset].mean().item()))
    return pd.DataFrame(rows, columns=["token", "share"])


def indices(results: Results) -> list[Row]:
    """Whether ABC's index in figure 12 is j - i, as RPE's, and the strongest offset of each on Successor."""
    index = connections.indices()["ABC, read from 3 x 5"]
    equal = np.isnan(index) | (index == connections.offsets(*index.shape))
    offsets = connections.on_successor(results)
    strongest = {name.lower(): int(offsets.sort_values(name)["offset"].iloc[-1]) for name in ("ABC", "RPE")}
    return [about(results.first_run("successor-abc-unpractised")) | {"equal": bool(equal.all())} | strongest]


def lacking(results: Results) -> list[Row]:
    """Runs of Algorithm 1, with the percentage of small problems that is `wrong` in any model with these lines.

    It is NaN of models with positions. Some were trained `longer`: ten times as many steps, unless they learned before.
    """
    studies = "algorithm 1", "padded", "deep", "paper size", "paper size and batch"
    names = [name for name in names_of(*studies, profile=results.profile) if name.model.startswith("algorithm-1")]
    rows = []
    for run in results.existing_runs(names):
        wrong = 100 * unlearnable.least_wrong(run.spec, run.bias())
        rows.append(accuracies(run) | {"wrong": wrong, "longer": run.spec.identity.model in LONGER})
    return rows


def one_attention(results: Results) -> list[Row]:
    """Of ABC the percentage of small problems that is wrong in any model with its lines in one attention alone.

    Validation and accuracies are those of the model trained with its lines in `cross`-attention, where there is one.
    """
    names = [replace(name, model="abc") for name in names_of("lines of cross-attention", profile=results.profile)]
    trained = measured(results, "lines of cross-attention").drop(columns=["model", "regime"])
    rows = []
    for run in results.existing_runs(names):
        wrong = {
            f"{name}_wrong": 100 * unlearnable.least_wrong(run.spec, run.bias().alone(name)) for name in ENCODER_DECODER
        }
        rows.append(about(run) | wrong)
    both: list[Any] = (
        frame(rows)
        .drop(columns="validation")
        .merge(trained, how="left", on=["task", "base", "seed"])
        .to_dict("records")
    )
    return both


def changes(results: Results) -> list[Row]:
    """How far the change of the logits differs between inputs, by ABC's bias and by LoRA, on Parity."""
    spread = connections.on_parity(results).groupby("method").spread.max()
    return [about(results.first_run("parity-lora")) | {"abc": spread["ABC"], "lora": spread["LoRA"]}]


MEASURES: dict[str, Callable[[Results], list[Row]]] = {
    "needed cells": plain("successor", needed_cells),
    "operands": plain("addition", operands),
    "needed digits of successor": plain("successor", needed_digits),
    "needed digits of addition": plain("addition", needed_digits),
    "costs": of_studies(costs),
    "followed": of_studies(followed),
    "open elements": of_studies(open_elements),
    "classified": classified,
    "verticals": verticals,
    "indices": indices,
    "changes": changes,
    "lacking": lacking,
    "one attention": one_attention,
    "encoder alone": encoder_only.rows,
}
