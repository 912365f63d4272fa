"""Curves and bars: each function takes frames and returns a Figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from abc_nb.analysis.calibration_study import CalibrationStudy, letters
from abc_nb.analysis.statistics import median_seed
from abc_nb.problems.tasks import TRAINED
from abc_nb.show.pictures import COLORS, STYLE, WIDTH, heat_map, new_figure, outline, with_tokens
from abc_nb.show.titles import length_unit, named, of_model, of_task

LOOKS = {"Vanilla": 7, "NoPE": 6, "RoPE": 8, "ALiBi": 5, "RPE": 9, "Window": 1, "Window, no positions": 4}
LOOKS |= {"ABS": 2, "ABC": 0}  # the colour of each model's curve
TICKS = (1, 6, 10, 60, 200, 1000, 10_000)  # lengths
GAP = 9.0  # percent of the panel's height between two labels
DIGITS = 16  # of the sums that the headline's bias is drawn for


def color_of(model: str) -> Any:
    """A model's colour; of one that has none here, the one that follows from its name."""
    return COLORS[LOOKS.get(model, crc32(model.encode()) % 10)]


def curves(panel: Axes, rows: pd.DataFrame, trained: int = TRAINED) -> None:
    """One task's curves: lines are the median over seeds, bands run from the worst to the best (columns as results).

    Each curve is thinner than those below it, so that curves that lie on each other can all be seen.
    """
    ends = {}
    models = sorted(dict.fromkeys(rows.model), key=lambda model: model not in LOOKS)
    for width, model in zip(np.linspace(6.5, 1.5, max(2, len(models))), models, strict=False):
        grouped = (100 * rows[rows.model == model].set_index("length").accuracy).groupby("length")
        line, color = grouped.agg(median_seed), color_of(model)
        panel.plot(line.index, line, linewidth=width, color=color)
        panel.fill_between(line.index, grouped.min(), grouped.max(), color=color, alpha=0.18, linewidth=0)
        ends[model] = (float(line.index[-1]), float(line.iloc[-1]))
    longest = int(rows.length.max())
    shade(panel, trained)
    panel.set(xscale="log", xlim=(0.9, 1.2 * longest), ylim=(-14, 112), ylabel="right (%)")
    panel.set_xlabel(f"length ({length_unit(rows.task.iloc[0])})")
    ticks = [tick for tick in TICKS if tick <= longest]
    panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    panel.set_xticks([], minor=True)
    label_ends(panel, ends)


@rc_context(STYLE)
def by_length(rows: pd.DataFrame, tasks: Sequence[str]) -> Figure:
    """`curves` of the shown models, a panel a task (figures 1 and 4)."""
    figure, panels = new_figure(len(tasks), size=(4.6, 3.0))
    for panel, task in zip(panels, tasks, strict=True):
        curves(panel, named(rows[rows.task == task]))
        panel.set(title=of_task(task), xlim=(0.9, rows.length.max()))
    return figure


def label_ends(panel: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Write each curve's name where it ends, in its colour; names that would lie on each other are moved apart."""
    furthest, below, side = max(x for x, _ in ends.values()), -math.inf, 1
    for model, (x, y) in sorted(ends.items(), key=lambda item: item[1][1]):
        look: dict[str, Any] = {"color": color_of(model), "fontsize": 9, "textcoords": "offset points"}
        if x < furthest:
            panel.annotate(model, (x, y), xytext=(0, 11 * side), ha="center", va="center", **look)
            side = -side
        else:
            below = max(y, below + GAP)
            panel.annotate(model, (x, below), xytext=(6, 0), va="center", annotation_clip=False, **look)


def shade(panel: Axes, trained: int) -> None:
    """The lengths of training in grey, with a line where they end."""
    panel.axvspan(0, trained + 0.5, color="0.92", zorder=0)
    panel.axvline(trained + 0.5, color="0.5", linewidth=0.8, linestyle=":", zorder=1)


@rc_context(STYLE)
def headline(study: CalibrationStudy, rows: pd.DataFrame, certified: dict[str, str]) -> Figure:
    """The whole project: averaged attention with its lines, the bias for sixteen digits, accuracy by length.

    `rows` are evaluation rows of one task; `certified` says of a model how many of its runs are certified.
    """
    layer, head = study.strongest_head("cross", "antidiagonal")
    figure, (seen, extended, right) = new_figure(3, size=(4.5, 3.6), width_ratios=[3.6, 4.2, 4.6])
    image = heat_map(seen, study.averages["cross", layer][head].numpy(), vmin=0, vmax=1)
    figure.colorbar(image, ax=seen, label="attention", fraction=0.04, pad=0.01)
    outline(seen, study.opened("cross", layer)[head])
    with_tokens(seen, *letters(study.layout))
    seen.set(title="1. What a plain model looks at", ylabel="output token, units first")
    bias = study.extended("cross", layer, DIGITS)[head]
    image = heat_map(extended, bias, vmin=bias[np.isfinite(bias)].min() - 0.1, vmax=0)
    figure.colorbar(image, ax=extended, label="added to the logit (grey: closed)", fraction=0.04, pad=0.01)
    with_tokens(extended, *study.letters(DIGITS), size=5)
    extended.set(title="2. Its lines, extended: the bias of a new model")
    for panel in (seen, extended):
        panel.set_xlabel("problem: digits of the numbers a and b")
    curves(right, named(rows))
    right.set(title="3. Right answers by length")
    beyond(right, int(rows.length.max()), {of_model(model): count for model, count in certified.items()})
    return figure


def beyond(panel: Axes, longest: int, certified: dict[str, str]) -> None:
    """What is proved of lengths that no test has, to the right of the longest one: an arrow, and who is certified."""
    left, right = 5.0 * longest, 500.0 * longest
    middle: dict[str, Any] = {"x": (left * right) ** 0.5, "ha": "center", "va": "center", "fontsize": 9}
    panel.axvspan(left, right, color="0.96", zorder=0)
    panel.annotate("", (right, 100), (left, 100), arrowprops={"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.5})
    panel.text(y=85, s="certified for\nevery length", color="0.3", **middle)
    for place, (model, count) in enumerate(certified.items()):
        panel.text(y=70 - 9 * place, s=f"{model}: {count}", color=color_of(model), **middle)
    panel.set_xlim(0.9, right)


@rc_context(STYLE)
def reach(table: pd.DataFrame) -> Figure:
    """From the training length to the longest length that holds, a line a system (columns of `tables.reach`)."""
    figure, (panel,) = new_figure(size=(1.6 * WIDTH, 0.3 * len(table) + 0.7))
    for row, (system, trained, tested) in enumerate(table[["system", "trained", "tested"]].itertuples(index=False)):
        color = COLORS[1] if system.endswith("here") else "0.45"
        panel.plot([trained, tested], [row, row], color=color, linewidth=2.5, marker="|", markersize=9)
        panel.text(1.15 * tested, row, f"{tested:,}", va="center", fontsize=7)
    panel.set(xscale="log", xlabel="digits: trained on, holds to", xlim=(4, 40 * table.tested.max()))
    panel.set_yticks(range(len(table)), table.system)
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    return figure


@rc_context(STYLE)
def mass_and_accuracy(frame: pd.DataFrame, title: str, trained: int = TRAINED) -> Figure:
    """By decoding step: attention on the needed cell and digit accuracy (columns step, mass, accuracy)."""
    figure, (panel,) = new_figure()
    named = {"accuracy": ("right digits", "o"), "mass": ("attention on the needed digit", "s")}
    for color, (column, (name, marker)) in zip(COLORS, named.items(), strict=False):
        panel.plot(frame.step + 1, frame[column], color=color, marker=marker, markersize=3, label=name)
    shade(panel, trained)
    panel.set(title=title, xlabel="output digit, units first", ylabel="share", ylim=(-0.04, 1.04))
    panel.set_xlim(0.5, len(frame) + 0.5)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


@rc_context(STYLE)
def offsets(frame: pd.DataFrame) -> Figure:
    """Bars by offset, in columns to the right of the needed digit: RPE's learned bias and ABC's share of attention."""
    figure, panels = new_figure(2, size=(WIDTH * 0.85, 2.0))
    named = {"RPE": "added to the logit", "ABC": "share of attention"}
    for panel, (name, unit), color in zip(panels, named.items(), COLORS, strict=False):
        panel.bar(frame.offset, frame[name], color=color)
        panel.set(title=name, xlabel="columns to the right of the needed digit", ylabel=unit)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(False, axis="x")
    return figure
