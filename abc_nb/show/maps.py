"""Maps: attention, biases, grids and tokens as pictures of cells; each function returns a Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from abc_nb.analysis.attention import Panel
from abc_nb.analysis.statistics import seeds_in_words
from abc_nb.show.pictures import COLORS, GRID, WHITE, WIDTH, blank, heat_map, in_pairs, new_figure
from abc_nb.show.titles import named, of_model


@rc_context(GRID)
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


@rc_context(GRID)
def attention_maps(panels: Sequence[Panel], size: float = 0.17, tokens: bool = True) -> Figure:
    """Heat maps side by side, tokens on both axes; brighter is more attention (figures 2, 5 and 6).

    Rows are queries, labelled with the token they produce; wrong tokens are red and bold.
    """
    widths = [panel.weights.shape[1] for panel in panels]
    figure, axes = new_figure(len(panels), size * panels[0].weights.shape[0] + 1.1, size * max(widths) + 0.9)
    for axis, panel in zip(axes, panels, strict=True):
        image = heat_map(axis, panel.weights, vmin=0, vmax=1)
        if tokens:
            axis.set_xticks(range(len(panel.keys)), panel.keys, family="monospace", fontsize=7)
            axis.set_yticks(range(len(panel.queries)), panel.queries, family="monospace", fontsize=7)
            for label, right in zip(axis.get_yticklabels(), panel.right, strict=True):
                label.set(color="black" if right else "tab:red", fontweight="normal" if right else "bold")
        axis.tick_params(length=0, pad=2)
        axis.set(title=panel.title, xlabel=panel.xlabel)
    axes[0].set_ylabel("output token")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


@rc_context(WHITE)
def small_maps(panels: Sequence[Sequence[Panel]], size: float = 1.0) -> Figure:
    """Many heat maps without labels, a row a layer."""
    columns = len(panels[0])
    shape = panels[0][0].weights.shape
    figure = blank(size * columns, size * len(panels) * shape[0] / shape[1] + 0.3)
    for axis, panel in zip(
        figure.subplots(len(panels), columns, squeeze=False).flat, (p for row in panels for p in row), strict=True
    ):
        heat_map(axis, panel.weights, vmin=0, vmax=1)
        axis.set_title(panel.title.split(", ", 1)[1], fontsize=6)
    return figure


@rc_context(WHITE)
def bias_matrices(matrices: dict[str, np.ndarray], size: float = 0.16) -> Figure:
    """Which cells a bias leaves open, drawn bright, rows the queries (figures 3, 8, 10 and 11)."""
    shapes = [matrix.shape for matrix in matrices.values()]
    wide = size * sum(shape[1] for shape in shapes) + 1.2 * len(shapes)
    figure = blank(wide, size * max(shape[0] for shape in shapes) + 0.9)
    axes = figure.subplots(1, len(shapes), squeeze=False, width_ratios=[shape[1] for shape in shapes])[0]
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        rows, columns = np.arange(matrix.shape[0] + 1), np.arange(matrix.shape[1] + 1)
        axis.pcolormesh(columns, rows, matrix, cmap="cividis", vmin=0, vmax=1, edgecolor="0.55", linewidth=0.3)
        axis.set(title=title, xlabel="key", aspect="equal", xticks=[], yticks=[])
        axis.invert_yaxis()
    axes[0].set_ylabel("query (output token)")
    return figure


@rc_context(GRID)
def dependencies(title: str, source: list[str], target: list[str], cells: np.ndarray, shown: Sequence[int]) -> Figure:
    """Which source tokens an output token depends on: a line for each open cell of the steps `shown` (figure 7)."""
    figure, (panel,) = new_figure(1, 1.7, width=0.34 * max(len(source), len(target)) + 0.8)
    colors = sns.color_palette("colorblind", len(shown))
    right = len(source) - 1
    for color, step in zip(colors, shown, strict=True):
        for key in np.flatnonzero(cells[step]).tolist():
            panel.plot([key, right - step], [0.12, 0.88], color=color, linewidth=1.4)
    look: dict[str, Any] = {"ha": "center", "va": "center", "family": "monospace"}
    for column, token in enumerate(source):
        panel.text(column, 0, token, **look)
    for step, token in enumerate(target):
        panel.text(right - step, 1, token, **look)
    panel.set(title=title, xlim=(-0.8, right + 0.8), ylim=(-0.2, 1.2), xticks=[])
    panel.set_yticks([0, 1], ["input", "output"])
    panel.grid(False)
    sns.despine(ax=panel, left=True, bottom=True)
    return figure


@rc_context(GRID)
def grid_map(frame: pd.DataFrame, length: int) -> Figure:
    """The median seed at a length over window and period, a heat map a task, two in a row (as `tables.grid`)."""
    frame = named(frame[frame.length == length])
    tasks = list(dict.fromkeys(frame.task))
    figure, panels = in_pairs(len(tasks), 2.0)
    for panel, task in zip(panels, tasks, strict=True):
        part = frame[frame.task == task]
        percent_map(panel, part.pivot(index="w", columns="T", values="ours"), f"{task}, {length} digits")
        panel.set(xlabel="period T", ylabel="window w")
    figure.colorbar(panels[0].collections[0], ax=panels, label="exact match (%)", fraction=0.04, pad=0.02)
    return figure


@rc_context(GRID)
def accuracy_map(frame: pd.DataFrame, models: Sequence[str]) -> Figure:
    """Accuracy by model, in this order, and length: heat maps, two tasks in a row (columns of `over_seeds`)."""
    frame, models = named(frame), list(map(of_model, models))
    tasks = list(dict.fromkeys(frame.task))
    figure, panels = in_pairs(len(tasks), 0.17 * len(models) + 0.7)
    for i, (panel, task) in enumerate(zip(panels, tasks, strict=True)):
        part = frame[frame.task == task]
        table = part.pivot(index="model", columns="length", values="ours").reindex(models)
        percent_map(panel, table, f"{task} ({seeds_in_words(part)})")
        panel.set(xlabel="length (decimal digits)", ylabel="")
        panel.tick_params(labelleft=i % 2 == 0)
    return figure


def percent_map(panel: Axes, table: pd.DataFrame, title: str) -> None:
    """Percentages as a heat map with the numbers in its cells; empty cells are white."""
    look: dict[str, Any] = {"annot": table.map(in_a_cell), "fmt": "", "annot_kws": {"size": 7}, "cbar": False}
    sns.heatmap(table, ax=panel, cmap="cividis", vmin=0, vmax=100, **look)
    panel.set_title(title)
    panel.tick_params(length=0)
    panel.grid(False)


def in_a_cell(value: float) -> str:
    """A percentage without decimals; with one where they would make it 100, which it is not."""
    return f"{min(value, 99.9):.1f}" if 99.5 <= value < 100 else f"{value:.0f}"


@rc_context(WHITE)
def heads(
    matrices: Sequence[np.ndarray], titles: Sequence[str], outlined: Sequence[np.ndarray] = (), columns: int = 4
) -> Figure:
    """One matrix a head (figures 10 and 11): closed cells grey, cells that are `outlined` framed in white.

    Rows are queries from the top, columns keys; brighter is more, on one scale for all heads of a bias, on
    each head's own for attention.
    """
    rows = -(-len(matrices) // columns)
    height, width = matrices[0].shape
    size = min(0.16, 6.8 / (columns * width))
    figure = blank(columns * (size * width + 0.15), rows * (size * height + 0.4))
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    shared = values.size < sum(matrix.size for matrix in matrices)  # a bias has closed cells
    scale: dict[str, Any] = {"vmin": min(values, default=0) - 0.1, "vmax": max(values, default=0)} if shared else {}
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, matrix, title in zip(axes.flat, matrices, titles, strict=False):
        image = heat_map(axis, matrix, aspect="equal", interpolation="nearest", **scale)
        axis.set_title(title, fontsize=7)
    for axis, cells in zip(axes.flat, outlined, strict=False):
        for row, column in np.argwhere(cells).tolist():
            axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=0.8))
    if shared:
        figure.colorbar(image, ax=axes, label="added to the logit", fraction=0.03, pad=0.01)
    return figure


@rc_context(GRID)
def directions(matrix: np.ndarray) -> Figure:
    """The mean attention on every line, beside the matrix, for each direction (figure 9).

    A line's number is the column at which it meets the first row, or would meet it beyond the matrix.
    """
    rows, columns = matrix.shape
    found = {
        "diagonal": {k: np.diag(matrix, k) for k in range(1 - rows, columns)},
        "antidiagonal": {columns - 1 - k: np.diag(matrix[:, ::-1], k) for k in range(1 - rows, columns)},
        "vertical": dict(enumerate(matrix.T)),
    }
    figure, panels = new_figure(4, 2.0, width=WIDTH * 0.7)
    heat_map(panels[0], matrix, vmin=0)
    panels[0].set(title="averaged attention", xlabel="key", ylabel="output token")
    for panel, (title, lines) in zip(panels[1:], found.items(), strict=True):
        panel.bar(list(lines), [line.mean() for line in lines.values()], color=COLORS[0])
        panel.set(title=title, xlabel="line", ylim=(0, 1))
    panels[1].set_ylabel("mean attention")
    return figure


@rc_context(GRID)
def index_matrices(matrices: dict[str, np.ndarray]) -> Figure:
    """Matrices with their numbers written in the cells; cells without one are grey (figure 12)."""
    figure, panels = new_figure(len(matrices), 2.2, width=WIDTH * 0.7)
    for panel, (title, matrix) in zip(panels, matrices.items(), strict=True):
        reach = np.nanmax(np.abs(matrix))
        scale = {"vmin": -1.6 * reach, "vmax": 1.6 * reach}  # pale, to be written on
        heat_map(panel, matrix, "vlag", aspect="equal", **scale)
        for row, column in np.argwhere(np.isfinite(matrix)).tolist():
            panel.text(column, row, f"{matrix[row, column]:g}", ha="center", va="center", fontsize=6)
        panel.set(title=title, xlabel="key")
    panels[0].set_ylabel("query")
    return figure
