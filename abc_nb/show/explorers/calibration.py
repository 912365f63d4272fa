"""The calibration bench: one plain model's averaged attention, what any settings make of it, and retraining."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from textwrap import fill
from typing import Any

import ipywidgets as w
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from abc_nb.analysis.calibration_study import letters, line_table
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import DIRECTIONS, WHOLE, Lines
from abc_nb.calibration.calibrate import PAPER, SHARE, Calibration
from abc_nb.calibration.of_model import Averages, average_attention, bias_from_attention
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout
from abc_nb.runs import runner, store
from abc_nb.runs.store import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Controls, Explorer, choice, control, or_sentence, slider, table
from abc_nb.show.plots import colors_of, length_axis
from abc_nb.specs.spec import Spec, calibrated
from abc_nb.training.progress import Progress, schedule

SIZE = (940, 580)  # pixels
COLUMNS = 4  # heads side by side
TESTS = tuple((length, 200) for length in (1, 3, 6, 7, 8, 10, 12, 15, 20, 30, 40, 60, 100))
KAPPA = ("kappa_cross", "kappa_self")
RUNNING = threading.Lock()  # held by the one retraining of this process


@or_sentence
def explore_calibration(name: str = "addition-vanilla", seed: int = 0, profile: str = "quick") -> w.Widget:
    """Calibrate a plain model with sliders, see lines and bias change, and retrain under that bias."""
    bench = Bench(load(name, seed, profile), calibrated(name, profile))
    curves = bench.earlier()

    def adjust(controls: Controls, changed: str) -> None:
        """The threshold in use is the one that can be moved."""
        for name in ("share", *KAPPA):
            controls[name].disabled = (name in KAPPA) != (controls["threshold"].value == "kappa")

    def look(figure: Figure, attention: Attention, layer: int, length: int, **values: Any) -> str:
        lines = bench.draw(figure, settings(**values), attention, layer - 1, length)
        draw_curves(figure, curves)
        return lines

    def wanted() -> tuple[str, Spec]:
        values = explorer.values
        chosen = settings(**{name: values[name] for name in values.keys() - {"attention", "layer", "length"}})
        bench.calibrate(chosen)
        return label(chosen), bench.child(chosen)

    def done(name: str, run: Run) -> None:
        curves[name] = run.evaluation()
        explorer.update()

    layers = bench.parent.spec.model.decoder_layers
    explorer = Explorer(controls(layers), look, SIZE, 200, adjust, [Retraining(seed, wanted, done)])
    return explorer


def controls(layers: int) -> list[dict[str, w.ValueWidget]]:
    """The settings of a calibration, and what is to be seen of it."""
    cross, own = PAPER.kappa or (0.0, 0.0)
    return [
        {
            "threshold": choice("threshold", ["share", "kappa"], "share", 170),
            "share": control(w.FloatSlider, "share", 250, value=SHARE, min=0.05, max=0.6, step=0.01),
            "kappa_cross": control(w.FloatSlider, "kappa, cross", 250, value=cross, min=0.5, max=6, step=0.05),
            "kappa_self": control(w.FloatSlider, "kappa, self", 250, value=own, min=0.5, max=3, step=0.01),
        },
        {name: w.Checkbox(True, description=name, indent=False, layout=w.Layout(width="110px")) for name in DIRECTIONS}
        | {
            "layers": choice("source layer", [("its own", "each"), ("last for all", "last")], "each", 210),
            "anchor": choice("lines run over", [("operands", "operands"), ("whole matrix", "whole")], "operands", 230),
        },
        {
            "attention": choice("attention", ["cross", "self"], "cross", 170),
            "layer": slider("layer", layers, 1, layers),
            "length": slider("digits", 16, 6, 60),
            "open_heads": w.Checkbox(False, description="a head without lines sees all keys", indent=False),
        },
    ]


def settings(threshold: str, share: float, open_heads: bool, **values: Any) -> Calibration:
    """What the controls say; InputError where that is not possible."""
    by_kappa = threshold == "kappa"
    return Calibration(
        layers=values["layers"],
        anchor=values["anchor"],
        directions=tuple(name for name in DIRECTIONS if values[name]),
        share=None if by_kappa else round(share, 2),
        kappa=(round(values["kappa_cross"], 2), round(values["kappa_self"], 2)) if by_kappa else None,
        empty="transparent" if open_heads else "closed",
    )


def label(settings: Calibration) -> str:
    """The settings in a legend's few words."""
    threshold = f"share {settings.share:g}" if settings.kappa is None else "kappa {:g}, {:g}".format(*settings.kappa)
    words = [threshold, f"{settings.layers} layer", "operands" if settings.anchor != WHOLE else "whole matrix"]
    if len(settings.directions) < len(DIRECTIONS):
        words.append("+".join(settings.directions))
    return ", ".join(words) + (", empty heads open" if settings.empty == "transparent" else "")


@dataclass(frozen=True)
class Bench:
    """A plain model to calibrate, and ABC of it; attention is averaged once, over the problems that ABC takes."""

    parent: Run
    abc: Spec

    @cached_property
    def layout(self) -> Layout:
        """Where tokens stand in the problems that attention is averaged over."""
        return self.abc.calibration_batch(self.parent.seed).layout

    @cached_property
    def averages(self) -> Averages:
        """Attention (head, query, key) by attention and layer."""
        return average_attention(self.parent.model(), self.abc.calibration_batch(self.parent.seed))

    def calibrate(self, settings: Calibration) -> Lines:
        """The bias that these settings give; a fixed share or kappa, so that no model is asked."""
        batch = self.child(settings).calibration_batch(self.parent.seed)
        same = batch.layout == self.layout  # not of padded problems, of which the paper takes every step
        averages = self.averages if same else average_attention(self.parent.model(), batch)
        return bias_from_attention(averages, batch.layout, settings)

    def child(self, settings: Calibration) -> Spec:
        """The retraining under that bias: ABC's recipe, tested on fewer problems."""
        tests = TESTS if self.abc.profile == "quick" else self.abc.tests
        return replace(self.abc, calibration=settings, tests=tests)

    def earlier(self) -> dict[str, pd.DataFrame]:
        """Accuracy of the plain model, and of ABC where it is there."""
        runs, abc = {"Vanilla": self.parent}, store.find(self.abc, self.parent.seed)
        if abc is not None and (tried := abc.thresholds()) is not None:
            runs[f"ABC (its share: {tried.share.iloc[-1]:g})"] = abc
        return {name: run.evaluation() for name, run in runs.items()}

    def draw(self, figure: Figure, settings: Calibration, attention: Attention, layer: int, length: int) -> str:
        """Draw the lines of one attention and layer, and the bias for problems of a length; gives a table of lines."""
        bias, alone = self.calibrate(settings), self.parent.spec.model.kind == "decoder-only"
        name = "attention on the problem" if alone and attention == "cross" else f"{attention}-attention"
        where = f"{name}, layer {layer + 1}"
        covered = bias.covers(self.layout, attention, layer).numpy()
        averaged = self.averages[attention, layer].numpy()
        draw_heads(figure, 0, averaged, f"averaged {where}, its lines framed", self.layout, covered)
        layout = self.parent.spec.sampler.layout(length)
        longer = bias.dense(layout, attention, layer, bias.heads).numpy()
        draw_heads(figure, 1, longer, f"bias of {where}, for {length} digits", layout)
        figure.axes[1].set_xlabel("key (yellow: 0; darker: lower; grey: closed)")
        shown = line_table(bias.of(attention, layer), self.averages, self.layout).drop(columns=["attention", "layer"])
        shown = shown.sort_values(["head", "share"], ascending=[True, False]).rename(columns={"span": "follows"})
        count = f'<b class="abc-count">{len(bias.lines)} lines, {len(shown)} of them in this map</b>'
        return count + table(shown, 170)


def draw_heads(
    figure: Figure, side: int, matrices: np.ndarray, title: str, layout: Layout, framed: np.ndarray | None = None
) -> None:
    """Matrices (head, query, key) on one scale, in rows of four; cells that are `framed` have a frame."""
    axes = pictures.panel(figure, 42 + 474 * side, 24, 420, 300, title)
    finite, (_, height, width) = matrices[np.isfinite(matrices)], matrices.shape
    gap = (max(1, round(height / 6)), max(1, width // 14))
    low, high = (finite.min() - 0.1, finite.max()) if finite.size else (0, 1)
    corners = pictures.mosaic(axes, list(matrices), COLUMNS, gap, low, high)
    for head, (row, left) in enumerate(corners):
        axes.text(left - 0.5, row - 0.5 - gap[0] * 0.15, f"head {head + 1}", fontsize=8, va="bottom")
        if framed is not None:
            pictures.outline(axes, framed[head], (row, left))
    names = [(row, name) for row, name in enumerate(letters(layout)[1]) if name]
    step = -(-len(names) // 5)
    shown = [(top + row, name) for top, _ in corners[::COLUMNS] for row, name in (*names[:-step:step], names[-1])]
    axes.set_yticks(*zip(*shown, strict=True), fontsize=7)
    axes.set(xlabel="key", ylabel="output token")


def draw_curves(figure: Figure, curves: Mapping[str, pd.DataFrame]) -> None:
    """Accuracy against length, a line an evaluation; its name stands in the legend."""
    axes = pictures.panel(figure, 46, 368, 500, 168, "exact match (%) by length; grey: trained")
    for marker, (name, color) in zip(cycle("osD^vPX*"), colors_of(curves).items(), strict=False):
        rows = curves[name]
        axes.plot(rows.length, 100 * rows.accuracy, color=color, marker=marker, label=fill(name, 40))
    length_axis(axes, 100)
    axes.set(ylim=(-4, 104), xlabel="digits", yticks=[0, 50, 100])
    axes.grid(True, axis="y")
    figure.legend(loc="upper left", bbox_to_anchor=(560 / SIZE[0], 1 - 376 / SIZE[1]), frameon=False)


# ---- retraining -------------------------------------------------------------------------------------


class Stopped(Exception):
    """The user stopped the training; its last checkpoint stays."""


class Retraining(w.HBox):
    """`wanted` gives a curve's name and the experiment to train for it; `done` gets the name and the finished run."""

    def __init__(self, seed: int, wanted: Callable[[], tuple[str, Spec]], done: Callable[[str, Run], None]) -> None:
        self.seed, self.wanted, self.done = seed, wanted, done
        look = {"button_style": "primary", "icon": "play", "layout": w.Layout(width="190px")}
        self.start = w.Button(description="Retrain with this bias", **look)
        self.stop = w.Button(description="Stop", icon="stop", disabled=True, layout=w.Layout(width="84px"))
        self.bar = w.IntProgress(value=0, max=1, layout=w.Layout(width="180px"))
        self.status = w.HTML(layout=w.Layout(width="450px")).add_class("abc-status")
        super().__init__([self.start, self.stop, self.bar, self.status])
        self.stopping, self.thread = threading.Event(), threading.Thread()
        self.start.on_click(lambda _: self.begin())
        self.stop.on_click(lambda _: self.stopping.set())

    def begin(self) -> None:
        """Start the thread; where that is not possible, say why."""
        try:
            wanted = self.wanted()
            if not RUNNING.acquire(blocking=False):
                raise InputError("a retraining is running: wait until it is finished, or stop it")
        except InputError as error:
            self.status.value = f"⚠ {error}"
            return
        self.stopping.clear()
        self.bar.value, self.start.disabled, self.stop.disabled = 0, True, False
        self.status.value = "calibrating"
        self.thread = threading.Thread(target=self.work, args=wanted, daemon=True)
        self.thread.start()

    def work(self, name: str, experiment: Spec) -> None:
        """Train; in a thread nobody else would see an error."""
        try:
            self.done(name, runner.ensure(experiment, self.seed, lambda progress: self.check(progress, experiment)))
            self.status.value = f"Done: {name}."
        except Stopped:
            self.status.value = "Stopped. Press retrain again to go on from the last checkpoint."
        except Exception as error:
            self.status.value = f"The retraining failed: {error}"
        finally:
            RUNNING.release()
            self.start.disabled, self.stop.disabled = False, True

    def check(self, progress: Progress, experiment: Spec) -> None:
        """Called after every step: say how far it is, or stop."""
        step, end = progress.step, schedule(progress.history, experiment.training).end
        self.bar.max, self.bar.value, self.stop.disabled = end, step, step == end
        self.status.value = f"step {step} of {end}" if step < end else "trained; measuring accuracy"
        if self.stopping.is_set() and step < end:
            raise Stopped
