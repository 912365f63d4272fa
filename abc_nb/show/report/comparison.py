"""Saved tables for a reader: the paper's number beside ours, and a mark where the two differ."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from abc_nb.analysis.statistics import TOLERANCE, median_and_range, percent, seed_counts, seeds_in_words
from abc_nb.problems.tasks import unit_of
from abc_nb.show.titles import named, of_model, of_task

HIGHER, LOWER, OTHER = "▲", "▼", "≠"  # ours, seen from the paper's number
MEANING = {HIGHER: "higher than the paper", LOWER: "lower than the paper", OTHER: "differs from the paper"}
FOLDED = 24  # rows of a plain table from which on it is shown on demand
KEYS = ["task", "model", "length"]
BY_SEED = {*KEYS, "seed", "accuracy", "ci_low", "ci_high", "samples", "regime"}
NEEDED = {*KEYS, "ours", "worst", "best", "ci_low", "ci_high", "samples", "seeds", "regime"}


@dataclass(frozen=True)
class Cell:
    """One accuracy in percent, as text."""

    paper: str
    ours: str  # the median seed and, where they differ, the worst and the best
    interval: str
    mark: str


@dataclass(frozen=True)
class Comparison:
    """Accuracies by length, a row a model, in groups of one task; None where there is no number."""

    lengths: tuple[int, ...]
    groups: tuple[tuple[str, tuple[tuple[str, tuple[Cell | None, ...]], ...]], ...]
    has_paper: bool
    has_range: bool  # in some cell
    note: str

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns: the lengths, in what they count."""
        units = dict.fromkeys(unit_of(task) for task, _ in self.groups)
        many, one = " or ".join(units), " or ".join(unit.removesuffix("s") for unit in units)
        return tuple(f"{length} {one if length == 1 else many}" for length in self.lengths)


@dataclass(frozen=True)
class Plain:
    """Any other table as text; `numeric` says of each column whether it holds numbers only."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    note: str = ""


def mark(paper: float, low: float, high: float) -> str:
    """Where our interval lies: above the paper's number, below it, or (nothing) around it."""
    if paper < low - TOLERANCE:
        return HIGHER
    return LOWER if paper > high + TOLERANCE else ""


def read(path: Path) -> Comparison | Plain:
    """A table as `tables.save` wrote it: a comparison if it has accuracies by length, plain otherwise."""
    frame = named(pd.read_csv(path))
    if set(frame) >= BY_SEED:
        frame = one_by_one(frame)
    if frame.empty or not set(frame) >= NEEDED:
        return plain(path)
    if frame.regime.nunique() > 1:
        frame = frame.assign(model=frame.model + ", " + frame.regime)
    if (counts := seed_counts(frame)).nunique() > 1:
        frame = frame.assign(model=frame.model + ", " + counts + np.where(counts == "1", " seed", " seeds"))
    return plain(path) if frame.duplicated(KEYS).any() else comparison(frame)


def one_by_one(frame: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of single runs as `statistics.over_seeds` of one seed each."""
    percent = 100 * frame[["accuracy", "ci_low", "ci_high"]]
    seeds = {name: percent.accuracy for name in ("ours", "worst", "best")}
    model = frame.model + ", seed " + frame.seed.astype(str)
    return frame.assign(**percent, **seeds, model=model, seeds=1)


def comparison(frame: pd.DataFrame) -> Comparison:
    """From the columns of `tables.beside_paper`, or of `statistics.over_seeds` where the paper has no number."""
    lengths = tuple(sorted({int(length) for length in frame.length}))
    cells = {(row.task, row.model, row.length): cell(row) for _, row in frame.iterrows()}
    groups = []
    for task, part in frame.groupby("task", sort=False):
        models = [(str(model), tuple(cells.get((task, model, length)) for length in lengths)) for model in unique(part)]
        groups.append((str(task), tuple(models)))
    return Comparison(lengths, tuple(groups), "paper" in frame, bool((frame.best > frame.worst).any()), note(frame))


def unique(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame.model))


def cell(row: pd.Series) -> Cell:
    """One row of a saved table as text."""
    paper = float(row.get("paper", float("nan")))
    return Cell(
        paper="" if pd.isna(paper) else f"{paper:.4g}",
        ours=median_and_range(row),
        interval=f"{percent(row.ci_low)}–{percent(row.ci_high)}",
        mark=mark(paper, row.ci_low, row.ci_high),
    )


def note(frame: pd.DataFrame) -> str:
    """Regime, problems and seeds, in one sentence."""
    regime = " and ".join(f"{name}" for name in dict.fromkeys(frame.regime))
    few, many = (f"{count:,}" for count in (frame.samples.min(), frame.samples.max()))
    problems = few if few == many else f"{few} to {many}"
    return (
        f"Exact match in percent; {regime} regime, {problems} problems of each length, {seeds_in_words(frame)} a row."
    )


def plain(path: Path) -> Plain:
    """Cell by cell as text, so that what looks like a number but is a token stays as it is."""
    with path.open(newline="") as lines:
        head, *rows = csv.reader(lines)
    numeric = tuple(all(is_number(row[i]) for row in rows if row[i]) for i in range(len(head)))
    rows = [[titled(column, text) for column, text in zip(head, row, strict=True)] for row in rows]
    shown = tuple(tuple(short(text) for text in marked(head, row)) for row in rows)
    differs = any(text.endswith(OTHER) for row in shown for text in row)
    return Plain(
        tuple(name.replace("_", " ") for name in head),
        shown,
        numeric,
        f"{OTHER}: ours is not what the paper has." if differs else "",
    )


def titled(column: str, text: str) -> str:
    """The title of a task or a model, where a column names one; any other text as it is."""
    return of_task(text) if column == "task" else of_model(text) if column == "model" else text


def marked(head: list[str], row: list[str]) -> list[str]:
    """Mark what stands under `X, ours` where it is not what stands under `X, paper`."""
    values = dict(zip(head, row, strict=True))
    ours = {name for name in head if name.endswith(", ours")}
    differing = {name for name in ours if values.get(name.removesuffix("ours") + "paper", values[name]) != values[name]}
    return [f"{text} {OTHER}" if name in differing else text for name, text in values.items()]


def short(text: str) -> str:
    """Four digits of a fraction, and at most four decimal places; anything else unchanged."""
    if not is_number(text) or text.lstrip("-").isdigit():
        return text
    value = float(text)
    if math.isinf(value):
        return "never"  # a step that no training came to
    if 0 < abs(value) < 1e-4:
        return "< 0.0001" if value > 0 else "> -0.0001"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
