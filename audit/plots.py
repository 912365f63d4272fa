"""Curves and bars of the audit: each function takes frames and returns a Figure."""

import textwrap

import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from abc_nb.problems.tasks import Task, single
from abc_nb.show.pictures import COLORS, STYLE, WIDTH, new_figure
from abc_nb.show.plots import colors_of, curves, length_axis
from abc_nb.show.titles import length_unit, named, of_model, of_task
from abc_nb.specs.names import ARITHMETIC

USUAL = [of_task(task) for task in ARITHMETIC]  # the order of colours


@rc_context(STYLE)
def by_length(rows: pd.DataFrame) -> Figure:
    """Evaluation rows as curves over the length: a panel per model, a colour per task."""
    rows = named(rows)
    titles, names = list(dict.fromkeys(rows.model)), list(dict.fromkeys(rows.task))
    colors = colors_of(sorted(names, key=lambda name: USUAL.index(name) if name in USUAL else len(USUAL)))
    across = min(len(titles), 5 if len(titles) < 7 else 6)
    size = (1.75, 1.3 + 0.7 * across / len(titles))
    figure, axes = new_figure(len(titles), across, size, sharex=True, sharey=True)
    for panel, title in zip(axes, titles, strict=True):
        curves(panel, rows[rows.model == title], "task", colors)
        length_axis(panel, int(rows.length.max()), int(rows.length.min()))
        panel.set_title(textwrap.fill(title, 22), fontsize=8)
        panel.set_ylabel(panel.get_ylabel() * (panel in axes[::across]))
        panel.tick_params(labelsize=7)
    units = {task: length_unit(task) for task in rows.task.unique()}
    usual = next(iter(units.values()))
    others = [f"{task}: {unit}" for task, unit in units.items() if unit != usual]
    figure.supxlabel(f"length ({'; '.join([usual, *others])}); grey: trained", fontsize=9)
    handles = [Line2D([], [], color=color, linewidth=2, label=name) for name, color in colors.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False)
    return figure


@rc_context(STYLE)
def reach(table: pd.DataFrame, certified: dict[str, str] | None = None) -> Figure:
    """From training to the longest length that holds (columns of `frames.reach`), and on where it is certified."""
    proven = {f"{of_model(model)}, here": count for model, count in (certified or {}).items()}
    figure, (panel,) = new_figure(size=(1.6 * WIDTH, 0.3 * len(table) + 0.7))
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
    figure, panels = new_figure(2, size=(WIDTH * 0.85, 2.0))
    shown = {"RPE": ("RPE", "added to the logit"), "ABC": ("Vanilla, on ABC's lines", "share of attention")}
    for panel, (name, (title, unit)) in zip(panels, shown.items(), strict=True):
        sns.barplot(frame, x="offset", y=name, ax=panel, color=COLORS[0])
        panel.set(title=title, xlabel="columns to the right of the needed digit", ylabel=unit)
    return figure


@rc_context(STYLE)
def flipped(frame: pd.DataFrame) -> Figure:
    """`limits.per_flipped_bit`: a line for each model and seed, over the length."""
    figure, (panel,) = new_figure(size=(1.2 * WIDTH, 2.4))
    for color, (model, own) in zip(COLORS, frame.groupby("model", sort=False), strict=False):
        for number, (_, one) in enumerate(own.groupby("seed")):
            label = of_model(str(model)) if number == 0 else None
            panel.plot(one.length, one.change, color=color, linewidth=1.2, marker=".", label=label)
    panel.axvspan(4, max(map(single, Task("parity").training_widths("tight", 1))), color="0.9", zorder=0)
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
