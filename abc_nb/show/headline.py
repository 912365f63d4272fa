"""The picture of the whole project: what a plain model looks at, the bias made from it, and how far that holds."""

from __future__ import annotations

from typing import Any

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
    figure = blank(13.6, 3.6)
    panels = figure.subplots(1, 3, width_ratios=[3.6, 4.2, 4.6])
    image = heat_map(panels[0], attention, vmin=0, vmax=1)
    figure.colorbar(image, ax=panels[0], label="attention", fraction=0.04, pad=0.01)
    outline(panels[0], study.opened("cross", layer)[head])
    with_tokens(panels[0], *letters(study.layout))
    panels[0].set(title="1. What a plain model looks at", ylabel="output token, units first")
    image = heat_map(panels[1], bias, vmin=np.min(bias[np.isfinite(bias)]) - 0.1, vmax=0)
    figure.colorbar(image, ax=panels[1], label="added to the logit (grey: closed)", fraction=0.04, pad=0.01)
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
    """What is proved of lengths that no test has, to the right of the longest one: an arrow, and who is certified."""
    left, right = 5.0 * longest, 500.0 * longest
    middle: dict[str, Any] = {"x": (left * right) ** 0.5, "ha": "center", "va": "center", "fontsize": 9}
    panel.axvspan(left, right, color="0.96", zorder=0)
    panel.annotate("", (right, 100), (left, 100), arrowprops={"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.5})
    panel.text(y=85, s="certified for\nevery length", color="0.3", **middle)
    for place, (model, count) in enumerate(certified.items()):
        panel.text(y=70 - 9 * place, s=f"{model}: {count}", color=COLORS[look_of(model)], **middle)
    panel.set_xlim(0.9, right)
