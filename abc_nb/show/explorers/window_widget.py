"""The window bench as a widget."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import ipywidgets as widgets

from abc_nb.common.errors import InputError
from abc_nb.experiments import ARITHMETIC
from abc_nb.experiments.catalogue import GRID_T, GRID_W
from abc_nb.experiments.profiles import TABLE
from abc_nb.problems.tasks import REGISTRY
from abc_nb.show.explorers import window as logic
from abc_nb.show.explorers.parts import Explorer, choice, line, or_sorry, picture, slider, style, table


def explore_window(task: str = "addition", seed: int = 0) -> Explorer:
    """Window and period as sliders: the mask, its open keys, and the accuracy that was measured with them."""
    return or_sorry(lambda: WindowBench(task, seed))


class WindowBench(Explorer):
    """Window and period: the mask they make, and what the grid of trained models says about them."""

    def __init__(self, task: str, seed: int) -> None:
        super().__init__()
        if task not in ARITHMETIC:
            raise InputError(f"there is no window bench for {task!r}: choose one of {', '.join(ARITHMETIC)}")
        self.seed = seed
        self.task = choice("task", [(REGISTRY[name].title, name) for name in ARITHMETIC], task, 200)
        self.window = selection("window w", GRID_W, 1)
        self.period = selection("period T", GRID_T, 3)
        self.sides = choice("open to", [("one side", "one"), ("both sides", "both")], "one", 200)
        self.length = slider("digits in the mask", 6, 1, 20)
        self.tested = selection("digits tested", TABLE, 60)
        self.opened, self.accuracy = line(100, 320), line(44)
        self.mask = picture(logic.MASK_SIZE)
        self.grid = picture(logic.GRID_SIZE)
        self.children = [
            widgets.HBox([self.task, self.window, self.period]), widgets.HBox([self.sides, self.length, self.tested]),
            self.message,
            self.mask, self.accuracy, widgets.HBox([self.grid, self.opened]),
        ]  # fmt: skip
        self.on(self.take_task, self.task, self.sides)
        self.on(self.redraw, self.window, self.period, self.length, self.tested)
        self.attempt(self.take_task)

    def take_task(self) -> None:
        """Read what was measured of the task."""
        self.measured = logic.measured(self.task.value, self.seed, self.sides.value)
        self.redraw()

    def redraw(self) -> None:
        task, w, t, sides = self.task.value, GRID_W[self.window.index], GRID_T[self.period.index], self.sides.value
        layout = logic.layout_of(task, self.length.value)
        self.draw(self.mask, logic.mask_figure(layout, w, t, sides))
        self.draw(self.grid, logic.grid_figure(self.measured, TABLE[self.tested.index], w, t))
        self.opened.value = table(logic.open_keys(layout, w, sides), 90)
        self.accuracy.value = escape(logic.sentence(task, self.measured, w, t, self.seed, sides))


def selection(description: str, values: Sequence[int | None], value: int) -> widgets.SelectionSlider:
    """A slider over values of which one can be none; its `index` says which."""
    options, chosen = [logic.label(each) for each in values], logic.label(value)
    layout, room = widgets.Layout(width="320px"), style(description)
    return widgets.SelectionSlider(description=description, options=options, value=chosen, layout=layout, style=room)
