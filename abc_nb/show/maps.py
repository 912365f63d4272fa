"""Maps: attention, biases, grids and tokens as pictures of cells; each function returns a Figure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from abc_nb.analysis.attention import Panel
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.statistics import seeds_in_words
from abc_nb.problems.tasks import REGISTRY
from abc_nb.show.pictures import COLORS, GRID, WHITE, WIDTH, blank, heat_map, in_pairs, new_figure
from abc_nb.show.titles import length_unit, named, of_models

NAME = 26  # letters of a model's name on one line


@rc_context(GRID)
def attention_maps(panels: Sequence[Panel], size: float = 0.17) -> Figure:
    """Heat maps side by side on one scale, tokens on both axes; brighter is more attention (figures 5 and 6).

    Rows are queries, labelled with the token they produce; wrong tokens are red and bold. Cells that the algorithm
    needs are marked in white.
    """
    shapes = [panel.weights.shape for panel in panels]
    figure = blank(size * sum(shape[1] for shape in shapes) + 1.1 * len(panels), size * max(s[0] for s in shapes) + 1.0)
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=[shape[1] for shape in shapes])[0]
    for axis, panel in zip(axes, panels, strict=True):
        image = heat_map(axis, panel.weights, vmin=0, vmax=1, aspect="equal")
        with_tokens(axis, panel.keys, panel.queries)
        for label, right in zip(axis.get_yticklabels(), panel.right, strict=True):
            label.set(color="black" if right else "tab:red", fontweight="normal" if right else "bold")
        if panel.needed is not None:
            outline(axis, panel.needed)
        axis.set(title=panel.title, xlabel=panel.xlabel)
    axes[0].set_ylabel("output token")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


def with_tokens(axis: Axes, keys: Sequence[str], queries: Sequence[str]) -> None:
    """What stands at each column and row of a matrix."""
    look: dict[str, Any] = {"family": "monospace", "fontsize": 7}
    axis.set_xticks(range(len(keys)), keys, **look)
    axis.set_yticks(range(len(queries)), queries, **look)
    axis.tick_params(length=0, pad=2)


def outline(axis: Axes, cells: np.ndarray) -> None:
    """White frames around cells."""
    for row, column in np.argwhere(cells).tolist():
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=0.8)
        axis.add_patch(frame).set_clip_on(False)  # whole at the matrix's edge, too


@rc_context(WHITE)
def bias_matrices(rows: Sequence[dict[str, np.ndarray]], size: float = 0.16) -> Figure:
    """Which cells a bias leaves open, drawn bright; the queries of a matrix run down (figures 3 and 8).

    Each of `rows` has the same number of matrices, by title.
    """
    shapes = [matrix.shape for matrix in rows[0].values()]
    wide = size * sum(shape[1] for shape in shapes) + 1.2 * len(shapes)
    figure = blank(wide, (size * max(shape[0] for shape in shapes) + 0.6) * len(rows))
    axes = figure.subplots(len(rows), len(shapes), squeeze=False, width_ratios=[shape[1] for shape in shapes])
    for line, matrices in zip(axes, rows, strict=True):
        for axis, (title, matrix) in zip(line, matrices.items(), strict=True):
            edges = np.arange(matrix.shape[1] + 1), np.arange(matrix.shape[0] + 1)
            axis.pcolormesh(*edges, matrix, cmap="cividis", vmin=0, vmax=1, edgecolor="0.55", linewidth=0.3)
            axis.set(title=title, aspect="equal", xticks=[], yticks=[])
            axis.invert_yaxis()
        line[0].set_ylabel("output token")
    for axis in axes[-1]:
        axis.set_xlabel("key")
    return figure


@rc_context(GRID)
def dependencies(title: str, source: list[str], target: list[str], cells: np.ndarray, carries: list[int]) -> Figure:
    """What output digits depend on: a line for each digit that they need, an arrow for each carry (figure 7).

    `target` is units first; `carries` are the steps that hand a carry to the next one.
    """
    figure, (panel,) = new_figure(1, 1.9, width=0.4 * max(len(source), len(target)) + 1.4)
    colors, right = sns.color_palette("colorblind", len(target)), len(source) - 1
    look: dict[str, Any] = {"ha": "center", "va": "center", "family": "monospace"}
    for step, (token, color) in enumerate(zip(target, colors, strict=True)):
        at = right - 1 - 2 * step
        for key in np.flatnonzero(cells[step]).tolist():
            panel.plot([key, at], [0.12, 0.88], color=color, linewidth=1.4)
        panel.text(at, 1, token, **look)
        if step in carries:
            panel.annotate("", (at - 1.75, 1.1), (at, 1.1), arrowprops={"arrowstyle": "->", "color": "0.3"})
            panel.text(at - 0.9, 1.24, "carry 1", ha="center", fontsize=7, color="0.3")
    for column, token in enumerate(source):
        panel.text(column, 0, token, **look)
    panel.set(title=title, xlim=(-0.8, right + 0.8), ylim=(-0.2, 1.4), xticks=[])
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
        table = part.pivot(index="w", columns="T", values="ours").rename(columns={0: "–"})
        percent_map(panel, table, f"{task}, {length} digits")
        panel.set(xlabel="period T", ylabel="window w")
    figure.colorbar(panels[0].collections[0], ax=panels, label="exact match (%)", fraction=0.04, pad=0.02)
    return figure


@rc_context(GRID)
def accuracy_map(frame: pd.DataFrame, models: Sequence[str]) -> Figure:
    """Accuracy by model, in this order, and length: a heat map a task, two or three in a row (as `over_seeds`)."""
    frame, models = named(frame), [*of_models(models).values()]
    order = [operation.title for operation in REGISTRY.values()]
    tasks = sorted(dict.fromkeys(frame.task), key=lambda task: order.index(task.partition(", base")[0]))
    titles = [fill(model, NAME) for model in models]
    across = 3 if len(tasks) == 3 else min(2, len(tasks))
    lines = [line for title in titles for line in title.split("\n")]
    names = 0.06 / across * max(map(len, lines))  # inches of the names' column, on each panel
    figure, panels = new_figure(across, 0.17 * len(lines) + 0.7, WIDTH + names, rows=-(-len(tasks) // across))
    for i, (panel, task) in enumerate(zip(panels, tasks, strict=True)):
        part = frame[frame.task == task]
        table = part.pivot(index="model", columns="length", values="ours").reindex(models).set_axis(titles)
        percent_map(panel, table, f"{task} ({seeds_in_words(part)})")
        panel.set(xlabel=f"length ({length_unit(task)})", ylabel="")
        panel.set_xticks(panel.get_xticks(), [f"{length:,}" for length in table.columns], fontsize=7, rotation=0)
        panel.tick_params(labelleft=i % across == 0)
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
    matrices: Sequence[np.ndarray],
    titles: Sequence[str],
    outlined: Sequence[np.ndarray] = (),
    columns: int = 4,
    tokens: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Figure:
    """One matrix a head on one scale (figures 10 and 11): closed cells grey, `outlined` ones framed in white.

    Rows are queries from the top, columns keys; brighter is more. `tokens` are what stands at keys and queries.
    """
    rows = -(-len(matrices) // columns)
    height, width = matrices[0].shape
    size = min(0.16, (6.8 if tokens is None else 10.0) / (columns * width))
    labels = 0.0 if tokens is None else 0.35
    figure = blank(columns * (size * width + 0.15 + labels), rows * (size * height + 0.4 + labels))
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    is_bias = values.size < sum(matrix.size for matrix in matrices)  # a bias has closed cells
    scale: dict[str, Any] = {"vmin": min(values, default=0) - 0.1 if is_bias else 0, "vmax": max(values, default=0)}
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, matrix, title in zip(axes.flat, matrices, titles, strict=False):
        image = heat_map(axis, matrix, aspect="equal", interpolation="nearest", **scale)
        axis.set_title(title, fontsize=7)
        if tokens is not None:
            with_tokens(axis, *tokens)
    for axis, cells in zip(axes.flat, outlined, strict=False):
        outline(axis, cells)
    for axis in list(axes.flat)[len(matrices) :]:
        axis.set_visible(False)
    if not is_bias:
        figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


def biases(study: CalibrationStudy, digits: int, count: int = 3) -> Figure:
    """The cross-attention bias of heads with different lines, for problems of `digits` digits (figures 10 and 11)."""
    matrices, titles = study.telling_heads("cross", count, digits)
    titles = [f"{title}: {values_of(matrix)}" for title, matrix in zip(titles, matrices, strict=True)]
    return heads(matrices, titles, columns=count, tokens=study.letters(digits))


def values_of(bias: np.ndarray) -> str:
    """The numbers that a bias adds to logits, from the left to the right of its first row that has any."""
    values = dict.fromkeys(f"{value:.2f}" for row in bias for value in row[np.isfinite(row)])
    return " and ".join("0" if float(value) == 0 else value for value in values)


@rc_context(GRID)
def directions(matrix: np.ndarray, tokens: tuple[Sequence[str], Sequence[str]]) -> Figure:
    """Averaged attention, and the mean on every line of each direction (figure 9); `tokens` of keys and queries.

    A line's number is the column at which it meets the first row, or would meet it beyond the matrix.
    """
    rows, columns = matrix.shape
    found = {
        "diagonal": {k: np.diag(matrix, k) for k in range(1 - rows, columns)},
        "antidiagonal": {columns - 1 - k: np.diag(matrix[:, ::-1], k) for k in range(1 - rows, columns)},
        "vertical": dict(enumerate(matrix.T)),
    }
    means = {title: {line: cells.mean() for line, cells in lines.items()} for title, lines in found.items()}
    highest = 1.1 * max(max(each.values()) for each in means.values())
    figure, panels = new_figure(4, 2.2, width=WIDTH * 0.8)
    heat_map(panels[0], matrix, vmin=0)
    with_tokens(panels[0], *tokens)
    panels[0].set(title="averaged attention", xlabel="key", ylabel="output token")
    for panel, (title, lines) in zip(panels[1:], means.items(), strict=True):
        panel.bar(list(lines), list(lines.values()), color=COLORS[0])
        panel.set(title=title, xlabel="line", ylim=(0, highest))
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
