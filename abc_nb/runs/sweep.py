"""Sweeps: many runs in turn, in a process each, or on a Dask cluster, with the same results."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch
from tqdm.auto import tqdm

from abc_nb.bias.base import Causal
from abc_nb.common import devices, paths
from abc_nb.common.errors import InputError, in_words
from abc_nb.experiments.experiment import Experiment
from abc_nb.model import compiled
from abc_nb.model.positions import Sinusoidal
from abc_nb.runs import runner
from abc_nb.runs.cluster import cluster
from abc_nb.runs.processes import processes
from abc_nb.runs.workers import INTERVAL, Killed, Workers, train
from abc_nb.training.trainer import Trainer

Job = tuple[Experiment, int]  # an experiment and a seed
RESTARTS = 4  # of a run whose process was killed; each goes on from its checkpoint
KILLED = "its process was killed again and again, as it happens when memory runs out; its checkpoint is kept"


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error; the others went on."""

    name: str
    seed: int
    error: str

    def __str__(self) -> str:
        return f"{self.name} seed {self.seed} failed: {self.error}"


def workers() -> int:
    """One process a core that this one may use, or one in all on a GPU."""
    if torch.cuda.is_available():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def missing(jobs: Sequence[Job]) -> list[Job]:
    """The jobs without a finished run made here, each after its parent if that is nowhere."""
    found = [(experiment, seed) for job, seed in jobs for experiment in runner.untrained(job, seed)]
    return list(dict.fromkeys(found))


def estimate(jobs: Sequence[Job]) -> float:
    """Seconds that training may take at most: steps to do, times a step measured now, shared by the workers."""
    measured: dict[Any, float] = {}
    total = 0.0
    for experiment, seed in jobs:
        model = replace(experiment.model, position=Sinusoidal(), bias=Causal())
        shape = (experiment.sampler, model, experiment.training.held_batch)
        if shape not in measured:
            measured[shape] = step_seconds(experiment, seed)
        total += measured[shape] * experiment.training.steps
    return total / max(1, min(workers(), len(jobs)))


@devices.one_thread()
def step_seconds(experiment: Experiment, seed: int) -> float:
    """Seconds of one training step on one thread, after a first one to warm up."""
    model = experiment.build(seed).to(devices.device())
    trainer = Trainer(model, experiment.sampler, experiment.training, seed)
    trainer.step()
    start = time.perf_counter()
    trainer.step()
    return time.perf_counter() - start


class Bar:
    """How far every run is, drawn as one bar over all steps; a run that stops early counts as whole."""

    def __init__(self, jobs: Sequence[Job], show: bool) -> None:
        self.total = {(experiment.name, seed): experiment.training.steps for experiment, seed in jobs}
        self.steps = dict.fromkeys(self.total, 0)
        self.drawn = tqdm(total=sum(self.total.values()), unit="step", disable=not show, mininterval=0.5)
        self.close = self.drawn.close

    def move(self, name: str, seed: int, step: int | None = None) -> None:
        """A run is at this step, or finished; a late report, or one after a resumption, moves nothing back."""
        step = self.total[name, seed] if step is None else step
        self.steps[name, seed] = max(self.steps[name, seed], step)
        running = [f"{run[0]} seed {run[1]}" for run, steps in self.steps.items() if 0 < steps < self.total[run]]
        self.drawn.set_postfix_str(", ".join(running), refresh=False)
        self.drawn.update(sum(self.steps.values()) - self.drawn.n)


def sweep(jobs: Sequence[Job], show: bool = True, in_turn: bool = False, dask: str | None = None) -> list[Failure]:
    """Train what is missing, in the order given, children after their parents; returns the runs that failed.

    In a process each; or `in_turn` in this one; or on the workers of the `dask` scheduler at this address.
    """
    todo = missing(jobs)
    if not todo:
        return []
    compiled.warn_without()
    if dask is None:
        paths.runs().mkdir(parents=True, exist_ok=True)  # a folder that cannot be written is named before the bar
    if in_turn:
        return train_in_turn(todo, show)
    by_key = {experiment.key(seed): (experiment, seed) for experiment, seed in todo}
    with processes(min(workers(), len(todo))) if dask is None else cluster(dask) as team:
        return train_together(by_key, team, show)


def train_in_turn(jobs: Sequence[Job], show: bool) -> list[Failure]:
    failures: dict[str, Failure] = {}
    with closing(Bar(jobs, show)) as bar:
        for experiment, seed in jobs:
            parent = experiment.parent and failures.get(experiment.parent.key(seed))
            try:
                if parent:
                    raise InputError(orphaned(parent))
                train(experiment, seed, bar.move)
            except Exception as error:
                failures[experiment.key(seed)] = Failure(experiment.name, seed, in_words(error))
            bar.move(experiment.name, seed)
    return [*failures.values()]


def orphaned(parent: Failure) -> str:
    return f"it is retrained from {parent.name}, which failed"


@dataclass
class Schedule:
    """Which runs, given by key, wait, train, and have failed.

    A child waits for its parent, so that what it gives does not depend on the number of workers. A run
    whose process was killed waits behind the others and goes on from its checkpoint.
    """

    jobs: Mapping[str, Job]

    def __post_init__(self) -> None:
        jobs = self.jobs.items()
        self.parents = {key: job.parent.key(seed) for key, (job, seed) in jobs if job.parent}
        self.waiting, self.failures = [*self.jobs], dict[str, Failure]()
        self.running = dict[Future[None], str]()
        self.kills = Counter[str]()

    def start(self, workers: Workers) -> None:
        """Submit as many runs as the workers take now, of those whose parent is finished."""
        unfinished = {*self.waiting, *self.running.values()}
        ready = [key for key in self.waiting if self.parents.get(key) not in unfinished]
        for key in ready if workers.count is None else ready[: workers.count - len(self.running)]:
            self.waiting.remove(key)
            try:
                self.running[workers.submit(*self.jobs[key])] = key
            except InputError as error:
                self.fail(key, str(error))

    def finish(self, future: Future[None]) -> str | None:
        """Take note of how a run ended and give its key; None if it is to be started again."""
        key, error = self.running.pop(future), future.exception()
        if isinstance(error, Killed):
            self.kills[key] += 1
            if self.kills[key] <= RESTARTS:
                self.waiting.append(key)
                return None
        if error is not None:
            self.fail(key, KILLED if isinstance(error, Killed) else in_words(error))
        return key

    def fail(self, key: str, error: str) -> None:
        """Report a failure, of the run and of those that are retrained from it."""
        experiment, seed = self.jobs[key]
        self.failures[key] = Failure(experiment.name, seed, error)
        for child in [child for child in self.waiting if self.parents.get(child) == key]:
            self.waiting.remove(child)
            self.fail(child, orphaned(self.failures[key]))


def train_together(jobs: Mapping[str, Job], workers: Workers, show: bool) -> list[Failure]:
    """Train the jobs, which are given by key, with these workers; returns those that failed."""
    schedule = Schedule(jobs)
    with closing(Bar([*jobs.values()], show)) as bar:
        while schedule.running or schedule.waiting:
            schedule.start(workers)
            done, _ = wait(schedule.running, timeout=INTERVAL, return_when=FIRST_COMPLETED)
            while not workers.steps.empty():
                bar.move(*workers.steps.get())
            ended = [schedule.finish(future) for future in done]
            for key in {*filter(None, ended), *schedule.failures}:
                bar.move(jobs[key][0].name, jobs[key][1])
    return [*schedule.failures.values()]
