"""Figures: each function takes arrays or frames and returns a Figure; `save` writes it for print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from abc_nb import paths
from abc_nb.files import write_bytes

WIDTH = 3.4  # inches: one column of print
ORDER = ["Vanilla", "NoPE", "RoPE", "ALiBi", "RPE", "RoPE, from the right", "RPE, from the right", "ALiBi, cross too"]
PALETTE = dict(zip(ORDER, sns.color_palette("colorblind", len(ORDER)), strict=True))
MARKERS = dict(zip(ORDER, "oXsDv^P*", strict=True))
SIZES = dict(zip(ORDER, (5.0, 4.2, 3.2, 2.2, 1.2, 3.6, 2.4, 1.2), strict=True))
STYLE: dict[Any, Any] = {"svg.hashsalt": "abc_nb", "svg.fonttype": "none", "figure.dpi": 110, "savefig.bbox": "tight"}


def new_figure(columns: int, height: float = 2.4, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side, without a window and without global state."""
    matplotlib.rcParams.update(sns.axes_style("whitegrid") | sns.plotting_context("paper") | STYLE)
    figure = Figure(figsize=(width * columns, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def length_curves(rows: pd.DataFrame, longest: int, trained: int = 6) -> Figure:
    """Accuracy against length, one panel a task and one line a model (figures 1 and 4).

    Lines are the median over seeds, bands run from the worst to the best.
    """
    rows = rows[rows.length <= longest].assign(percent=100 * rows.accuracy)
    tasks = list(dict.fromkeys(rows.task))
    models = [model for model in ORDER if model in set(rows.model)]
    figure, panels = new_figure(len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for model in models:
            part = rows[(rows.task == task) & (rows.model == model)]
            if len(part):
                draw_curve(panel, part, model)
        panel.axvspan(0, trained + 0.5, color="0.92", zorder=0)
        panel.set(title=task, xlabel="length (digits)", xlim=(0.5, longest + 0.5), ylim=(-4, 104))
    panels[0].set_ylabel("exact match (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(models), frameon=False)
    return figure


def draw_curve(panel: Axes, part: pd.DataFrame, model: str) -> None:
    by_length = part.groupby("length").percent
    line = by_length.median()
    look: dict[str, Any] = {"color": PALETTE[model], "label": model}
    size = SIZES[model]  # a line drawn later is thinner, so that one below it still shows
    panel.plot(line.index, line, marker=MARKERS[model], markersize=2 + size, linewidth=size, **look)
    panel.fill_between(line.index, by_length.min(), by_length.max(), color=PALETTE[model], alpha=0.18, linewidth=0)


def training_curves(histories: pd.DataFrame) -> Figure:
    """Validation accuracy against training step, one panel a task (columns task, model, seed, step, accuracy)."""
    tasks = list(dict.fromkeys(histories.task))
    figure, panels = new_figure(len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for (model, _), part in histories[histories.task == task].groupby(["model", "seed"], sort=False):
            panel.plot(part.step, 100 * part.accuracy, color=PALETTE[model], linewidth=1.2, label=model)
        panel.set(title=task, xlabel="training step", ylim=(-4, 104))
    panels[0].set_ylabel("validation exact match (%)")
    entries = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries), frameon=False)
    return figure


def shares(frame: pd.DataFrame, category: str, labels: list[str]) -> Figure:
    """Bars of shares (percent, logarithmic) by category, one panel a label: columns `category` and the labels."""
    figure, panels = new_figure(len(labels), width=WIDTH * 0.85)
    lowest = 100 * frame[labels].where(frame[labels] > 0).min().min() / 2
    for panel, label in zip(panels, labels, strict=True):
        panel.bar(frame[category], 100 * frame[label], color=sns.color_palette("colorblind")[0])
        panel.set(title=label, xlabel=category, yscale="log", ylim=(lowest, 150))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.grid(False, axis="x")
    panels[0].set_ylabel("share (%)")
    return figure


def token_grid(problems: dict[str, list[str]]) -> Figure:
    """Token sequences as rows of boxes: what the model sees of a problem, by name of the row."""
    longest = max(len(tokens) for tokens in problems.values())
    figure, (panel,) = new_figure(1, 0.34 * len(problems), width=0.3 * longest + 2.2)
    colors = sns.color_palette("pastel")
    for row, tokens in enumerate(problems.values()):
        for column, token in enumerate(tokens):
            digit = token in "0123456789abcdef"
            panel.text(
                column, row, token, ha="center", va="center", family="monospace",
                bbox={"boxstyle": "round,pad=0.25", "facecolor": colors[0] if digit else colors[1], "linewidth": 0},
            )  # fmt: skip
    panel.set(xlim=(-0.7, longest - 0.3), ylim=(len(problems) - 0.5, -0.5), xticks=[])
    panel.set_yticks(np.arange(len(problems)), list(problems))
    panel.grid(False)
    sns.despine(ax=panel, left=True, bottom=True)
    return figure


@dataclass(frozen=True)
class Panel:
    """One heat map: weights (query, key) and what stands on its axes."""

    title: str
    weights: np.ndarray
    queries: list[str]
    keys: list[str]
    right: list[bool]  # which queries produce the right token
    xlabel: str = "input token"


def attention_maps(panels: Sequence[Panel], size: float = 0.17) -> Figure:
    """Heat maps side by side, tokens on both axes; brighter is more attention (figures 2, 5 and 6).

    Rows are queries, labelled with the token they produce; wrong tokens are red.
    """
    widths = [panel.weights.shape[1] for panel in panels]
    figure, axes = new_figure(len(panels), size * panels[0].weights.shape[0] + 1.1, size * max(widths) + 0.9)
    for axis, panel in zip(axes, panels, strict=True):
        image = axis.imshow(panel.weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(panel.keys)), panel.keys, family="monospace", fontsize=7)
        axis.set_yticks(range(len(panel.queries)), panel.queries, family="monospace", fontsize=7)
        for label, right in zip(axis.get_yticklabels(), panel.right, strict=True):
            label.set_color("black" if right else "tab:red")
        axis.tick_params(length=0, pad=2)
        axis.grid(False)
        axis.set(title=panel.title, xlabel=panel.xlabel)
    axes[0].set_ylabel("output token")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


def small_maps(panels: Sequence[Sequence[Panel]], size: float = 1.0) -> Figure:
    """Many heat maps without labels, a row a layer."""
    columns = len(panels[0])
    shape = panels[0][0].weights.shape
    matplotlib.rcParams.update(sns.plotting_context("paper") | STYLE)
    figure = Figure(figsize=(size * columns, size * len(panels) * shape[0] / shape[1] + 0.3), layout="constrained")
    for axis, panel in zip(
        figure.subplots(len(panels), columns, squeeze=False).flat, (p for row in panels for p in row), strict=True
    ):
        axis.imshow(panel.weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        axis.set(xticks=[], yticks=[])
        axis.set_title(panel.title.split(", ", 1)[1], fontsize=6)
    return figure


def mass_and_accuracy(frames: dict[str, pd.DataFrame], trained: int = 6) -> Figure:
    """By decoding step: attention on the needed cell and digit accuracy (columns step, mass, accuracy)."""
    figure, panels = new_figure(len(frames))
    colors = sns.color_palette("colorblind")
    for panel, (title, frame) in zip(panels, frames.items(), strict=True):
        panel.plot(frame.step + 1, frame.accuracy, color=colors[0], marker="o", markersize=3, label="digit accuracy")
        panel.plot(frame.step + 1, frame.mass, color=colors[1], marker="s", markersize=3, label="attention mass")
        panel.axvspan(0.5, trained + 0.5, color="0.92", zorder=0)
        panel.set(title=title, xlabel="output digit, units first", ylim=(-0.04, 1.04), xlim=(0.5, len(frame) + 0.5))
    panels[0].set_ylabel("share")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def save(figure: Figure, name: str, profile: str) -> Figure:
    """Write PNG and SVG into the profile's figures; returns the figure, for the notebook to show."""
    for kind, options in {"png": {"dpi": 200}, "svg": {"metadata": {"Date": None}}}.items():
        buffer = BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format=kind, **options)  # type: ignore[arg-type]
        write_bytes(paths.figures(profile) / f"{name}.{kind}", buffer.getvalue())
    return figure
