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
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.explorer import Explorer, control, or_sentence, scrolling_table
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
    def batch(self) -> Batch:
        """The problems that attention is averaged over."""
        return self.abc.calibration_batch(self.parent.seed)

    @cached_property
    def averages(self) -> Averages:
        """Attention (head, query, key) by attention and layer."""
        return average_attention(self.parent.model(), self.batch)

    def calibrate(self, share: float) -> Lines:
        """The bias of this threshold, read from the averages alone."""
        return bias_from_attention(self.averages, self.batch.layout, Calibration(share=share))

    @property
    def share(self) -> float:
        """The threshold that ABC chose, where its run is there."""
        run = store.find(self.abc, self.parent.seed)
        return SHARE if run is None else float(run.table("thresholds").share.iloc[-1])

    def draw(self, figure: Figure, share: float, attention: Attention, layer: int, digits: int) -> str:
        """Draw a layer's lines, counted from 1, and the bias for problems of a length; gives a table of lines."""
        bias, layout = self.calibrate(round(share, 2)), self.batch.layout
        decoder_only = self.parent.spec.model.kind == "decoder-only"
        title = "attention on the problem" if decoder_only and attention == "cross" else f"{attention}-attention"
        title, layer = f"{title}, layer {layer}", layer - 1
        covered = bias.covers(layout, attention, layer).numpy()
        averages = self.averages[attention, layer].numpy()
        draw_heads(figure, 0, averages, f"averaged {title}, its lines framed", layout, covered)
        longer = self.parent.spec.sampler.layout(digits)
        dense = bias.dense(longer, attention, layer, bias.heads).numpy()
        draw_heads(figure, 1, dense, f"bias of {title}, for {digits} digits", longer)
        figure.axes[1].set_xlabel("key (yellow: 0; darker: lower; grey: closed)")
        lines = line_table(bias.of(attention, layer), self.averages, layout).drop(columns=["attention", "layer"])
        lines = lines.sort_values(["head", "share"], ascending=[True, False]).rename(columns={"span": "follows"})
        count = f'<b class="abc-count">{len(bias.lines)} lines, {len(lines)} of them in this map</b>'
        return count + scrolling_table(lines, 160)


def draw_heads(
    figure: Figure, side: int, matrices: np.ndarray, title: str, layout: Layout, framed: np.ndarray | None = None
) -> None:
    """Matrices (head, query, key) on one scale, in rows of four; cells that are `framed` have a frame."""
    axes = pictures.pixel_axes(figure, 42 + 474 * side, 24, 420, 300, title)
    finite, (_, height, width) = matrices[np.isfinite(matrices)], matrices.shape
    gap = (max(1, round(height / 6)), max(1, width // 14))
    low, high = (finite.min() - 0.1, finite.max()) if finite.size else (0, 1)
    corners = pictures.mosaic(axes, list(matrices), HEADS_A_ROW, gap, low, high)
    for head, (row, left) in enumerate(corners):
        axes.text(left - 0.5, row - 0.5 - gap[0] * 0.15, f"head {head + 1}", fontsize=8, va="bottom")
        if framed is not None:
            pictures.outline(axes, framed[head], (row, left))
    labels = [(row, label) for row, label in enumerate(letters(layout)[1]) if label]
    step = -(-len(labels) // 5)
    labels = [*labels[:-step:step], labels[-1]]
    ticks = [(top + row, label) for top, _ in corners[::HEADS_A_ROW] for row, label in labels]
    axes.set_yticks(*zip(*ticks, strict=True), fontsize=7)
    axes.set(xlabel="key", ylabel="output token")
