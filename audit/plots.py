"""Figures of the audit: curves, bars, and maps of accuracies, lines and indices; each function returns a Figure."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from abc_nb.analysis.calibration_study import CalibrationStudy, letters
from abc_nb.problems.tasks import Task, single_width
from abc_nb.show.cells import followed
from abc_nb.show.pictures import CLOSED_COLOR, COLORS, COLUMN_WIDTH, STYLE, heat_map, label_tokens, new_figure, outline
from abc_nb.show.plots import colors_of, curves, length_axis
from abc_nb.show.titles import length_unit, model_title, task_title, with_titles
from abc_nb.specs.names import ARITHMETIC
from audit.statistics import ends, percent

PAGE = 7.2  # inches: heads side by side
ORDER = [task_title(task) for task in ARITHMETIC]  # of colours


@rc_context(STYLE)
def by_length(rows: pd.DataFrame) -> Figure:
    """Evaluation rows as curves over the length: a panel per model, a colour per task."""
    rows = with_titles(rows)
    titles, names = list(dict.fromkeys(rows.model)), list(dict.fromkeys(rows.task))
    colors = colors_of(sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)))
    across = min(len(titles), 5 if len(titles) < 7 else 6)
    size = (1.75, 1.3 + 0.7 * across / len(titles))
    figure, axes = new_figure(len(titles), across, size, sharex=True, sharey=True)
    for panel, title in zip(axes, titles, strict=True):
        curves(panel, rows[rows.model == title], "task", colors)
        length_axis(panel, int(rows.length.max()), int(rows.length.min()))
        panel.set_title(textwrap.fill(title, 22), fontsize=8)
        panel.set_ylabel(panel.get_ylabel() * (panel in axes[::across]))
        panel.tick_params(labelsize=7)
    units = {name: length_unit(name) for name in names}
    main_unit = units[names[0]]
    exceptions = [f"{name}: {unit}" for name, unit in units.items() if unit != main_unit]
    figure.supxlabel(f"length ({'; '.join([main_unit, *exceptions])}); grey: trained", fontsize=9)
    handles = [Line2D([], [], color=color, linewidth=2, label=name) for name, color in colors.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False)
    return figure


@rc_context(STYLE)
def reach(table: pd.DataFrame, certified: dict[str, str] | None = None) -> Figure:
    """From training to the longest length that holds (columns of `frames.reach`), and on where it is certified."""
    proven = {f"{model_title(model)}, here": count for model, count in (certified or {}).items()}
    figure, (panel,) = new_figure(size=(1.6 * COLUMN_WIDTH, 0.3 * len(table) + 0.7))
    end = 400 * table.tested.max()
    for row, (system, trained, tested) in enumerate(table[["system", "trained", "tested"]].itertuples(index=False)):
        color = COLORS[1] if system.endswith("here") else "0.45"
        panel.plot([trained, tested], [row, row], color=color, linewidth=2.5, marker="|", markersize=9)
        panel.text(1.15 * tested, row - 0.25, f"{tested:,}", va="center", fontsize=7)
        if system in proven:
            arrow = {"arrowstyle": "-|>", "color": color, "linestyle": ":", "linewidth": 1.5}
            panel.annotate("", (end, row), (tested, row), arrowprops=arrow)
            panel.text(end, row - 0.25, f"certified: {proven[system]} ", va="center", ha="right", fontsize=7)
    panel.set(
        xscale="log", xlabel="digits, from training to the longest test", xlim=(4, end), ylim=(-0.7, len(table) - 0.5)
    )
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_yticks(range(len(table)), table.system)
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    return figure


@rc_context(STYLE)
def offsets(frame: pd.DataFrame) -> Figure:
    """Bars by offset, in columns to the right of the needed digit: RPE's learned bias and ABC's share of attention."""
    figure, panels = new_figure(2, size=(COLUMN_WIDTH * 0.85, 2.0))
    titles = {"RPE": ("RPE", "added to the logit"), "ABC": ("Vanilla, on ABC's lines", "share of attention")}
    for panel, (column, (title, unit)) in zip(panels, titles.items(), strict=True):
        sns.barplot(frame, x="offset", y=column, ax=panel, color=COLORS[0])
        panel.set(title=title, xlabel="columns to the right of the needed digit", ylabel=unit)
    return figure


@rc_context(STYLE)
def flipped(frame: pd.DataFrame) -> Figure:
    """`limits.changes`: a line for each model and seed, over the length."""
    figure, (panel,) = new_figure(size=(1.2 * COLUMN_WIDTH, 2.4))
    for color, (model, of_model) in zip(COLORS, frame.groupby("model", sort=False), strict=False):
        for number, (_, run) in enumerate(of_model.groupby("seed")):
            label = model_title(str(model)) if number == 0 else None
            panel.plot(run.length, run.change, color=color, linewidth=1.2, marker=".", label=label)
    panel.axvspan(4, max(map(single_width, Task("parity").training_widths("tight", 1))), color="0.9", zorder=0)
    panel.set(
        xscale="log",
        xlabel="bits (grey: trained)",
        ylabel="change of a logit per flipped bit",
        xlim=(4, None),
        ylim=(0, None),
    )
    panel.set_xticks(lengths := sorted(frame.length.unique()), [str(length) for length in lengths])
    panel.legend()
    return figure


@rc_context(STYLE)
def grid(rows: pd.DataFrame) -> Figure:
    """The median seed's percentages by window w and period T, a panel per task (columns as `over_seeds`, w, T)."""
    rows = with_titles(rows)
    tasks = list(dict.fromkeys(rows.task))
    figure, panels = new_figure(len(tasks), min(2, len(tasks)), (COLUMN_WIDTH, 0.17 * rows.w.nunique() + 0.7))
    for panel, task in zip(panels, tasks, strict=True):
        part = rows[rows.task == task]
        table = part.pivot(index="w", columns="T", values="ours").reindex(list(dict.fromkeys(part.w)))
        seeds = "one seed" if part.seeds.max() == 1 else f"{ends(sorted(part.seeds))} seeds"
        percent_map(panel, table, f"{task} ({seeds})")
        panel.set(xlabel="period T", ylabel="window w")
        panel.label_outer(remove_inner_ticks=False)
    return figure


def percent_map(panel: Axes, table: pd.DataFrame, title: str) -> None:
    """Percentages as a heat map with the numbers in its cells."""
    texts = table.map(lambda value: percent(value, 0))
    number_map(panel, table, texts, 7, cmap="cividis", vmin=0, vmax=100, fmt="")
    panel.set_title(title)


@rc_context(STYLE)
def directions(matrix: np.ndarray, tokens: tuple[Sequence[str], Sequence[str]]) -> Figure:
    """Averaged attention, and the mean of every line, named by the column where it meets the first row (figure 9)."""
    rows, columns = matrix.shape
    lines = {
        "diagonal": {k: np.diag(matrix, k) for k in range(1 - rows, columns)},
        "antidiagonal": {columns - 1 - k: np.diag(matrix[:, ::-1], k) for k in range(1 - rows, columns)},
        "vertical": dict(enumerate(matrix.T)),
    }
    figure, (map_panel, *panels) = new_figure(4, size=(COLUMN_WIDTH * 0.8, 2.2))
    heat_map(map_panel, matrix, vmin=0)
    label_tokens(map_panel, *tokens)
    map_panel.set(title="averaged attention", xlabel="key", ylabel="output token")
    for panel, (title, cells) in zip(panels, lines.items(), strict=True):
        panel.bar(list(cells), [line.mean() for line in cells.values()], color=COLORS[0])
        panel.set(title=title, xlabel="column in the first row")
        panel.sharey(panels[0])
    panels[0].set_ylabel("mean attention")
    return figure


@rc_context(STYLE)
def index_matrices(matrices: dict[str, np.ndarray]) -> Figure:
    """Matrices with their numbers written in the cells; cells without one are grey (figure 12)."""
    figure, panels = new_figure(len(matrices), size=(COLUMN_WIDTH * 0.7, 2.2))
    bound = max(np.nanmax(np.abs(matrix)) for matrix in matrices.values())
    for panel, (title, matrix) in zip(panels, matrices.items(), strict=True):
        number_map(panel, matrix, True, 8, cmap="vlag", vmin=-bound, vmax=bound, fmt="g", square=True)
        panel.set(title=title, xlabel="key", facecolor=CLOSED_COLOR)
    panels[0].set_ylabel("query")
    return figure


def number_map(panel: Axes, table: Any, texts: Any, size: int, **settings: Any) -> None:
    """A heat map with texts in its cells, or with the numbers themselves; empty cells have the panel's colour."""
    sns.heatmap(table, ax=panel, annot=texts, annot_kws={"size": size}, cbar=False, **settings)
    panel.tick_params(length=0, labelsize=size, labelrotation=0)
    panel.grid(False)


@rc_context(STYLE)
def study_heads(study: CalibrationStudy, rows: int | None = None) -> Figure:
    """The last layer's averaged cross-attention by head, up to `rows` outputs; kept lines framed, their share."""
    opened = study.opened("cross", study.last)[:, :rows]
    averaged = study.averages["cross", study.last].numpy()[:, :rows]
    count, height, width = averaged.shape
    keys, queries = letters(study.layout)
    across = min(count, int(PAGE / (0.16 * width + 0.1)) or 1)
    size = (0.16 * width + 0.1 + 0.8 / across, 0.16 * height + 0.55)
    figure, axes = new_figure(count, across, size, sharex=True, sharey=True)
    for head, (axis, matrix, cells) in enumerate(zip(axes, averaged, opened, strict=True)):
        image = heat_map(axis, matrix, aspect="equal", vmin=0, vmax=1)
        share = (matrix * cells).sum() / matrix.sum()
        axis.set_title(f"head {head + 1}: {share:.0%} framed\n{followed(study.bias, study.last, [head])}", fontsize=8)
        label_tokens(axis, keys, queries[:rows], size=7.5)
        outline(axis, cells)
    figure.supxlabel("token of the problem", fontsize=9)
    figure.supylabel("output token", fontsize=9)
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


@rc_context(STYLE)
def tape(rows: Sequence[Sequence[str]], columns: int = 1500) -> Figure:
    """A Turing machine's tape over time, from left to right, in a colour for each symbol; at most so many rows."""
    sample = rows[:: -(-len(rows) // columns)]
    blank = rows[0][-1]
    symbols = [blank, *sorted({cell[-1] for row in rows for cell in row} - {blank})]
    colors = dict(zip(symbols, [(1, 1, 1), *COLORS], strict=False))
    figure, (panel,) = new_figure(size=(PAGE, 2.2))
    image = np.array([[colors[cell[-1]] for cell in row] for row in sample]).transpose(1, 0, 2)
    panel.imshow(image, aspect="auto", interpolation="nearest", extent=(0, len(rows), len(rows[0]), 0))
    panel.set(xlabel="step", ylabel="cell of the tape")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.grid(False)
    handles = [Patch(facecolor=color, edgecolor="0.6", label=symbol) for symbol, color in colors.items()]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, title="symbol")
    return figure
