"""The calibration bench's logic: one model's averaged attention, and what any settings make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from abc_nb.analysis import calibration_study
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import WHOLE, Lines, cells_of
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.of_model import average_attention, bias_from_attention
from abc_nb.experiments.experiment import Experiment, calibrated
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import TRAINED
from abc_nb.runs.store import Run
from abc_nb.show import pictures
from abc_nb.show.pictures import COLORS, TEXT

SIZE, CURVES_SIZE = (640, 300), (530, 300)  # pixels
COLUMNS = 4  # heads side by side
TESTS = tuple((length, 200) for length in (1, 3, 6, 7, 8, 10, 12, 15, 20, 30, 40, 60, 100))


@dataclass(frozen=True)
class Bench:
    """A plain model to calibrate; its attention is averaged once, over the problems that ABC takes.

    Raises InputError for a model that is not plain, or that is not trained.
    """

    name: str
    seed: int = 0
    profile: str = "quick"

    abc: Experiment = field(init=False)  # the retraining with a threshold that the model chooses

    def __post_init__(self) -> None:
        object.__setattr__(self, "abc", calibrated(self.name, self.profile))

    @cached_property
    def parent(self) -> Run:
        return load(self.name, self.seed, self.profile)

    @cached_property
    def layout(self) -> Layout:
        """Where tokens stand in the problems that attention is averaged over."""
        return self.abc.calibration_batch(self.seed).layout

    @cached_property
    def averages(self) -> dict[tuple[Attention, int], Tensor]:
        """Attention (head, query, key) by attention and layer."""
        return average_attention(self.parent.model(), self.abc.calibration_batch(self.seed))

    @property
    def heads(self) -> int:
        return self.parent.experiment.model.heads

    @property
    def layers(self) -> int:
        return self.parent.experiment.model.decoder_layers

    def calibrate(self, settings: Calibration) -> Lines:
        """The bias that these settings give; a fixed share or kappa, so that no model is asked."""
        batch = self.child(settings).calibration_batch(self.seed)
        same = batch.layout == self.layout  # not of padded problems, of which the paper takes every step
        averages = self.averages if same else average_attention(self.parent.model(), batch)
        return bias_from_attention(averages, batch.layout, settings)

    def longer(self, length: int) -> Layout:
        """The layout of problems of this length."""
        return self.parent.experiment.sampler.layout(length)

    def child(self, settings: Calibration) -> Experiment:
        """The retraining under that bias: ABC's recipe, tested on fewer problems."""
        return replace(self.abc, calibration=settings, tests=TESTS if self.profile == "quick" else self.abc.tests)


def line_table(bench: Bench, bias: Lines, name: Attention, layer: int) -> pd.DataFrame:
    """A row a kept line, heads counted from 1; `share` of its head's attention is on it, `value` is added."""
    frame = calibration_study.line_table(bias.of(name, layer), bench.averages, bench.layout)
    frame = frame.drop(columns=["attention", "layer"]).rename(columns={"span": "follows"})
    return frame.sort_values(["head", "share"], ascending=[True, False], ignore_index=True)


def averaged_figure(bench: Bench, bias: Lines, name: Attention, layer: int) -> Figure:
    """Averaged attention, a map a head on its own scale, with the kept lines drawn over it."""
    weights = bench.averages[name, layer].numpy()
    figure, corners = heads_figure(weights, f"averaged {name}-attention, layer {layer + 1}, with the lines kept")
    segments = []
    for line in bias.of(name, layer):
        steps, columns = cells_of(line, bench.layout)
        row, column = corners[line.head]
        if len(steps):
            segments.append([(column + columns[end], row + steps[end]) for end in (0, -1)])
    for color, width in (("black", 3.2), ("white", 1.6)):
        drawn = LineCollection(segments, colors=color, linewidths=width, capstyle="round")
        figure.axes[0].add_collection(drawn, autolim=False)
    return figure


def extended_figure(bench: Bench, bias: Lines, name: Attention, layer: int, length: int) -> Figure:
    """The bias for problems of this length, a map a head on its own scale; closed cells are grey."""
    matrices = bias.dense(bench.longer(length), name, layer, bench.heads).numpy()
    return heads_figure(matrices, f"bias of {name}-attention, layer {layer + 1}, for {length} digits")[0]


def heads_figure(matrices: np.ndarray, title: str) -> tuple[Figure, list[tuple[int, int]]]:
    """Matrices (head, query, key) in two rows, and where each begins, in cells."""
    figure = pictures.fixed_figure(*SIZE)
    look = f"{title}; rows: output tokens; brighter is more"
    axes = pictures.panel(figure, 10, 26, SIZE[0] - 20, SIZE[1] - 30, look)
    tiles = [pictures.colored(matrix, *limits(matrix)) for matrix in matrices]
    height, width = matrices.shape[1:]
    rows = -(-len(tiles) // COLUMNS)
    gap = (max(1, round(20 * height * rows / (SIZE[1] - 30 - 20 * rows))), max(1, width // 14))
    cells, corners = pictures.mosaic(tiles, COLUMNS, gap)
    pictures.show(axes, cells)
    for head, (row, column) in enumerate(corners):
        axes.text(column - 0.5, row - 0.5 - gap[0] * 0.15, f"head {head + 1}", fontsize=9, va="bottom", **TEXT)
    return figure, corners


def limits(matrix: np.ndarray) -> tuple[float, float]:
    """The scale of one head: from its smallest value, or from 0 where all are the same."""
    finite = matrix[np.isfinite(matrix)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if high > low else (low - 1, high)


def label(settings: Calibration) -> str:
    """The settings in a legend's few words."""
    threshold = f"share {settings.share:g}" if settings.kappa is None else "kappa {:g}, {:g}".format(*settings.kappa)
    words = [threshold, f"{settings.layers} layer", "operands" if settings.anchor != WHOLE else "whole matrix"]
    if len(settings.directions) < 3:
        words.append("+".join(settings.directions))
    return ", ".join(words) + (", empty heads open" if settings.empty == "transparent" else "")


def curves_figure(evaluations: Mapping[str, pd.DataFrame], longest: int = 100) -> Figure:
    """Accuracy against length, a line an evaluation; its name stands in the legend."""
    figure = pictures.fixed_figure(*CURVES_SIZE)
    axes = pictures.panel(figure, 40, 26, 270, 224, "exact match (%) by length; grey: trained")
    for i, (name, rows) in enumerate(evaluations.items()):
        rows = rows[rows.length <= longest]
        look = {"color": COLORS[i % len(COLORS)], "marker": "osD^vPX*"[i % 8], "markersize": 6, "linewidth": 2}
        axes.plot(rows.length, 100 * rows.accuracy, label=fill(name, 27), **look)
    axes.axvspan(0, TRAINED + 0.5, color="0.92", zorder=0)
    axes.set(xlim=(0.5, longest + 2), ylim=(-4, 104))
    axes.set_yticks([0, 50, 100], ["0", "50", "100"], fontsize=10, **TEXT)
    axes.set_xticks([1, 6, 20, 40, 60, 80, 100], [str(x) for x in (1, 6, 20, 40, 60, 80, 100)], fontsize=10, **TEXT)
    axes.hlines([0, 50, 100], 0, longest + 2, color="0.85", linewidth=0.8, zorder=0)
    axes.set_xlabel("digits", fontsize=11, **TEXT)
    legend = figure.legend(loc="upper left", bbox_to_anchor=(316 / CURVES_SIZE[0], 0.93), fontsize=9, frameon=False)
    legend.set_in_layout(False)
    return figure
