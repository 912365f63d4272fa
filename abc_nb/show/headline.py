"""The picture of the whole project: what a plain model looks at, the bias made from it, and how far that holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abc_nb.analysis.calibration_study import CalibrationStudy, letters
from abc_nb.show.maps import outline, with_tokens
from abc_nb.show.pictures import COLORS, GRID, blank, heat_map
from abc_nb.show.plots import curves, look_of
from abc_nb.show.titles import named, of_model

DIGITS = 16  # of the sums that the bias is drawn for


@rc_context(GRID)
def headline(study: CalibrationStudy, rows: pd.DataFrame, certified: dict[str, str]) -> Figure:
    """Averaged attention with its lines, the bias for sixteen digits, accuracy by length: three panels.

    `rows` are evaluation rows of one task; `certified` says of a model how many of its runs are certified.
    """
    layer, head = study.strongest_head("cross", "antidiagonal")
    attention, bias = study.averaged("cross", layer)[head], study.extended("cross", layer, DIGITS)[head]
    figure = blank(12.6, 3.5)
    panels = figure.subplots(1, 3, width_ratios=[3.4, 4.0, 4.2])
    heat_map(panels[0], attention, vmin=0)
    outline(panels[0], study.opened("cross", layer)[head])
    with_tokens(panels[0], *letters(study.layout))
    panels[0].set(title="1. What a plain model looks at", ylabel="output token, units first")
    heat_map(panels[1], bias, vmin=np.min(bias[np.isfinite(bias)]) - 0.1, vmax=0)
    keys, queries = letters(study.run.experiment.sampler.layout(DIGITS))
    with_tokens(panels[1], keys, queries)
    panels[1].tick_params(labelsize=5)
    panels[1].set(title="2. Its lines, extended: the bias of a new model")
    curves(panels[2], named(rows))
    panels[2].set(title="3. Right answers by length")
    beyond(panels[2], int(rows.length.max()), {of_model(model): count for model, count in certified.items()})
    for panel in panels[:2]:
        panel.set_xlabel("problem: digits of the numbers a and b")
    return figure


def beyond(panel: Axes, longest: int, certified: dict[str, str]) -> None:
    """What is proven of lengths that no test has: a note to the right of the curves."""
    for place, (model, count) in enumerate(certified.items()):
        panel.annotate(
            f"{model}: {count} certified for every length", (1.0, 0.62 - 0.08 * place), xycoords="axes fraction",
            ha="right", fontsize=7.5, color=COLORS[look_of(model)[0]], xytext=(-6, 0), textcoords="offset points",
        )  # fmt: skip
    panel.set_xlim(0.9, 12 * longest)
