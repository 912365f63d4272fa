"""What every way of sweeping has in common: workers that take runs and report their steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import runner
from abc_nb.training.progress import Progress

INTERVAL = 0.5  # seconds between two reports of a run
Step = tuple[str, int, int]  # where a run is: its name, its seed, the step


class Killed(Exception):
    """The process that trained a run was killed; the checkpoint of the run is kept."""


@dataclass(frozen=True)
class Workers:
    """Those who train the runs of a sweep at the same time."""

    submit: Callable[[Experiment, int], Future[None]]  # starts a run; the future raises Killed or the run's error
    steps: SimpleQueue[Step]  # reported and not yet read
    count: int | None = None  # how many runs to submit at once; None: all, and the cluster decides when each begins


def train(experiment: Experiment, seed: int, report: Callable[[str, int, int], None]) -> None:
    """Train one run and report its step every `INTERVAL` seconds.

    `report` may end the training by an exception; the next sweep goes on from the checkpoint.
    """
    last = 0.0

    def reported(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > INTERVAL:
            report(experiment.name, seed, progress.step)
            last = time.monotonic()

    runner.ensure(experiment, seed, reported)
