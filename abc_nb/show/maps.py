"""Maps: attention, biases, accuracies and tokens as pictures of cells; each function returns a Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abc_nb.analysis.attention import HeadMap
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.dataset import Needs, Trace
from abc_nb.analysis.statistics import seeds_in_words
from abc_nb.problems.tasks import REGISTRY
from abc_nb.show.pictures import COLORS, STYLE, WIDTH, heat_map, mask, new_figure, outline, with_tokens
from abc_nb.show.titles import length_unit, named

NAME = 26  # letters of a model's name on one line
CELL = 0.17  # inches: a cell that a token can be written beside
UNITS = {"T": "period T", "w": "window w", "model": ""}  # of an axis


@rc_context(STYLE)
def attention_maps(heads: Sequence[HeadMap], across: int = 0) -> Figure:
    """Heat maps on one scale, `across` of them (or all) in a row; brighter is more attention (figures 5 and 6).

    Rows are queries, labelled with the token they produce; wrong tokens are red and bold. Cells that the algorithm
    needs are outlined.
    """
    height, wide = (max(head.weights.shape[0] for head in heads), [head.weights.shape[1] for head in heads])
    size = (CELL * sum(wide) / len(heads) + 1.1, CELL * height + 1.0)
    figure, axes = new_figure(len(heads), across, size, width_ratios=wide[: across or None])
    for axis, head in zip(axes, heads, strict=True):
        image = heat_map(axis, head.weights, vmin=0, vmax=1, aspect="equal")
        with_tokens(axis, head.keys, head.outputs)
        for label, right in zip(axis.get_yticklabels(), head.right, strict=True):
            label.set(color="black" if right else "tab:red", fontweight="normal" if right else "bold")
        outline(axis, head.needed)
        axis.set(title=head.title, xlabel=head.xlabel)
    for axis in axes[:: across or len(axes)]:
        axis.set_ylabel("output token")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


@rc_context(STYLE)
def bias_matrices(matrices: Sequence[tuple[str, np.ndarray]], across: int) -> Figure:
    """Which cells a bias leaves open, drawn bright; the queries of a matrix run down (figures 3 and 8)."""
    wide = [matrix.shape[1] for _, matrix in matrices[:across]]
    height = max(len(matrix) for _, matrix in matrices)
    size = (0.16 * sum(wide) / across + 1.2, 0.16 * height + 0.6)
    figure, axes = new_figure(len(matrices), across, size, width_ratios=wide)
    for axis, (title, matrix) in zip(axes, matrices, strict=True):
        mask(axis, matrix)
        axis.set(title=title, aspect="equal", xlabel="key", ylabel="output token")
        axis.label_outer()
    return figure


@rc_context(STYLE)
def dependencies(problems: Mapping[str, Needs]) -> Figure:
    """What output digits depend on: a line for each digit that they need, an arrow for each carry (figure 7)."""
    wide = [len(needs.source) for needs in problems.values()]
    figure, panels = new_figure(len(wide), size=(0.4 * sum(wide) / len(wide) + 1.4, 1.9), width_ratios=wide)
    for panel, (title, needs) in zip(panels, problems.items(), strict=True):
        depend(panel, needs)
        panel.set_title(title)
    return figure


def depend(panel: Axes, needs: Needs) -> None:
    """One problem of `dependencies`."""
    count, right, stride = len(needs.target), len(needs.source) - 1, int(needs.cells[0].sum())
    look: dict[str, Any] = {"ha": "center", "va": "center", "family": "monospace"}
    for step, (token, color) in enumerate(zip(needs.target, sns.color_palette("colorblind", count), strict=True)):
        at = right - 1 - stride * step
        for key in np.flatnonzero(needs.cells[step]).tolist():
            panel.plot([key, at], [0.12, 0.88], color=color, linewidth=1.4)
        panel.text(at, 1, token, **look)
        if step in needs.carries:
            next_one = at - stride + 0.25
            panel.annotate("", (next_one, 1.1), (at, 1.1), arrowprops={"arrowstyle": "->", "color": "0.3"})
            panel.text((at + next_one) / 2, 1.24, "carry 1", ha="center", fontsize=7, color="0.3")
    for column, token in enumerate(needs.source):
        panel.text(column, 0, token, **look)
    panel.set(xlim=(-0.8, right + 0.8), ylim=(-0.2, 1.4), xticks=[])
    panel.set_yticks([0, 1], ["input", "output"])
    panel.grid(False)
    sns.despine(ax=panel, left=True, bottom=True)


@rc_context(STYLE)
def trace(made: Trace, row: int = 1, column: int = 1) -> Figure:
    """The table of a product, units at the right, and arrows to one cell from the four tokens that decide it.

    A cell shows its digit and, smaller, what it carries on. The arrows begin at the digit of the first factor in the
    same column, the digit of the second in the same row, the cell above to the right, and the cell before.
    """
    rows, columns = made.digits.shape
    figure, (axes,) = new_figure(size=(0.7 * columns + 2.0, 0.55 * rows + 1.0))
    factors: list[tuple[float, float, str]] = [(-place, 1, str(digit)) for place, digit in enumerate(made.first)]
    factors += [(1.4, -place, f"× {digit}") for place, digit in enumerate(made.second)]
    cells: list[tuple[float, float, str]] = [(-c, -r, str(digit)) for (r, c), digit in np.ndenumerate(made.digits)]
    carried: list[tuple[float, float, str]] = [
        (-c - 0.3, -r + 0.22, str(carry)) for (r, c), carry in np.ndenumerate(made.carries) if carry
    ]
    for texts, color, size in ((factors, COLORS[0], 13), (cells, "black", 13), (carried, "gray", 8)):
        for x, y, text in texts:
            axes.text(x, y, text, ha="center", va="center", fontsize=size, color=color)
    sources = [(-column, 1), (1.25, -row), (-column + 1, -row)]
    sources += [(-column - 1, -row + 1)] if row and column < columns - 1 else []
    style = {"arrowstyle": "->", "color": COLORS[3], "shrinkA": 9, "shrinkB": 9, "connectionstyle": "arc3,rad=0.12"}
    for start in sources:
        axes.annotate("", xy=(-column, -row), xytext=start, arrowprops={**style, "linewidth": 1.4})
    axes.set(xlim=(-columns + 0.3, 2.0), ylim=(-rows + 0.4, 1.6))
    axes.axis("off")
    return figure


@rc_context(STYLE)
def accuracy_map(frame: pd.DataFrame, row: str = "model", column: str = "length") -> Figure:
    """`over_seeds` as a heat map a task: the median seed's percentages by two columns of the frame."""
    frame = named(frame)
    order = [task.title for task in REGISTRY.values()]
    tasks = sorted(dict.fromkeys(frame.task), key=lambda task: order.index(task.partition(", base")[0]))
    titles = {name: fill(str(name), NAME) for name in dict.fromkeys(frame[row])}
    lines = [line for title in titles.values() for line in title.split("\n")]
    across = 3 if len(tasks) == 3 else min(2, len(tasks))
    size = (WIDTH + 0.06 / across * max(map(len, lines)), 0.17 * len(lines) + 0.7)  # room for the rows' names
    figure, panels = new_figure(len(tasks), across, size)
    for panel, task in zip(panels, tasks, strict=True):
        part = frame[frame.task == task]
        table = part.pivot(index=row, columns=column, values="ours").reindex(list(titles)).rename(index=titles)
        percent_map(panel, table, f"{task} ({seeds_in_words(part)})")
        panel.set(xlabel=UNITS.get(column, f"length ({length_unit(task)})"), ylabel=UNITS[row])
        panel.label_outer(remove_inner_ticks=False)
        panel.xaxis.set_tick_params(labelbottom=True)
    return figure


@rc_context(STYLE)
def by_lengths(table: pd.DataFrame, title: str) -> Figure:
    """Accuracy by the lengths of a problem's operands, of rows as `training.from_file.Tally` has them."""
    names = [name for name in ("length", "length_1", "length_2") if name in table]
    cells = table.assign(percent=100 * table.accuracy, all="").pivot(
        index=names[0] if len(names) == 2 else "all", columns=names[-1], values="percent"
    )
    figure, (panel,) = new_figure(1, size=(max(4, 0.32 * cells.shape[1] + 1), 0.2 * cells.shape[0] + 1))
    percent_map(panel, cells, f"{title}: percent right")
    panel.set(
        xlabel=names[-1].replace("length_2", "length of the second operand"),
        ylabel="length of the first" * (len(names) == 2),
    )
    return figure


def percent_map(panel: Axes, table: pd.DataFrame, title: str) -> None:
    """Percentages as a heat map with the numbers in its cells; empty cells have the panel's colour."""
    sns.heatmap(
        table, ax=panel, cmap="cividis", vmin=0, vmax=100, cbar=False,
        annot=table.map(in_a_cell), fmt="", annot_kws={"size": 7},
    )  # fmt: skip
    names = [name if isinstance(name, str) else f"{name:,}" for name in table.columns]
    panel.set_xticks(panel.get_xticks(), names, fontsize=7, rotation=0)
    panel.tick_params(length=0)
    panel.tick_params(axis="y", rotation=0)
    panel.set_title(title)
    panel.grid(False)


def in_a_cell(value: float) -> str:
    """A percentage without decimals; with one where they would make it 100, which it is not."""
    return f"{min(value, 99.9):.1f}" if 99.5 <= value < 100 else f"{value:.0f}"


@rc_context(STYLE)
def heads(
    matrices: Sequence[np.ndarray],
    titles: Sequence[str],
    outlined: Sequence[np.ndarray] = (),
    tokens: tuple[Sequence[str], Sequence[str]] | None = None,
    across: int = 4,
) -> Figure:
    """One matrix a head on one scale (figures 10 and 11): closed cells grey, `outlined` ones framed.

    Rows are queries from the top, columns keys; brighter is more. `tokens` are what stands at keys and queries.
    """
    height, width = matrices[0].shape
    cell = min(0.16, (6.8 if tokens is None else 10.0) / (across * width))
    room = 0.15 if tokens is None else 0.5
    figure, axes = new_figure(len(matrices), across, (cell * width + room, cell * height + room + 0.25))
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    is_bias = values.size < sum(matrix.size for matrix in matrices)  # a bias has closed cells
    low, high = (values.min() - 0.1 if is_bias else 0, values.max()) if values.size else (0, 1)
    for axis, matrix, title in zip(axes, matrices, titles, strict=True):
        image = heat_map(axis, matrix, aspect="equal", vmin=low, vmax=high)
        axis.set_title(title, fontsize=7)
        if tokens is not None:
            with_tokens(axis, *tokens)
    for axis, cells in zip(axes, outlined, strict=False):
        outline(axis, cells)
    if not is_bias:
        figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


def biases(study: CalibrationStudy, digits: int) -> Figure:
    """The last layer's cross-attention bias, for problems of `digits` digits (figures 10 and 11)."""
    matrices = list(study.extended("cross", study.last, digits))
    titles = [f"head {head}: {values_of(matrix)}" for head, matrix in enumerate(matrices, 1)]
    return heads(matrices, titles, tokens=study.letters(digits))


def values_of(bias: np.ndarray) -> str:
    """The numbers that a bias adds to logits, from the left to the right of its first row that has any."""
    values = dict.fromkeys(f"{value:.2f}" for row in bias for value in row[np.isfinite(row)])
    return " and ".join("0" if float(value) == 0 else value for value in values)


@rc_context(STYLE)
def directions(matrix: np.ndarray, tokens: tuple[Sequence[str], Sequence[str]]) -> Figure:
    """Averaged attention, and the mean on every line of each direction (figure 9); `tokens` of keys and queries.

    A line's number is the column at which it meets the first row, or would meet it beyond the matrix.
    """
    rows, columns = matrix.shape
    lines = {
        "diagonal": {k: np.diag(matrix, k) for k in range(1 - rows, columns)},
        "antidiagonal": {columns - 1 - k: np.diag(matrix[:, ::-1], k) for k in range(1 - rows, columns)},
        "vertical": dict(enumerate(matrix.T)),
    }
    figure, (map_panel, *panels) = new_figure(4, size=(WIDTH * 0.8, 2.2))
    heat_map(map_panel, matrix, vmin=0)
    with_tokens(map_panel, *tokens)
    map_panel.set(title="averaged attention", xlabel="key", ylabel="output token")
    for panel, (title, cells) in zip(panels, lines.items(), strict=True):
        panel.bar(list(cells), [line.mean() for line in cells.values()], color=COLORS[0])
        panel.set(title=title, xlabel="line")
        panel.sharey(panels[0])
    panels[0].set_ylabel("mean attention")
    return figure


@rc_context(STYLE)
def index_matrices(matrices: dict[str, np.ndarray]) -> Figure:
    """Matrices with their numbers written in the cells; cells without one are grey (figure 12)."""
    figure, panels = new_figure(len(matrices), size=(WIDTH * 0.7, 2.2))
    for panel, (title, matrix) in zip(panels, matrices.items(), strict=True):
        most = 1.6 * np.nanmax(np.abs(matrix))  # pale, to be written on
        heat_map(panel, matrix, "vlag", aspect="equal", vmin=-most, vmax=most)
        for row, column in np.argwhere(np.isfinite(matrix)).tolist():
            panel.text(column, row, f"{matrix[row, column]:g}", ha="center", va="center", fontsize=6)
        panel.set(title=title, xlabel="key")
    panels[0].set_ylabel("query")
    return figure
