"""Buttons that train an experiment in the background, one at a time, stop it and go on with it; and its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable

import ipywidgets as w

from abc_nb.common.errors import InputError
from abc_nb.runs import runner
from abc_nb.runs.store import Run
from abc_nb.specs.spec import Spec
from abc_nb.training.progress import Progress, schedule

RUNNING = threading.Lock()  # held by the one retraining of this process


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
