"""Curves, and attention as heat maps; each function returns a Figure."""

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from abc_nb.analysis.attention import HeadMap
from abc_nb.analysis.calibration_study import CalibrationStudy, letters
from abc_nb.problems.layouts import EOS
from abc_nb.problems.tasks import TRAINED
from abc_nb.show.pictures import COLORS, OPEN_OR_CLOSED, STYLE, heat_map, label_tokens, mask, new_figure, outline
from abc_nb.show.titles import length_unit, model_title, with_titles

# Colours of models, and of a task.
COLOR_NUMBERS = {"Vanilla": 7, "Vanilla, three widths": 5, "NoPE": 6, "RoPE": 3, "ALiBi": 4, "RPE": 9}
COLOR_NUMBERS |= {"Window": 1, "ABS": 2, "ABC": 0, "Parity": 4}
TICKS = (1, 6, 20, 100, 1000)  # lengths, and the longest one
HEADLINE_DIGITS = 16  # of the sums that the headline's bias is drawn for
CELL = 0.17  # inches: a cell that a token can be written beside


def colors_of(names: Iterable[str]) -> dict[str, Any]:
    """Colours by name: fixed ones for models (whatever follows in brackets), the next free ones for other names."""
    numbers = {name: COLOR_NUMBERS.get(name.partition(" (")[0]) for name in names}
    free = itertools.cycle(number for number in range(len(COLORS)) if number not in numbers.values())
    return {name: COLORS[next(free) if number is None else number] for name, number in numbers.items()}


def curves(panel: Axes, rows: pd.DataFrame, by: str, colors: dict[str, Any], dashed: Sequence[str] = ()) -> None:
    """Percent right by length, a curve a value of the column `by` (columns as results).

    Lines are the median over seeds, bands run from the worst to the best. Each curve is thinner than those below it,
    so that curves that lie on each other can all be seen; where that is not enough, some are `dashed`.
    """
    for number, (name, color) in enumerate(colors.items()):
        width = 4.5 - 3.3 * number / max(1, len(colors) - 1)
        dashes = (0, (14 / width, 10 / width)) if name in dashed else "-"
        grouped = (100 * rows[rows[by] == name].set_index("length").accuracy).groupby("length")
        line = grouped.quantile(0.5, interpolation="lower")  # what some seed has
        panel.plot(line.index, line, linestyle=dashes, linewidth=width, color=color, label=name)
        panel.fill_between(line.index, grouped.min(), grouped.max(), color=color, alpha=0.18, linewidth=0)
    length_axis(panel, int(rows.length.max()))
    panel.set(ylim=(-14, 112), ylabel="right (%)")


def length_axis(panel: Axes, longest: int, shortest: int = 1) -> None:
    """A logarithmic axis of lengths; those of training are grey."""
    panel.axvspan(0, TRAINED + 0.5, color="0.92", zorder=0)
    panel.set(xscale="log", xlim=(0.9 * min(shortest, 4), 1.2 * longest))
    ticks = [*(tick for tick in TICKS if shortest <= tick <= longest / 3), longest]
    panel.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    panel.set_xticks([], minor=True)


@rc_context(STYLE)
def headline(study: CalibrationStudy, rows: pd.DataFrame, certified: dict[str, str]) -> Figure:
    """The whole project on one task: averaged attention with its lines, the bias extended, accuracy and proofs.

    Accuracy is that of the worst seed at each length.
    """
    layer, head = study.strongest_head("cross", "antidiagonal")
    figure, (averages, extended, accuracy) = new_figure(3, size=(3.2, 2.9), width_ratios=[3.4, 4.2, 4.6])
    rows_shown = min(TRAINED, study.layout.target_length - 1)  # of digits that all training numbers have
    weights = study.averages["cross", layer][head].numpy()[:rows_shown]
    image = heat_map(averages, weights, vmin=0, vmax=np.ceil(10 * weights.max()) / 10)
    figure.colorbar(image, ax=averages, label="attention", fraction=0.04, pad=0.01)
    outline(averages, study.opened("cross", layer)[head][:rows_shown])
    keys, queries = letters(study.layout)
    label_tokens(averages, keys if len(keys) < 20 else once(keys), queries[:rows_shown], size=10)
    averages.set(title="1. What a plain model looks at", ylabel=f"first {rows_shown} output tokens, units first")
    longer = study.run.spec.sampler.layout(HEADLINE_DIGITS)
    mask(extended, study.bias.dense(longer, "cross", layer)[head].isfinite().numpy())
    keys, queries = letters(longer)
    every_fifth = [name * (row % 5 == 1) for row, name in enumerate(queries, 1)]
    label_tokens(extended, once(keys), every_fifth, size=9)
    extended.set(title="2. Its lines, extended: a new model's bias", ylabel="output token, units first")
    patches = [Patch(facecolor=color, edgecolor="0.5", label=name) for name, color in OPEN_OR_CLOSED.items()]
    extended.legend(handles=patches, loc="upper left", fontsize=9, frameon=True)
    for panel in (averages, extended):
        panel.set(xlabel="token of the problem (a, b: digits)")
    rows = with_titles(rows.loc[rows.groupby(["model", "length"]).accuracy.idxmin()])
    end = 500 * int(rows.length.max())
    colors = colors_of(sorted(set(rows.model), key=lambda model: [*COLOR_NUMBERS, model].index(model)))
    curves(accuracy, rows, "model", colors, dashed=["ABC"])
    accuracy.text(TRAINED**0.5, 50, "trained lengths", rotation=90, ha="center", va="center", fontsize=9, color="0.3")
    task = rows.task.iloc[0]
    accuracy.set(title=f"3. {task}: right answers", xlabel=f"length in {length_unit(task)}, log scale", xlim=(0.9, end))
    ticks = sorted({1, TRAINED, 20, *rows.groupby("model").length.max()})
    accuracy.set_xticks(ticks, map("{:,}".format, ticks))
    name_curves(accuracy, rows, colors)
    if certified:
        tested = rows[rows.model.isin(map(model_title, certified))].length.max()
        arrow = {"arrowstyle": "-|>", "color": "0.3", "linestyle": ":", "linewidth": 1.5}
        accuracy.annotate("", (end, 100), (tested, 100), arrowprops=arrow)
        counts = "\n".join(f"{model_title(model)}: {count} seeds " for model, count in certified.items())
        blank = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over the grid
        accuracy.text(end, 94, f"certified: \n{counts}", color="0.3", ha="right", va="top", fontsize=9, bbox=blank)
        accuracy.text(end, 103, "every length ", color="0.3", ha="right", va="bottom", fontsize=9)
    return figure


def name_curves(panel: Axes, rows: pd.DataFrame, colors: dict[str, Any]) -> None:
    """Names at the ends of curves: of those that end high one below the other, of others one above the other."""
    heights = {True: itertools.count(90, -11), False: itertools.count(5, 9)}
    for name, color in reversed(colors.items()):
        accuracy = rows[rows.model == name].set_index("length").accuracy
        end = accuracy.index.max()
        high = bool(accuracy[[end]].median() >= 0.5)
        x, side = (end, "right") if high else (1.2 * end, "left")
        panel.text(x, next(heights[high]), name, color=color, ha=side, va="center", fontsize=9)


def once(keys: Sequence[str]) -> list[str]:
    """Each run of one token named once, in its middle."""
    runs = [list(run) for _, run in itertools.groupby(keys)]
    return [key if place == len(run) // 2 else "" for run in runs for place, key in enumerate(run)]


def slip(panel: Axes, weights: np.ndarray, needed: np.ndarray, right: Sequence[bool]) -> None:
    """An arrow from a needed cell to what is seen instead, in the wrong row in which most is seen elsewhere."""
    rows = needed.any(1) & ~np.array(right)
    if not rows.any():
        return
    elsewhere = np.where(rows[:, None] & ~needed, weights, 0)
    row, column = np.unravel_index(elsewhere.argmax(), elsewhere.shape)
    arrow = {"arrowstyle": "->", "color": "white", "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", (column, row), (needed[row].argmax(), row), arrowprops=arrow)


def count_to_end(tokens: Sequence[str]) -> int:
    """How many tokens there are up to the first end token."""
    return [*tokens, EOS].index(EOS) + 1


@rc_context(STYLE)
def attention_maps(heads: Sequence[HeadMap], across: int = 0) -> Figure:
    """Heads on one scale (figures 5, 6), to the end tokens; wrong tokens are red, needed cells framed."""
    across = across or len(heads)
    heights, widths = [count_to_end(head.outputs) for head in heads], [count_to_end(head.keys) for head in heads]
    ratios = [max(widths[column::across]) for column in range(across)]
    title_room = 0.3 * (len(heads) > across)  # for titles below other panels
    size = (CELL * sum(ratios) / across + 1.1, CELL * max(heights) + 1.0 + title_room)
    figure, panels = new_figure(len(heads), across, size, width_ratios=ratios)
    for panel, head, rows, columns in zip(panels, heads, heights, widths, strict=True):
        image = heat_map(panel, head.weights[:rows, :columns], vmin=0, vmax=1, aspect="equal")
        label_tokens(panel, head.keys[:columns], head.outputs[:rows], size=9, right=head.right[:rows])
        outline(panel, head.needed[:rows, :columns])
        if not all(head.right):
            slip(panel, head.weights[:rows, :columns], head.needed[:rows, :columns], head.right[:rows])
        title = f"{head.title}: {'right' if all(head.right) else 'wrong'}"
        panel.set(title=textwrap.fill(title, max(18, 2 * columns)), xlabel=head.xlabel)
    for panel in panels[::across]:
        panel.set_ylabel("output token, units first")
    figure.colorbar(image, ax=panels, label="attention", fraction=0.03, pad=0.01)
    return figure
