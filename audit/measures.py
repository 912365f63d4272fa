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
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import TRAINED
from abc_nb.runs.store import Run
from abc_nb.specs.recipes import PROFILES
from abc_nb.training.evaluation import TEST_SEED, attention_of, correct_tokens
from audit import connections, encoder_only, unlearnable
from audit.models import LONGER
from audit.results import Results, problems, reached
from audit.statistics import BAR
from audit.studies import names_of

Row = dict[str, Any]
ABOUT = ["task", "model", "base", "seed", "regime", "validation"]  # which run a row is of, and how well it learned


def measured(results: Results, source: str) -> pd.DataFrame:
    """The rows of a measure, by its name in `MEASURES`, or else the accuracies of a study's runs that are there."""
    if source in MEASURES:
        return frame(MEASURES[source](results))
    return frame([accuracies(run) for run in results.existing_runs(names_of(source, profile=results.profile))])


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


def of_plain_models(task: str, measure: Callable[[AttentionStudy], Row]) -> Callable[[Results], list[Row]]:
    """A measure of every plain model of a task whose weights are there."""
    return lambda results: [
        about(run) | measure(AttentionStudy(run)) for run in results.every_seed(f"{task}-vanilla") if run.weights
    ]


def needed_cells(study: AttentionStudy) -> Row:
    """How much of each attention its best head has on the needed cell, inside the training length and beyond.

    Attention that is evenly spread has some of the cell, too, and over the few tokens of self-attention much of it.
    `left` is how much of what the head has above that inside is left beyond.
    """
    row: Row = {}
    heads = study.best_heads()
    columns = [f"{study.length} digits, {part}" for part in ("inside", "beyond")]
    for name in ENCODER_DECODER:
        inside, beyond = heads[heads.attention == name].sort_values(columns[0]).iloc[-1][columns]
        even_inside, even_beyond = even_masses(study, name)
        left = (beyond - even_beyond) / (inside - even_inside)
        row |= {f"{name}_inside": inside, f"{name}_beyond": beyond, f"{name}_left": left}
    return row


def even_masses(study: AttentionStudy, name: Attention) -> tuple[float, float]:
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
    ratios, batch = [], study.batch(TRAINED)
    for model in (study.model, study.run.spec.build(study.run.seed)):
        attention = attention_of(model, batch, average=True).weights
        means = cross_heads(attention)[:, : batch.layout.width].mean(1).numpy()  # (head, key)
        first, second = (means[:, operand.columns].sum(-1) for operand in batch.layout.operands)
        ratios.append(first / second)
    trained, untrained = ratios
    row = {"first": int((trained >= 2).sum()), "second": int((trained <= 0.5).sum())}
    return row | {"untrained": int(((untrained >= 2) | (untrained <= 0.5)).sum()), "heads": len(trained)}


def cross_heads(weights: Mapping[tuple[Attention, int], Tensor]) -> Tensor:
    """Cross-attention of all layers' heads: (..., head, query, key)."""
    return torch.cat([matrix for (name, _), matrix in weights.items() if name == "cross"], dim=-3)


def needed_digits(study: AttentionStudy) -> Row:
    """Over output digits the correlation of attention on the needed digit with accuracy, and the latter's spread."""
    batch = study.batch(study.length)
    accuracy = pd.Series(correct_tokens(study.model, batch)[:, : batch.layout.width].float().mean(0).numpy())
    mass = pd.Series(weakest_operand(attention_of(study.model, batch).weights, batch.layout))
    return {"correlation": mass.corr(accuracy), "spread": np.ptp(accuracy)}


def weakest_operand(weights: Mapping[tuple[Attention, int], Tensor], layout: Layout) -> np.ndarray:
    """Cross-attention on the needed digit by step: its best head's, of the operand that is looked at least."""
    cross, operands = cross_heads(weights), range(len(layout.operands))
    best = [on_cells(cross, needed(layout, "cross", operand), layout).amax(0) for operand in operands]
    return torch.stack(best).amin(0).numpy()


def of_abc(measure: Callable[[CalibrationStudy], Row]) -> Callable[[Results], list[Row]]:
    """A measure of every run of ABC."""
    return lambda results: [about(run) | measure(CalibrationStudy(run)) for run in results.runs(results.names("abc"))]


def costs(study: CalibrationStudy) -> Row:
    """Problems seen to 99% in validation, ABC's over the plain model's: between `low` and `high`; and seconds."""
    (low, high), (parent_low, parent_high) = map(problems_seen, (study.run, study.parent_run))
    return {"low": low / parent_high, "high": high / max(parent_low, 1), "seconds": cost(study)["seconds"]}


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
    threshold = study.run.table("thresholds").iloc[-1]
    first, parent_first = reached(study.run, BAR), reached(study.parent_run, BAR)
    first["seconds"] += study.run.facts["calibration_seconds"]
    row = {"task": study.run.spec.task.title, "seed": study.run.seed, "share": threshold.share}
    row |= {"lines": len(study.bias.lines), "skill": threshold.skill}
    for column, unit in (("problems", "problems"), ("steps", "step"), ("seconds", "seconds")):
        row[column] = first[unit] / parent_first[unit] if parent_first[unit] < math.inf else math.inf
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
    first, second = "operand 1", "operand 2"
    return {
        "first": sum(first in head and second not in head for head in spans),
        "second": sum(second in head and first not in head for head in spans),
        "number": sum(first in head or "*" in head for head in spans),
        "digit": sum(second in head for head in spans),
        "heads": len(spans),
    }


def open_elements(study: CalibrationStudy) -> Row:
    """The `share` of the open elements of the last layer's cross-attention that lie on anti-diagonals.

    `with_one` is how many of its `heads` have one.
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
    tokens, settings, rows = dict(study.layout.symbols), Calibration(anchor="whole", share=SHARE), []
    for number, operand in enumerate(study.layout.operands, 1):
        tokens |= dict.fromkeys(operand.columns.tolist(), f"operand {number}")
    for (name, layer), weights in study.averages.items():
        for line in calibrate(weights, None, "cross", settings, layer) if name == "cross" else []:
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


def algorithm_1(results: Results) -> list[Row]:
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
        row = about(run)
        for name in ENCODER_DECODER:
            row[f"{name}_wrong"] = 100 * unlearnable.least_wrong(run.spec, run.bias().alone(name))
        rows.append(row)
    wrong = frame(rows).drop(columns="validation")
    merged: list[Any] = wrong.merge(trained, how="left", on=["task", "base", "seed"]).to_dict("records")
    return merged


def changes(results: Results) -> list[Row]:
    """How far the change of the logits differs between inputs, by ABC's bias and by LoRA, on Parity."""
    spread = connections.on_parity(results).groupby("method").spread.max()
    return [about(results.first_run("parity-lora")) | {"abc": spread["ABC"], "lora": spread["LoRA"]}]


MEASURES: dict[str, Callable[[Results], list[Row]]] = {
    "needed cells": of_plain_models("successor", needed_cells),
    "operands": of_plain_models("addition", operands),
    "needed digits of successor": of_plain_models("successor", needed_digits),
    "needed digits of addition": of_plain_models("addition", needed_digits),
    "costs": of_abc(costs),
    "followed": of_abc(followed),
    "open elements": of_abc(open_elements),
    "classified": classified,
    "verticals": verticals,
    "indices": indices,
    "changes": changes,
    "lacking": algorithm_1,
    "one attention": one_attention,
    "encoder alone": encoder_only.rows,
}
