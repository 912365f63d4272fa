"""The calibration bench as a widget."""

from __future__ import annotations

from functools import partial

import ipywidgets as w
import pandas as pd

from abc_nb.bias.lines import DIRECTIONS
from abc_nb.calibration.calibrate import PAPER, SHARE, Calibration
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.show.explorers import calibration as logic
from abc_nb.show.explorers.parts import Explorer, choice, line, or_sorry, picture, slider, style, table
from abc_nb.show.explorers.retraining import Retraining

SIDE, TABLE = 280, 390  # pixels: of the controls' column, of the table of lines
LABEL = "105px"  # one width, so that controls stand in a column


def explore_calibration(name: str = "addition-vanilla", seed: int = 0, profile: str = "quick") -> Explorer:
    """Calibrate a plain model with sliders, see lines and bias change, and retrain under that bias."""
    return or_sorry(lambda: CalibrationBench(name, seed, profile))


class CalibrationBench(Explorer):
    """Settings of a calibration; the lines and the bias that they give, and what retraining makes of them."""

    def __init__(self, name: str, seed: int, profile: str) -> None:
        super().__init__()
        self.bench = logic.Bench(name, seed, profile)
        self.curves = self.earlier()
        self.training: Retraining | None = None
        self.make_settings()
        self.make_view()
        self.make_training()
        self.lay_out()
        settings = (self.threshold, self.share, *self.kappa, *self.directions, self.layers, self.anchor, self.empty)
        self.on(self.redraw, *settings, self.attention, self.layer, self.length)
        self.attempt(self.redraw)
        self.draw(self.curves_map, logic.curves_figure(self.curves))

    def earlier(self) -> dict[str, pd.DataFrame]:
        """Accuracy of the plain model, and of ABC where it is there."""
        found = {"Vanilla": self.bench.parent}
        abc = store.find(self.bench.abc, self.bench.seed)
        found |= {} if abc is None else {"ABC (threshold chosen by the model)": abc}
        return {name: run.evaluation() for name, run in found.items()}

    def make_settings(self) -> None:
        paper = PAPER.kappa or (0.0, 0.0)
        self.threshold = choice("threshold", ["share", "kappa"], "share", SIDE)
        self.share = fraction("share", SHARE, 0.05, 0.6, 0.01)
        self.kappa = (fraction("kappa, cross", paper[0], 0.5, 6, 0.05), fraction("kappa, self", paper[1], 0.5, 3, 0.01))
        self.directions = [w.Checkbox(True, description=name, indent=False) for name in DIRECTIONS]
        self.layers = choice("source layer", [("each its own", "each"), ("last for all", "last")], "each", SIDE)
        self.anchor = choice("lines run over", [("operands", "operands"), ("whole matrix", "whole")], "operands", SIDE)
        self.empty = w.Checkbox(False, description="a head without lines sees all keys", indent=False)

    def make_view(self) -> None:
        self.attention = choice("attention", ["cross", "self"], "cross", SIDE)
        self.layer = slider("layer", self.bench.layers, 1, self.bench.layers, SIDE)
        self.length = slider("digits", 16, 6, 60, SIDE)
        named = (self.threshold, self.share, *self.kappa, self.layers, self.anchor)
        for control in (*named, self.attention, self.layer, self.length):
            control.style.description_width = LABEL
        self.averaged = picture(logic.SIZE)
        self.extended = picture(logic.SIZE)
        self.count, self.lines = line(28, TABLE), line(320, TABLE)

    def make_training(self) -> None:
        self.retrain = w.Button(description="Retrain with this bias", button_style="primary", icon="play")
        self.stop = w.Button(description="Stop", icon="stop", disabled=True)
        self.bar = w.IntProgress(value=0, max=1, layout=w.Layout(width="240px"))
        self.status = line(28, 530)
        self.status.add_class("abc-status")
        self.curves_map = picture(logic.CURVES_SIZE)
        self.retrain.layout.width, self.stop.layout.width = "190px", "84px"
        self.retrain.on_click(lambda _: self.attempt(self.begin))
        self.stop.on_click(lambda _: self.end())

    def lay_out(self) -> None:
        settings = [self.threshold, self.share, *self.kappa, *self.directions, self.layers, self.anchor, self.empty]
        column = w.Layout(width=f"{SIDE + 12}px", overflow="hidden", flex="0 0 auto")
        left = w.VBox([*settings, heading("view"), self.attention, self.layer, self.length], layout=column)
        buttons = w.HBox([self.retrain, self.stop, self.bar])
        self.children = [
            self.message,
            w.HBox([left, w.VBox([self.averaged, self.extended])]),
            w.HBox([w.VBox([self.count, self.lines]), w.VBox([buttons, self.status, self.curves_map])]),
        ]

    # ---- lines ----------------------------------------------------------------------------------

    def settings(self) -> Calibration:
        """What the controls say; InputError where that is not possible."""
        by_kappa = self.threshold.value == "kappa"
        return Calibration(
            layers=self.layers.value,
            anchor=self.anchor.value,
            directions=tuple(box.description for box in self.directions if box.value),
            share=None if by_kappa else round(self.share.value, 2),
            kappa=tuple(round(slider.value, 2) for slider in self.kappa) if by_kappa else None,
            empty="transparent" if self.empty.value else "closed",
        )

    def redraw(self) -> None:
        by_kappa = self.threshold.value == "kappa"
        self.share.disabled = by_kappa
        self.kappa[0].disabled = self.kappa[1].disabled = not by_kappa
        bias = self.bench.calibrate(self.settings())
        where = (self.attention.value, self.layer.value - 1)
        self.draw(self.averaged, logic.averaged_figure(self.bench, bias, *where))
        self.draw(self.extended, logic.extended_figure(self.bench, bias, *where, self.length.value))
        shown = logic.line_table(self.bench, bias, *where)
        self.count.value = f'<b class="abc-count">{len(bias.lines)} lines, {len(shown)} of them in this map</b>'
        self.lines.value = table(shown, 316)

    # ---- retraining -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Retrain under the present bias, in the background."""
        settings = self.settings()
        self.bench.calibrate(settings)
        finish = partial(self.finish, logic.label(settings))
        self.training = Retraining(self.bench.child(settings), self.bench.seed, self.report, finish)
        self.bar.value, self.retrain.disabled, self.stop.disabled = 0, True, False
        self.status.value = "calibrating"
        self.training.start()

    def end(self) -> None:
        if self.training is not None:
            self.training.stop()

    def report(self, step: int, steps: int) -> None:
        self.bar.max, self.bar.value = steps, step
        self.stop.disabled = step == steps
        self.status.value = f"step {step} of {steps}" if step < steps else "trained; measuring accuracy"

    def finish(self, name: str, run: Run | None, sentence: str) -> None:
        if run is not None:
            self.curves[name] = run.evaluation()
            self.draw(self.curves_map, logic.curves_figure(self.curves))
            sentence = f"Done: {name}."
        self.status.value = sentence
        self.retrain.disabled, self.stop.disabled = False, True


def fraction(description: str, value: float, low: float, high: float, step: float) -> w.FloatSlider:
    layout = w.Layout(width=f"{SIDE}px")
    return w.FloatSlider(
        description=description, value=value, min=low, max=high, step=step, layout=layout, style=style(description)
    )


def heading(text: str) -> w.HTML:
    return w.HTML(f"<b>{text}</b>", layout=w.Layout(height="26px"))
