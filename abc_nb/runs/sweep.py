"""Sweeps: many runs, in a process each, with the same results."""

import os
import sys
import warnings
from collections.abc import Sequence

import joblib
import torch

from abc_nb.common import paths
from abc_nb.common.errors import reason
from abc_nb.runs import runner
from abc_nb.specs.experiment import BaseSpec
from abc_nb.training.status import Status

Job = tuple[BaseSpec, int]  # an experiment and a seed


def workers() -> int:
    """One process a core that this one may use, or one in all on a GPU."""
    return 1 if torch.cuda.is_available() else int(joblib.cpu_count())


def missing(jobs: Sequence[Job]) -> list[Job]:
    """The jobs without a finished run made here, each after its parent if that is nowhere."""
    todo = [(needed, seed) for experiment, seed in jobs for needed in runner.untrained(experiment, seed)]
    # By key: two models may be equal in a small profile, and each still has its own name and folder.
    return list({experiment.key(seed): (experiment, seed) for experiment, seed in todo}.values())


def sweep(jobs: Sequence[Job], processes: int | None = None) -> list[str]:
    """Train what is missing and say how it went; returns a sentence for each run that failed, while others went on.

    Parents are begun before their children, which wait for them, since no run is made twice.
    """
    todo = sorted(missing(jobs), key=lambda job: depth(job[0]))
    print(f"runs asked for: {len(jobs)}, to be made: {len(todo)}", flush=True)
    if not todo:
        return []
    folder, failures = paths.runs(), list[str]()
    folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be written is named before the bar
    with warnings.catch_warnings():
        # joblib replaces a worker whose memory has grown, and warns of it. No job is lost by that.
        warnings.filterwarnings("ignore", "A worker stopped")
        parallel = joblib.Parallel(
            min(processes or workers(), len(todo)), return_as="generator_unordered", batch_size=1, pre_dispatch="all"
        )
        outcomes = parallel(joblib.delayed(attempt)(*job, str(folder)) for job in todo)
        for number, (name, failure) in enumerate(outcomes, 1):
            print(f"{number} of {len(todo)}: {name} {'failed' if failure else 'is made'}", flush=True)
            failures += [failure] if failure else []
    for failure in failures:
        print(f"abc-nb: {failure}", file=sys.stderr)
    print(f"made: {len(todo) - len(failures)}, failed: {len(failures)}; all are kept in {folder}", flush=True)
    return failures


def depth(experiment: BaseSpec) -> int:
    """How many trainings come before it."""
    return 1 + depth(experiment.parent) if experiment.parent else 0


def attempt(experiment: BaseSpec, seed: int, runs: str) -> tuple[str, str]:
    """Make one run, in whatever process this is: its name, and a sentence if it failed."""
    os.environ["ABC_NB_RUNS"] = runs
    name = f"{experiment.name} seed {seed}"
    try:
        runner.ensure(experiment, seed, Status(name, terminal=False))  # others write to the same terminal
    except Exception as error:
        return name, f"{name} failed: {reason(error)}"
    return name, ""
