"""The window bench's logic: a hand-made mask, the keys it leaves open, and what was measured with it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from abc_nb.bias.base import Attention, Bias, Causal
from abc_nb.bias.window import Sides, Window
from abc_nb.experiments.catalogue import GRID_NAMES, GRID_T, GRID_W, WINDOWS
from abc_nb.experiments.experiment import experiment, train_command
from abc_nb.experiments.names import Name
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.show import pictures
from abc_nb.show.pictures import TEXT

ATTENTIONS: tuple[Attention, ...] = ("cross", "self")
TRAINED: dict[Sides, dict[tuple[int | None, int | None], str]] = {  # models by window w and period T
    "one": {(1, None): "window", (1, 3): "window-cyclic"}
    | {(w, t): f"window-w{w}-t{t}" for w in GRID_W for t in GRID_T if f"window-w{w}-t{t}" in WINDOWS},
    "both": GRID_NAMES,
}
MASK_SIZE, GRID_SIZE = (940, 320), (620, 270)  # pixels


def layout_of(task: str, length: int) -> Layout:
    """Operands of `length` digits side by side, as wide as their result can need."""
    known = Task(task)
    return known.layout(known.width(length, "tight"), "aligned")


def bias_of(w: int | None, sides: Sides = "one") -> Bias:
    """A window; None: no window, only no token that comes later."""
    return Causal() if w is None else Window(w, sides)


def mask(layout: Layout, name: Attention, w: int | None, sides: Sides = "one") -> np.ndarray:
    """Which keys each query may look at, booleans (query, key)."""
    return bias_of(w, sides).opened(layout, name, 0)[0].numpy()


def open_keys(layout: Layout, w: int | None, sides: Sides = "one") -> pd.DataFrame:
    """A row an attention: open cells, all cells, the open part in percent, and the most keys a query sees."""
    rows = []
    for name in ATTENTIONS:
        cells = mask(layout, name, w, sides)
        most = int(cells.sum(1).max())
        rows.append({"attention": name, "open": int(cells.sum()), "cells": cells.size, "most a query": most})
    frame = pd.DataFrame(rows)
    frame.insert(3, "%", (100 * frame.open / frame["cells"]).round().astype(int))
    return frame


def label(value: int | None) -> str:
    return "none" if value is None else str(value)


def measured(task: str, seed: int = 0, sides: Sides = "one") -> pd.DataFrame:
    """What finished runs say: w and T (as `label` writes them), length, accuracy (percent), samples."""
    parts = []
    for (w, t), model in TRAINED[sides].items():
        run = store.find(experiment(Name(task, model)), seed)
        if run is not None:
            rows = run.evaluation()[["length", "accuracy", "samples"]]
            parts.append(rows.assign(w=label(w), T=label(t), accuracy=100 * rows.accuracy))
    empty = pd.DataFrame(columns=["length", "accuracy", "samples", "w", "T"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def sentence(task: str, frame: pd.DataFrame, w: int | None, t: int | None, seed: int = 0, sides: Sides = "one") -> str:
    """The measured accuracy of one window and period by length, or what to run to measure it."""
    rows = frame[(frame.w == label(w)) & (frame["T"] == label(t))]
    if rows.empty:
        if (w, t) not in TRAINED[sides]:
            return f"w={label(w)}, T={label(t)} is no experiment: see the window that is open to both sides"
        command = train_command(Name(task, TRAINED[sides][w, t]), seed)
        return f"w={label(w)}, T={label(t)} is not trained yet: run `{command}`"
    parts = [f"{accuracy:.1f}% at {length}" for length, accuracy in zip(rows.length, rows.accuracy, strict=True)]
    return f"Exact match on {rows.samples.iloc[0]} problems: {', '.join(parts)} digits."


def mask_figure(layout: Layout, w: int | None, t: int | None, sides: Sides = "one") -> Figure:
    """The mask of both attentions, open cells bright, with the position index that the model sees on the axes."""
    figure = pictures.fixed_figure(*MASK_SIZE)
    places = {"cross": (46, 550), "self": (654, 280)}
    source = np.arange(layout.source_length)[::-1] % (t or layout.source_length)
    target = np.arange(layout.target_length) % (t or layout.target_length)
    for name in ATTENTIONS:
        cells = mask(layout, name, w, sides)
        title = f"{name}-attention: {cells.sum()} of {cells.size} open"
        axes = pictures.panel(figure, places[name][0], 46, places[name][1], 226, title)
        pictures.show(axes, pictures.colored(cells.astype(float), 0, 1, "cividis"))
        keys = source if name == "cross" else target
        size = max(4, min(10, places[name][1] / len(keys) * 0.6, 226 / len(target) * 0.6))
        axes.set_xticks(range(len(keys)), [str(index) for index in keys], fontsize=size, **TEXT)
        axes.set_yticks(range(len(target)), [str(index) for index in target], fontsize=size, **TEXT)
        axes.hlines(np.arange(len(target) + 1) - 0.5, -0.5, len(keys) - 0.5, color="0.5", linewidth=0.4)
        axes.vlines(np.arange(len(keys) + 1) - 0.5, -0.5, len(target) - 0.5, color="0.5", linewidth=0.4)
        axes.set_xlabel("position index of the key" + (f", modulo {t}" if t else ""), fontsize=10, **TEXT)
    figure.axes[0].set_ylabel("position index of the query", fontsize=10, **TEXT)
    return figure


def grid_figure(frame: pd.DataFrame, length: int, w: int | None, t: int | None) -> Figure:
    """Accuracy at one length over window and period; the chosen cell is framed, what was not measured is grey."""
    figure = pictures.fixed_figure(*GRID_SIZE)
    axes = pictures.panel(figure, 70, 34, 540, 180, f"exact match (%) at {length} digits")
    cells = np.full((len(GRID_W), len(GRID_T)), np.nan)
    windows, periods = [label(value) for value in GRID_W], [label(value) for value in GRID_T]
    rows = frame[frame.length == length]
    for window, period, accuracy in zip(rows.w, rows["T"], rows.accuracy, strict=True):
        cells[windows.index(window), periods.index(period)] = accuracy
    pictures.show(axes, pictures.colored(cells, 0, 100, "cividis"))
    for (row, column), value in np.ndenumerate(cells):
        known = np.isfinite(value)
        look = TEXT | {"color": "black" if known and value > 55 else "white" if known else "0.5"}
        axes.text(column, row, f"{value:.0f}" if known else "–", ha="center", va="center", fontsize=11, **look)
    axes.set_xticks(range(len(GRID_T)), periods, **TEXT)
    axes.set_yticks(range(len(GRID_W)), windows, **TEXT)
    axes.set_xlabel("period T", fontsize=11, **TEXT)
    axes.set_ylabel("window w", fontsize=11, **TEXT)
    pictures.framed(axes, (GRID_T.index(t), GRID_W.index(w)))
    return figure
