"""Curves and bars: each function takes arrays or frames and returns a Figure; `save` writes it for print."""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from abc_nb.analysis.statistics import median_seed
from abc_nb.problems.tasks import TRAINED
from abc_nb.show.pictures import COLORS, GRID, WIDTH, in_pairs, new_figure
from abc_nb.show.pictures import save as save
from abc_nb.show.titles import length_unit, named

LOOKS = {  # the colour of each model's curve
    "Vanilla": 7,
    "NoPE": 6,
    "RoPE": 8,
    "ALiBi": 5,
    "RPE": 9,
    "Window": 1,
    "Window, no positions": 4,
    "ABS": 2,
    "ABC": 0,
}
TICKS = (1, 6, 10, 60, 200, 1000, 10_000)  # lengths
GAP = 9.0  # percent of the panel's height between two labels


def look_of(model: str) -> int:
    """A model's colour; of one that has none here, the one that follows from its name."""
    return LOOKS.get(model, crc32(model.encode()) % 10)


@rc_context(GRID)
def length_curves(rows: pd.DataFrame, longest: int, trained: int = TRAINED) -> Figure:
    """Accuracy against length, a panel a task and a curve a model, which is labelled where it ends."""
    rows = named(rows[rows.length <= longest])
    tasks = list(dict.fromkeys(rows.task))
    figure, panels = in_pairs(len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        curves(panel, rows[rows.task == task], trained)
        panel.set_title(task)
    return figure


def curves(panel: Axes, rows: pd.DataFrame, trained: int = TRAINED) -> None:
    """One task's curves: lines are the median over seeds, bands run from the worst to the best (columns as results).

    Each curve is thinner than those below it, so that curves that lie on each other can all be seen.
    """
    ends = {}
    models = sorted(dict.fromkeys(rows.model), key=lambda model: model not in LOOKS)
    for width, model in zip(np.linspace(6.5, 1.5, max(2, len(models))), models, strict=False):
        by_length = 100 * rows[rows.model == model].set_index("length").accuracy
        grouped = by_length.groupby("length")
        line = grouped.agg(median_seed)
        color = look_of(model)
        panel.plot(line.index, line, linewidth=width, color=COLORS[color])
        panel.fill_between(line.index, grouped.min(), grouped.max(), color=COLORS[color], alpha=0.18, linewidth=0)
        ends[model] = (float(line.index[-1]), float(line.iloc[-1]))
    longest = int(rows.length.max())
    shade(panel, trained)
    panel.set(xscale="log", xlim=(0.9, 1.2 * longest), ylim=(-14, 112), ylabel="right (%)")
    panel.set_xlabel(f"length ({length_unit(rows.task.iloc[0])})")
    ticks = [tick for tick in TICKS if tick <= longest]
    panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    panel.set_xticks([], minor=True)
    label_ends(panel, ends)


def label_ends(panel: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Write each curve's name where it ends, in its colour; names that would lie on each other are moved apart."""
    furthest, below, side = max(x for x, _ in ends.values()), -math.inf, 1
    for model, (x, y) in sorted(ends.items(), key=lambda item: item[1][1]):
        look: dict[str, Any] = {"color": COLORS[look_of(model)], "fontsize": 9, "textcoords": "offset points"}
        if x < furthest:
            panel.annotate(model, (x, y), xytext=(0, 11 * side), ha="center", va="center", **look)
            side = -side
        else:
            below = max(y, below + GAP)
            panel.annotate(model, (x, below), xytext=(6, 0), va="center", annotation_clip=False, **look)


def legend(figure: Figure, panel: Axes) -> None:
    """One entry for each label of a panel, below all panels."""
    entries = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries), frameon=False)


def shade(panel: Axes, trained: int) -> None:
    """The lengths of training in grey, with a line where they end."""
    panel.axvspan(0, trained + 0.5, color="0.92", zorder=0)
    panel.axvline(trained + 0.5, color="0.5", linewidth=0.8, linestyle=":", zorder=1)


@rc_context(GRID)
def reach(table: pd.DataFrame) -> Figure:
    """From the training length to the longest length that holds, a line a system (columns of `tables.reach`)."""
    figure, (panel,) = new_figure(1, 0.3 * len(table) + 0.7, width=1.6 * WIDTH)
    ends = zip(table.system, table.trained.tolist(), table.tested.tolist(), strict=True)
    for row, (system, trained, tested) in enumerate(ends):
        color = COLORS[1] if system.endswith("here") else "0.45"
        panel.plot([trained, tested], [row, row], color=color, linewidth=2.5, marker="|", markersize=9)
        panel.text(1.15 * tested, row, f"{tested:,}", va="center", fontsize=7)
    panel.set(xscale="log", xlabel="digits: trained on, holds to", xlim=(4, 40 * table.tested.max()))
    panel.set_yticks(range(len(table)), table.system)
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    return figure


@rc_context(GRID)
def mass_and_accuracy(frames: dict[str, pd.DataFrame], trained: int = TRAINED) -> Figure:
    """By decoding step: attention on the needed cell and digit accuracy (columns step, mass, accuracy)."""
    figure, panels = new_figure(len(frames))
    for panel, (title, frame) in zip(panels, frames.items(), strict=True):
        panel.plot(frame.step + 1, frame.accuracy, color=COLORS[0], marker="o", markersize=3, label="right digits")
        panel.plot(
            frame.step + 1, frame.mass, color=COLORS[1], marker="s", markersize=3, label="attention on the needed digit"
        )
        shade(panel, trained)
        panel.set(title=title, xlabel="output digit, units first", ylim=(-0.04, 1.04), xlim=(0.5, len(frame) + 0.5))
    panels[0].set_ylabel("share")
    legend(figure, panels[0])
    return figure


@rc_context(GRID)
def offsets(frame: pd.DataFrame) -> Figure:
    """Bars by offset, in columns to the right of the needed digit, a panel a column of `frame` other than `offset`."""
    names = [name for name in frame if name != "offset"]
    figure, panels = new_figure(len(names), 2.0, width=WIDTH * 0.85)
    for panel, name, color in zip(panels, names, COLORS, strict=False):
        panel.bar(frame.offset, frame[name], color=color)
        panel.set(title=name, xlabel="columns to the right of the needed digit")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(False, axis="x")
    panels[0].set_ylabel("added to the logit")
    panels[-1].set_ylabel("share of attention")
    return figure
