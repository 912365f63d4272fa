"""Maps of the audit: accuracies by window and period, lines by direction, indices; each returns a Figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.figure import Figure

from abc_nb.analysis.statistics import ends
from abc_nb.show.maps import percent_map
from abc_nb.show.pictures import CLOSED_COLOR, COLORS, STYLE, WIDTH, heat_map, new_figure, with_tokens
from abc_nb.show.titles import named


@rc_context(STYLE)
def grid(rows: pd.DataFrame) -> Figure:
    """The median seed's percentages by window w and period T, a panel per task (columns as `over_seeds`, w, T)."""
    rows = named(rows)
    tasks = list(dict.fromkeys(rows.task))
    figure, panels = new_figure(len(tasks), min(2, len(tasks)), (WIDTH, 0.17 * rows.w.nunique() + 0.7))
    for panel, task in zip(panels, tasks, strict=True):
        part = rows[rows.task == task]
        table = part.pivot(index="w", columns="T", values="ours").reindex(list(dict.fromkeys(part.w)))
        seeds = "one seed" if part.seeds.max() == 1 else f"{ends(sorted(part.seeds))} seeds"
        percent_map(panel, table, f"{task} ({seeds})")
        panel.set(xlabel="period T", ylabel="window w")
        panel.label_outer(remove_inner_ticks=False)
    return figure


@rc_context(STYLE)
def directions(matrix: np.ndarray, tokens: tuple[Sequence[str], Sequence[str]]) -> Figure:
    """Averaged attention, and the mean of every line, named by the column where it meets the first row (figure 9)."""
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
        panel.set(title=title, xlabel="column in the first row")
        panel.sharey(panels[0])
    panels[0].set_ylabel("mean attention")
    return figure


@rc_context(STYLE)
def index_matrices(matrices: dict[str, np.ndarray]) -> Figure:
    """Matrices with their numbers written in the cells; cells without one are grey (figure 12)."""
    figure, panels = new_figure(len(matrices), size=(WIDTH * 0.7, 2.2))
    most = max(np.nanmax(np.abs(matrix)) for matrix in matrices.values())
    look: dict[str, Any] = {"annot": True, "fmt": "g", "annot_kws": {"size": 8}, "cbar": False, "square": True}
    for panel, (title, matrix) in zip(panels, matrices.items(), strict=True):
        sns.heatmap(matrix, ax=panel, cmap="vlag", vmin=-most, vmax=most, **look)
        panel.set(title=title, xlabel="key", facecolor=CLOSED_COLOR)
        panel.tick_params(length=0, labelsize=8, labelrotation=0)
        panel.grid(False)
    panels[0].set_ylabel("query")
    return figure
