"""Curves and bars: each function takes arrays or frames and returns a Figure; `save` writes it for print."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from abc_nb.analysis.statistics import median_seed
from abc_nb.problems.tasks import OPERATIONS, TRAINED, unit_of
from abc_nb.show.pictures import COLORS, GRID, WIDTH, in_pairs, new_figure
from abc_nb.show.pictures import save as save
from abc_nb.show.titles import named

LOOKS = {  # of each model's curve: colour, marker, and size, so that a line drawn later still shows those below
    "Vanilla": (7, "o", 5.0),
    "NoPE": (1, "X", 4.2),
    "RoPE": (2, "s", 3.2),
    "ALiBi": (3, "D", 2.2),
    "RPE": (4, "v", 1.2),
    "RoPE, from the right": (5, "^", 3.6),
    "RPE, from the right": (4, "P", 2.4),
    "ALiBi, cross too": (3, "*", 1.2),
    "+ w=1": (4, "p", 3.6),
    "NoPE + w=1": (1, ">", 2.4),
    "+ T=3": (2, "h", 3.4),
    "ABC": (0, "d", 1.2),
}


def look_of(model: str) -> tuple[int, str, float]:
    """A model's look; of one that has none here, one that follows from its name."""
    number = crc32(model.encode())
    return LOOKS.get(model) or (number % 10, "osDv^Pph>d"[number // 10 % 10], 1.8)


@rc_context(GRID)
def length_curves(rows: pd.DataFrame, longest: int, trained: int = TRAINED, logarithmic: bool = False) -> Figure:
    """Accuracy against length, one panel a task and one line a model (figures 1 and 4).

    Lines are the median over seeds, bands run from the worst to the best.
    """
    rows = named(rows[rows.length <= longest]).assign(percent=lambda frame: 100 * frame.accuracy)
    tasks = list(dict.fromkeys(rows.task))
    known = {model: place for place, model in enumerate(LOOKS)}
    models = sorted(dict.fromkeys(rows.model), key=lambda model: known.get(model, len(known)))
    figure, panels = in_pairs(len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for model in models:
            part = rows[(rows.task == task) & (rows.model == model)]
            if len(part):
                draw_curve(panel, part, model)
        shade(panel, trained)
        unit = "decimal digits" if task == OPERATIONS["parity"].title else unit_of(task)
        panel.set(title=task, xlabel=f"length ({unit})", xlim=(0.5, longest + 0.5), ylim=(-4, 104))
        if logarithmic:
            panel.set(xscale="log", xlim=(0.9, 1.3 * longest))
    for panel in panels[::2]:
        panel.set_ylabel("exact match (%)")
    legend(figure, panels[0])
    return figure


def legend(figure: Figure, panel: Axes) -> None:
    """One entry for each label of a panel, below all panels."""
    entries = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries), frameon=False)


def shade(panel: Axes, trained: int) -> None:
    """The lengths of training in grey, with a line where they end."""
    panel.axvspan(0, trained + 0.5, color="0.92", zorder=0)
    panel.axvline(trained + 0.5, color="0.5", linewidth=0.8, linestyle=":", zorder=1)


def draw_curve(panel: Axes, part: pd.DataFrame, model: str) -> None:
    by_length = part.groupby("length").percent
    line = by_length.agg(median_seed)
    color, marker, size = look_of(model)
    look: dict[str, Any] = {"color": COLORS[color], "label": model}
    panel.plot(line.index, line, marker=marker, markersize=2 + size, linewidth=size, **look)
    panel.fill_between(line.index, by_length.min(), by_length.max(), color=COLORS[color], alpha=0.18, linewidth=0)


@rc_context(GRID)
def reach(table: pd.DataFrame) -> Figure:
    """From the training length to the longest length that holds, a line a system (columns of `tables.reach`)."""
    figure, (panel,) = new_figure(1, 0.3 * len(table) + 0.7, width=1.6 * WIDTH)
    ends = zip(table.system, table.trained.tolist(), table.tested.tolist(), strict=True)
    for row, (system, trained, tested) in enumerate(ends):
        color = COLORS[1] if system.endswith("here") else "0.45"
        panel.plot([trained, tested], [row, row], color=color, linewidth=2.5, marker="|", markersize=9)
        ratio = tested / trained
        shown = f"{tested:,} ({ratio:,.{1 if ratio < 100 else 0}f} times)"
        panel.text(1.15 * tested, row, shown, va="center", fontsize=7)
    panel.set(xscale="log", xlabel="digits: trained on, holds to", xlim=(4, 40 * table.tested.max()))
    panel.set_yticks(range(len(table)), table.system)
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    return figure


@rc_context(GRID)
def training_curves(histories: pd.DataFrame) -> Figure:
    """Validation accuracy against training step, one panel a task (columns task, model, seed, step, accuracy)."""
    histories = named(histories)
    tasks = list(dict.fromkeys(histories.task))
    figure, panels = in_pairs(len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for (model, _), part in histories[histories.task == task].groupby(["model", "seed"], sort=False):
            color, _, size = look_of(model)
            panel.plot(part.step, 100 * part.accuracy, color=COLORS[color], linewidth=0.6 + size / 2, label=model)
        panel.set(title=task, xlabel="training step", ylim=(-4, 104))
    for panel in panels[::2]:
        panel.set_ylabel("exact match (%)")
    legend(figure, panels[0])
    return figure


@rc_context(GRID)
def shares(frame: pd.DataFrame, category: str, labels: list[str]) -> Figure:
    """Bars of shares (percent, logarithmic) by category, one panel a label: columns `category` and the labels."""
    figure, panels = new_figure(len(labels), width=WIDTH * 0.85)
    lowest = 100 * frame[labels].where(frame[labels] > 0).min().min() / 2
    for panel, label in zip(panels, labels, strict=True):
        panel.bar(frame[category], 100 * frame[label], color=COLORS[0])
        panel.set(title=label, xlabel=category, yscale="log", ylim=(lowest, 150))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.grid(False, axis="x")
    panels[0].set_ylabel("share (%)")
    return figure


@rc_context(GRID)
def mass_and_accuracy(frames: dict[str, pd.DataFrame], trained: int = TRAINED) -> Figure:
    """By decoding step: attention on the needed cell and digit accuracy (columns step, mass, accuracy)."""
    figure, panels = new_figure(len(frames))
    for panel, (title, frame) in zip(panels, frames.items(), strict=True):
        panel.plot(frame.step + 1, frame.accuracy, color=COLORS[0], marker="o", markersize=3, label="digit accuracy")
        panel.plot(frame.step + 1, frame.mass, color=COLORS[1], marker="s", markersize=3, label="attention mass")
        shade(panel, trained)
        panel.set(title=title, xlabel="output digit, units first", ylim=(-0.04, 1.04), xlim=(0.5, len(frame) + 0.5))
    panels[0].set_ylabel("share")
    legend(figure, panels[0])
    return figure


@rc_context(GRID)
def offsets(frame: pd.DataFrame) -> Figure:
    """Bars by offset, a panel a column of `frame` other than `offset`."""
    names = [name for name in frame if name != "offset"]
    figure, panels = new_figure(len(names), 2.0, width=WIDTH * 0.85)
    for panel, name, color in zip(panels, names, COLORS, strict=False):
        panel.bar(frame.offset, frame[name], color=color)
        panel.set(title=name, xlabel="offset j - i")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(False, axis="x")
    panels[0].set_ylabel("added to the logit")
    panels[-1].set_ylabel("share of attention")
    return figure
