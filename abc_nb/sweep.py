"""Sweeps: many runs, in worker processes of one thread each.

Two single-threaded workers train more models an hour than one with two threads, and a fixed thread
count makes runs repeatable bit for bit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from queue import Empty
from typing import Any

import torch
from tqdm.auto import tqdm

from abc_nb import store
from abc_nb.biases import Causal
from abc_nb.experiments import Experiment
from abc_nb.positions import Sinusoidal
from abc_nb.training import Progress, Trainer

Job = tuple[Experiment, int]  # an experiment and a seed
CHANNEL: list[Any] = []  # in a worker: the queue to the parent


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error; the others went on."""

    name: str
    seed: int
    error: str


def workers() -> int:
    """One process a core, or one in all on a GPU."""
    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


def missing(jobs: Sequence[Job]) -> list[Job]:
    """The jobs without a finished run made here."""
    return [(experiment, seed) for experiment, seed in jobs if store.find(experiment, seed, ("runs",)) is None]


def estimate(jobs: Sequence[Job]) -> float:
    """Seconds that the jobs may take at most: steps to do, times a step measured now, shared by the workers."""
    measured: dict[Any, float] = {}
    total = 0.0
    for experiment, seed in jobs:
        shape = (experiment.task, replace(experiment.model, position=Sinusoidal(), bias=Causal()))
        if shape not in measured:
            measured[shape] = step_seconds(experiment, seed)
        total += measured[shape] * experiment.training.steps
    return total / workers()


def step_seconds(experiment: Experiment, seed: int) -> float:
    """Seconds of one training step on one thread, after a first one to warm up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(store.THREADS)
    model = store.build_model(experiment, seed).to(store.device())
    trainer = Trainer(model, experiment.sampler, experiment.training, seed)
    trainer.step()
    start = time.perf_counter()
    trainer.step()
    torch.set_num_threads(threads)
    return time.perf_counter() - start


def prepare_worker(queue: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    torch.set_num_threads(store.THREADS)
    CHANNEL.append(queue)


def work(experiment: Experiment, seed: int) -> None:
    """One job, in a worker; progress goes to the parent as (name, seed, step)."""
    last, parent = 0.0, os.getppid()

    def report(progress: Progress) -> None:
        nonlocal last
        if os.getppid() != parent:  # the sweep was killed; its checkpoints wait for the next one
            os._exit(1)
        if time.monotonic() - last > 0.5:
            CHANNEL[0].put((experiment.name, seed, progress.step))
            last = time.monotonic()

    store.ensure(experiment, seed, report)


def sweep(jobs: Sequence[Job], show: bool = True) -> list[Failure]:
    """Train what is missing, in the order given; returns the runs that failed."""
    todo = missing(jobs)
    if not todo:
        return []
    context = get_context("spawn")
    queue = context.Queue()
    pool = ProcessPoolExecutor(min(workers(), len(todo)), context, prepare_worker, (queue,))
    futures = {pool.submit(work, experiment, seed): (experiment, seed) for experiment, seed in todo}
    try:
        follow(futures, queue, show)
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    errors = ((job, future.exception()) for future, job in futures.items())
    return [Failure(job[0].name, job[1], f"{error}") for job, error in errors if error is not None]


def follow(futures: dict[Future[None], Job], queue: Any, show: bool) -> None:
    """Draw one bar over all steps until every job is done; a run that stops early counts as whole."""
    total = {(experiment.name, seed): experiment.training.steps for experiment, seed in futures.values()}
    done_steps = dict.fromkeys(total, 0)
    pending = set(futures)
    with tqdm(total=sum(total.values()), unit="step", disable=not show, mininterval=0.5) as bar:
        while pending:
            done, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for name, seed, step in drain(queue):
                done_steps[name, seed] = step
            for experiment, seed in (futures[future] for future in done):
                done_steps[experiment.name, seed] = total[experiment.name, seed]
            running = [f"{run[0]} seed {run[1]}" for run, steps in done_steps.items() if 0 < steps < total[run]]
            bar.set_postfix_str(", ".join(running), refresh=False)
            bar.update(sum(done_steps.values()) - bar.n)


def drain(queue: Any) -> Iterator[tuple[str, int, int]]:
    """Messages that have arrived, without waiting."""
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
