"""The calibration bench: a plain model's averaged attention, the lines that a threshold leaves, and retraining."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle

import ipywidgets as w
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from abc_nb.analysis.calibration_study import letters, line_table
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import SHARE, Calibration
from abc_nb.calibration.of_model import Averages, average_attention, bias_from_attention
from abc_nb.common.errors import InputError, in_words
from abc_nb.problems.layouts import Layout
from abc_nb.runs import runner, store
from abc_nb.runs.store import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import WIDTH, Explorer, choice, control, or_sentence, slider, table
from abc_nb.show.plots import colors_of, length_axis
from abc_nb.specs.spec import Spec, calibrated
from abc_nb.training.fit import Progress

HEIGHT = 580  # pixels
COLUMNS = 4  # heads side by side


@or_sentence
def explore_calibration(name: str = "addition-vanilla", seed: int = 0, profile: str = "quick") -> w.Widget:
    """Calibrate a plain model with a slider, see lines and bias change, and retrain under that bias."""
    bench = Bench(load(name, seed, profile), calibrated(name, profile))
    curves = bench.earlier()

    def look(figure: Figure, share: float, attention: Attention, layer: int, digits: int) -> str:
        lines = bench.draw(figure, round(share, 2), attention, layer - 1, digits)
        draw_curves(figure, curves)
        return lines

    def retrain(report: Callable[[Progress], None]) -> str:
        share = round(explorer.controls["share"].value, 2)
        curves[f"share {share:g}"] = runner.ensure(bench.child(share), seed, report).evaluation()
        explorer.update()
        return f"share {share:g}"

    layers = bench.parent.spec.model.decoder_layers
    controls = {
        "share": control(w.FloatSlider, "share", 300, value=bench.share, min=0.05, max=0.6, step=0.01),
        "attention": choice("attention", ["cross", "self"], "cross", 170),
        "layer": slider("layer", layers, 1, layers, 200),
        "digits": slider("digits", 16, 6, 60),
    }
    explorer = Explorer(controls, look, HEIGHT, 200, below=[Retraining(retrain)])
    return explorer


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

    def calibrate(self, share: float) -> Lines:
        """The bias of this threshold, so that no model is asked."""
        return bias_from_attention(self.averages, self.layout, Calibration(share=share))

    def child(self, share: float) -> Spec:
        """The retraining under that bias: ABC's recipe, tested on fewer problems."""
        tests = tuple((length, min(samples, 200)) for length, samples in self.abc.tests)
        return replace(self.abc, calibration=Calibration(share=share), tests=tests)

    @cached_property
    def made(self) -> Run | None:
        """ABC's run, where it is there."""
        return store.find(self.abc, self.parent.seed)

    @property
    def share(self) -> float:
        """The threshold that ABC chose, where it is there."""
        return SHARE if self.made is None else float(self.made.table("thresholds").share.iloc[-1])

    def earlier(self) -> dict[str, pd.DataFrame]:
        """Accuracy of the plain model, and of ABC where it is there."""
        runs = {"Vanilla": self.parent} | ({} if self.made is None else {f"ABC (its share: {self.share:g})": self.made})
        return {name: run.evaluation() for name, run in runs.items()}

    def draw(self, figure: Figure, share: float, attention: Attention, layer: int, digits: int) -> str:
        """Draw the lines of one attention and layer, and the bias for problems of a length; gives a table of lines."""
        bias, alone = self.calibrate(share), self.parent.spec.model.kind == "decoder-only"
        name = "attention on the problem" if alone and attention == "cross" else f"{attention}-attention"
        where = f"{name}, layer {layer + 1}"
        covered = bias.covers(self.layout, attention, layer).numpy()
        averaged = self.averages[attention, layer].numpy()
        draw_heads(figure, 0, averaged, f"averaged {where}, its lines framed", self.layout, covered)
        layout = self.parent.spec.sampler.layout(digits)
        longer = bias.dense(layout, attention, layer, bias.heads).numpy()
        draw_heads(figure, 1, longer, f"bias of {where}, for {digits} digits", layout)
        figure.axes[1].set_xlabel("key (yellow: 0; darker: lower; grey: closed)")
        shown = line_table(bias.of(attention, layer), self.averages, self.layout).drop(columns=["attention", "layer"])
        shown = shown.sort_values(["head", "share"], ascending=[True, False]).rename(columns={"span": "follows"})
        count = f'<b class="abc-count">{len(bias.lines)} lines, {len(shown)} of them in this map</b>'
        return count + table(shown, 160)


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
        axes.plot(rows.length, 100 * rows.accuracy, color=color, marker=marker, label=name)
    length_axis(axes, 100)
    axes.set(ylim=(-4, 104), xlabel="digits", yticks=[0, 50, 100])
    axes.grid(True, axis="y")
    figure.legend(loc="upper left", bbox_to_anchor=(560 / WIDTH, 1 - 376 / HEIGHT), frameon=False)


class Retraining(w.HBox):
    """A button, and what it says: `retrain` reports each step of the training and gives the name of its curve.

    The kernel is busy meanwhile; to stop it, interrupt it. Pressed again, it goes on from the last checkpoint.
    """

    def __init__(self, retrain: Callable[[Callable[[Progress], None]], str]) -> None:
        look = {"button_style": "primary", "icon": "play", "layout": w.Layout(width="190px")}
        self.retrain, self.start = retrain, w.Button(description="Retrain with this bias", **look)
        self.status = w.HTML("takes a minute; interrupt the kernel to stop it").add_class("abc-status")
        super().__init__([self.start, self.status])
        self.start.on_click(self.run)

    def run(self, _: w.Button) -> None:
        self.start.disabled = True
        try:
            self.status.value = f"Done: {self.retrain(self.report)}."
        except (InputError, OSError) as error:
            self.status.value = f"⚠ {in_words(error)}"
        finally:
            self.start.disabled = False

    def report(self, progress: Progress) -> None:
        if progress.step % 10 == 0:
            self.status.value = f"step {progress.step}"
