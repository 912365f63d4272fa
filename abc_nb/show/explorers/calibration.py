"""The calibration bench: a plain model's averaged attention, the lines that a threshold leaves, and their bias."""

from dataclasses import dataclass
from functools import cached_property

import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure

from abc_nb.analysis.calibration_study import letters, line_table
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import SHARE, Calibration
from abc_nb.calibration.calibrate_model import Averages, average_attention, bias_from_attention
from abc_nb.problems.layouts import Layout
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Explorer, control, or_sentence, scrolling_table
from abc_nb.specs.spec import Spec, abc_of

HEADS_A_ROW = 4  # heads side by side


@or_sentence
def explore_calibration(name: str = "addition-vanilla", seed: int = 0, profile: str = "quick") -> w.Widget:
    """Calibrate a plain model with a slider, and see its lines and their bias change."""
    bench = Bench(load(name, seed, profile), abc_of(name, profile))
    layers = bench.parent.spec.model.decoder_layers
    controls = {
        "share": control(w.FloatSlider, "share", 300, value=bench.share, min=0.05, max=0.6, step=0.01),
        "attention": control(w.Dropdown, "attention", 170, options=["cross", "self"], value="cross"),
        "layer": control(w.IntSlider, "layer", 200, value=layers, min=1, max=layers),
        "digits": control(w.IntSlider, "digits", value=16, min=6, max=60),
    }
    return Explorer(controls, bench.draw, 364, 200)


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

    @property
    def share(self) -> float:
        """The threshold that ABC chose, where its run is there."""
        made = store.find(self.abc, self.parent.seed)
        return SHARE if made is None else float(made.table("thresholds").share.iloc[-1])

    def draw(self, figure: Figure, share: float, attention: Attention, layer: int, digits: int) -> str:
        """Draw a layer's lines, counted from 1, and the bias for problems of a length; gives a table of lines."""
        bias, alone = self.calibrate(round(share, 2)), self.parent.spec.model.kind == "decoder-only"
        where = "attention on the problem" if alone and attention == "cross" else f"{attention}-attention"
        where, layer = f"{where}, layer {layer}", layer - 1
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
        return count + scrolling_table(shown, 160)


def draw_heads(
    figure: Figure, side: int, matrices: np.ndarray, title: str, layout: Layout, framed: np.ndarray | None = None
) -> None:
    """Matrices (head, query, key) on one scale, in rows of four; cells that are `framed` have a frame."""
    axes = pictures.panel(figure, 42 + 474 * side, 24, 420, 300, title)
    finite, (_, height, width) = matrices[np.isfinite(matrices)], matrices.shape
    gap = (max(1, round(height / 6)), max(1, width // 14))
    low, high = (finite.min() - 0.1, finite.max()) if finite.size else (0, 1)
    corners = pictures.mosaic(axes, list(matrices), HEADS_A_ROW, gap, low, high)
    for head, (row, left) in enumerate(corners):
        axes.text(left - 0.5, row - 0.5 - gap[0] * 0.15, f"head {head + 1}", fontsize=8, va="bottom")
        if framed is not None:
            pictures.outline(axes, framed[head], (row, left))
    names = [(row, name) for row, name in enumerate(letters(layout)[1]) if name]
    step = -(-len(names) // 5)
    shown = [(top + row, name) for top, _ in corners[::HEADS_A_ROW] for row, name in (*names[:-step:step], names[-1])]
    axes.set_yticks(*zip(*shown, strict=True), fontsize=7)
    axes.set(xlabel="key", ylabel="output token")
