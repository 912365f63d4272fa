"""One calibration to look at: the parent's averaged attention, its lines, and the bias they become."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from torch import Tensor

from abc_nb.analysis.results import Results
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line, Lines, cells_of
from abc_nb.calibration.calibrate import SHARE, Calibration, calibrate
from abc_nb.calibration.diagnosis import INTERPOLATES, diagnose
from abc_nb.calibration.of_model import Calibrated, average_attention, calibrate_model
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.training.answers import answers

COSTS = {"problems": "problems", "steps": "step", "seconds": "seconds"}


@dataclass(frozen=True)
class CalibrationStudy:
    """What an ABC run was made from. Raises InputError for a run without calibration."""

    run: Run

    def __post_init__(self) -> None:
        if self.run.experiment.calibration is None:
            raise InputError(
                f"{self.run.experiment.name} has no calibrated bias: take an experiment such as addition-abc"
            )

    @cached_property
    def bias(self) -> Lines:
        bias = self.run.bias()
        assert bias is not None
        return bias

    @cached_property
    def known_parent(self) -> Run | None:
        """The run that was calibrated, if it is there: not another one of its name with other weights."""
        experiment, wanted = self.run.experiment.parent, self.run.manifest["parent"]["weights"]
        assert experiment is not None
        runs = (store.find(experiment, self.run.seed, (origin,)) for origin in store.ANYWHERE)
        return next((run for run in runs if run is not None and run.checksum in (None, wanted)), None)

    @property
    def parent_run(self) -> Run:
        """The run that was calibrated, made here or shipped. InputError if it is not there."""
        if self.known_parent is None:
            name, experiment = self.run.experiment.name, self.run.experiment.parent
            assert experiment is not None
            raise InputError(f"the {experiment.name} that {name} was calibrated from is not there: train {name} here")
        return self.known_parent

    @cached_property
    def parent(self) -> Transformer:
        return self.parent_run.model()

    @cached_property
    def batch(self) -> Batch:
        """The training problems that attention was averaged over."""
        return self.run.experiment.calibration_batch(self.run.seed)

    @property
    def sampler(self) -> Sampler:
        experiment = self.run.experiment.parent or self.run.experiment
        return experiment.sampler

    @property
    def layout(self) -> Layout:
        return self.batch.layout

    @cached_property
    def averages(self) -> dict[tuple[Attention, int], Tensor]:
        """The parent's attention (head, query, key), averaged."""
        return average_attention(self.parent, self.batch)

    @cached_property
    def lines(self) -> pd.DataFrame:
        """Every kept line."""
        return line_table(self.bias.lines, self.averages, self.layout)

    def verticals(self) -> pd.DataFrame:
        """Strong vertical lines of cross-attention wherever they stand: token, share of a head's attention.

        Not of self-attention: there the first query sees one token alone, which is a vertical line by itself.
        """
        wanted, rows = Calibration(anchor="whole", share=SHARE), []
        cross = {layer: weights for (name, layer), weights in self.averages.items() if name == "cross"}
        for layer, weights in cross.items():
            for line in calibrate(weights, None, "cross", wanted, layer):
                if line.direction == "vertical":
                    share = weights[line.head, :, line.offset].mean().item()
                    rows.append((token_at(self.layout, line.offset), share))
        return pd.DataFrame(rows, columns=["token", "share"])

    @property
    def layers(self) -> int:
        return self.run.experiment.model.decoder_layers

    @property
    def last(self) -> int:
        """The last decoder layer, counted from 0."""
        return self.layers - 1

    @property
    def head_titles(self) -> list[str]:
        return [f"head {head + 1}" for head in range(self.bias.heads)]

    def strongest_head(self, name: Attention, direction: str) -> tuple[int, int]:
        """Layer and head (from 0) of the line in this direction that carries most attention."""
        lines = self.lines
        chosen = lines[(lines.attention == name) & (lines.direction == direction)]
        if chosen.empty:
            raise InputError(f"no {direction} line was kept in {name}-attention of {self.run.experiment.name}")
        best = chosen.sort_values("share").iloc[-1]
        return int(best["layer"]) - 1, int(best["head"]) - 1

    def averaged(self, name: Attention, layer: int) -> list[np.ndarray]:
        return list(self.averages[name, layer].numpy())

    def opened(self, name: Attention, layer: int) -> list[np.ndarray]:
        """Which cells of the averaged attention lie on kept lines, a boolean matrix a head."""
        return list(self.bias.covers(self.layout, name, layer).numpy())

    def with_lines(self, name: Attention, layer: int) -> tuple[list[np.ndarray], list[str], list[np.ndarray]]:
        """Averaged attention, titles and the cells on kept lines, a head each: what `maps.heads` draws."""
        return self.averaged(name, layer), self.head_titles, self.opened(name, layer)

    def extended(self, name: Attention, layer: int, layout: Layout | int) -> list[np.ndarray]:
        """The bias of every head for a layout, or for problems of a length in digits."""
        if isinstance(layout, int):
            layout = self.run.experiment.sampler.layout(layout)
        return list(self.bias.dense(layout, name, layer).numpy())

    def telling_heads(self, name: Attention, count: int, digits: int) -> tuple[list[np.ndarray], list[str]]:
        """The bias of heads with different lines for problems of `digits` digits: matrices and titles.

        Heads that follow digits come before those that rest on a symbol, and the strongest line before others.
        """
        own = self.lines[self.lines.attention == name]
        of_head = own.assign(share=own.share + own.span.str.startswith("operand")).groupby(["layer", "head"])
        kinds = {place: frozenset(zip(own.span, own.direction, own.offset, strict=True)) for place, own in of_head}
        ranked: list[tuple[int, int]] = list(of_head.share.max().sort_values(ascending=False, kind="stable").index)
        chosen = list({kinds[place]: place for place in reversed(ranked)}.values())[::-1]
        chosen = sorted(chosen, key=ranked.index)[:count]
        matrices = [self.extended(name, layer - 1, digits)[head - 1] for layer, head in chosen]
        return matrices, [f"layer {layer}, head {head}" for layer, head in chosen]

    def letters(self, digits: int | None = None) -> tuple[list[str], list[str]]:
        """What stands at each key and query of cross-attention, for problems of `digits` digits.

        Without a number, for the problems that attention is averaged over.
        """
        return letters(self.batch.layout if digits is None else self.run.experiment.sampler.layout(digits))

    def thresholds(self) -> pd.DataFrame:
        """The thresholds that were tried: share, lines, skill of the parent under those lines alone."""
        found = self.run.thresholds()
        assert found is not None
        return found

    def diagnosis(self, model: Transformer | None = None) -> list[str]:
        """Why calibration of the parent, or of another `model` for the task, should not work; empty if it can."""
        settings = self.run.experiment.calibration or Calibration()
        held_out = self.sampler.validation_batches(self.run.seed, 1000)[-1]
        if model is not None:
            return diagnose(model, held_out, calibrate_model(model, self.batch, settings))
        tried = self.thresholds()
        return diagnose(self.parent, held_out, Calibrated(self.bias, tried.share.iloc[-1], tried, settings))

    def strongest_lines(self, count: int) -> pd.DataFrame:
        """The lines of cross-attention that carry most of their head's attention."""
        cross = self.lines[self.lines.attention == "cross"].drop(columns="attention")
        return cross.sort_values("share", ascending=False, kind="stable").head(count)

    def answers(self, problem: str) -> dict[str, str]:
        """What the plain model says, the same under the bias before any retraining, ABC, and what is right."""
        sampler = self.run.experiment.sampler
        models = {
            "Vanilla": self.parent,
            "Vanilla under the bias": self.parent.with_bias(self.bias),
            "ABC": self.run.model(),
        }
        said = {title: next(answers(model, sampler, [problem])) for title, model in models.items()}
        return said | {"right": sampler.task.right_answer(problem)}

    def untrained(self) -> Transformer:
        """The parent before its training."""
        return (self.run.experiment.parent or self.run.experiment).build(self.run.seed)


def token_at(layout: Layout, column: int) -> str:
    """What stands in a column of the source: a symbol, or `operand 1`."""
    symbols = dict(layout.symbols)
    owners = [number for number, operand in enumerate(layout.operands, 1) if column in operand.columns]
    return symbols[column] if column in symbols else f"operand {owners[0]}"


def letters(layout: Layout) -> tuple[list[str], list[str]]:
    """Keys and queries of cross-attention over many problems: `a` and `b` for digits of the numbers, and the places.

    Of a table each row's first cell has the row's number.
    """
    keys = [""] * layout.source_length
    for column, symbol in layout.symbols:
        keys[column] = symbol
    for letter, operand in zip("ab", layout.operands, strict=False):
        for column in operand.columns:
            keys[column] = letter
    row = layout.row or 1
    queries = [str(step // row + 1) if step % row == 0 else "" for step in range(layout.target_length - 1)]
    return keys, [*queries, "&"]


def line_table(lines: Sequence[Line], averages: Mapping[tuple[Attention, int], Tensor], layout: Layout) -> pd.DataFrame:
    """A row a line, layers and heads counted from 1; `share` of its head's attention is on it, `value` is added."""
    rows = []
    for line in lines:
        weights = averages[line.attention, line.layer][line.head]
        share = weights[cells_of(line, layout)].sum().item() / len(weights)
        where = (line.attention, line.layer + 1, line.head + 1, line.span, line.direction, line.offset)
        rows.append((*where, share, line.value))
    names = ["attention", "layer", "head", "span", "direction", "offset", "share", "value"]
    return pd.DataFrame(rows, columns=names)


def studies(runs: Sequence[Run]) -> dict[str, list[CalibrationStudy]]:
    """The studies of each experiment's runs, in the order of their seeds."""
    found: dict[str, list[CalibrationStudy]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(run.experiment.name, []).append(CalibrationStudy(run))
    return found


def verticals(found: Results, names: Collection[str]) -> list[pd.DataFrame]:
    """Attention on vertical lines, for each seed of which every experiment's plain model is there.

    `names` are experiments such as addition-abc. The columns are those of `CalibrationStudy.verticals`.
    """
    by_seed = defaultdict[int, list[CalibrationStudy]](list)
    for study in (CalibrationStudy(run) for name in names for run in found.every_seed(name)):
        if study.known_parent is not None and study.known_parent.has_weights:
            by_seed[study.run.seed].append(study)
    complete = [own for own in by_seed.values() if len(own) == len(names)]
    return [pd.concat([study.verticals() for study in own]) for own in complete]


def retraining_costs(studies: Sequence[CalibrationStudy]) -> pd.DataFrame:
    """One row a calibration: task, seed, threshold, lines, skill left, and what retraining costs.

    The costs are shares of the parent's: `problems`, `steps` and `seconds` (with calibration; they depend on how
    busy the machine was) up to the first validation of 99%, infinite if there was none, and `whole`, the problems of
    both to their end.
    """
    rows = []
    for study in studies:
        run, tried = study.run, study.thresholds().iloc[-1]
        own, parent = run.reached(INTERPOLATES), study.parent_run.reached(INTERPOLATES)
        own["seconds"] += run.manifest["calibration_seconds"]
        row = {"task": run.experiment.task.title, "seed": run.seed, "share": tried["share"]}
        row |= {"lines": len(study.bias.lines), "skill": tried.skill}
        row |= {name: own[of] / parent[of] if parent[of] < math.inf else math.inf for name, of in COSTS.items()}
        rows.append(row | {"whole": run.problems() / study.parent_run.problems()})
    return pd.DataFrame(rows)


def costs(found: Results) -> pd.DataFrame:
    """`retraining_costs` of every run of ABC."""
    return retraining_costs([CalibrationStudy(run) for run in found.runs(found.names("abc"))])


def median_costs(costs: pd.DataFrame) -> pd.DataFrame:
    """`retraining_costs` for reading: the median of the seeds, a row a task."""
    return costs.groupby("task", sort=False).median(numeric_only=True).drop(columns="seed").round(3)


def tried(studies: Mapping[str, Sequence[CalibrationStudy]]) -> pd.DataFrame:
    """Every threshold that was tried: experiment, seed, share, lines, skill; validation where a model was trained."""
    runs = [(name, study) for name, own in studies.items() for study in own]
    parts = [study.thresholds().assign(experiment=name, seed=study.run.seed) for name, study in runs]
    return pd.concat(parts, ignore_index=True)


def chosen(thresholds: pd.DataFrame) -> pd.DataFrame:
    """Of `tried` a row a run: how many thresholds there were, and share, lines and skill of the one that is taken."""
    columns = {"tried": ("share", "size")} | {name: (name, "last") for name in ("share", "lines", "skill")}
    return thresholds.groupby(["experiment", "seed"], sort=False).agg(**columns)
