"""What every way of sweeping has in common: those who take jobs and tell how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from abc_nb.runs import runner
from abc_nb.experiments.experiment import Experiment
from abc_nb.training.progress import Progress

EVERY = 0.5  # seconds from one telling to the next
Step = tuple[str, int, int]  # how far a run is: its name, its seed, the step


@dataclass(frozen=True)
class Crew:
    """Those who train the runs of a sweep at the same time."""

    submit: Callable[[Experiment, int], Future[None]]
    told: Callable[[], Step]  # what a run has told meanwhile; raises Empty if that was all
    hands: int | None = None  # how many runs to submit at once; None: all, others decide when each begins


def train(experiment: Experiment, seed: int, tell: Callable[[str, int, int], None]) -> None:
    """One run; twice a second it tells its step, and `tell` may end it: its checkpoint waits for the next sweep."""
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > EVERY:
            tell(experiment.name, seed, progress.step)
            last = time.monotonic()

    runner.ensure(experiment, seed, report)
