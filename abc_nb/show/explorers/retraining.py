"""One retraining at a time, in a thread of its own, that can be stopped and gone on with."""

from __future__ import annotations

import threading
from collections.abc import Callable

from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import runner
from abc_nb.runs.store import Run
from abc_nb.training.progress import Progress, schedule

RUNNING = threading.Lock()  # held by the one retraining of this process


class Stopped(Exception):
    """The user stopped the training; its last checkpoint stays."""


class Retraining:
    """Trains an experiment in a thread once it is started; `report` and `done` are called from there.

    `report` gets the steps done and the steps in all; `done` gets the finished run, or None and a
    sentence that says why there is none. InputError if another retraining is running.
    """

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        report: Callable[[int, int], None],
        done: Callable[[Run | None, str], None],
    ) -> None:
        if not RUNNING.acquire(blocking=False):
            raise InputError("a retraining is running: wait until it is finished, or stop it")
        self.experiment, self.seed, self.report, self.done = experiment, seed, report, done
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Ask the training to end after the step it is at."""
        self.stopping.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended, or until the time is over."""
        self.thread.join(seconds)

    def work(self) -> None:
        run, sentence = None, ""
        try:
            run = runner.ensure(self.experiment, self.seed, self.check)
        except Stopped:
            sentence = "Stopped. Press retrain again to go on from the last checkpoint."
        except Exception as error:  # in a thread nobody else would see it
            sentence = f"The retraining failed: {error}"
        finally:
            RUNNING.release()
        self.done(run, sentence)

    def check(self, progress: Progress) -> None:
        """Called after every step: pass it on, or stop."""
        end = schedule(progress.history, self.experiment.training).end
        self.report(progress.step, end)
        if self.stopping.is_set() and progress.step < end:
            raise Stopped
