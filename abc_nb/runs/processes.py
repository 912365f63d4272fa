"""A crew of worker processes on this machine, of one thread each.

Two single-threaded workers train more models an hour than one with two threads, and a fixed thread
count makes runs repeatable bit for bit.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import torch

from abc_nb.common import devices
from abc_nb.runs.crew import Crew, Step, train
from abc_nb.experiments.experiment import Experiment

QUEUES: list[Any] = []  # in a worker: the one to its parent


@dataclass
class Hand:
    """One worker process, made anew after it was killed; so a run that kills its worker harms no other."""

    make: Callable[[], ProcessPoolExecutor]
    last: Future[None] | None = None  # what it was given last

    def __post_init__(self) -> None:
        self.pool = self.make()

    @property
    def idle(self) -> bool:
        return self.last is None or self.last.done()

    def submit(self, experiment: Experiment, seed: int) -> Future[None]:
        with deaf():  # this may start its process
            try:
                self.last = self.pool.submit(work, experiment, seed)
            except BrokenProcessPool:  # it was killed at its last run, or since
                self.pool = self.make()
                self.last = self.pool.submit(work, experiment, seed)
        return self.last

    def close(self, kill: bool) -> None:
        for process in list((self.pool._processes or {}).values()) if kill else []:
            process.kill()
        self.pool.shutdown(cancel_futures=True)


@contextmanager
def deaf() -> Iterator[None]:
    """A process that is started here never hears Ctrl-C, not even while it imports; this one hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def processes(count: int) -> Iterator[Crew]:
    """`count` processes, killed if the sweep is stopped."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    hands = [Hand(lambda: ProcessPoolExecutor(1, context, prepare_worker, (queue,))) for _ in range(count)]

    def submit(experiment: Experiment, seed: int) -> Future[None]:
        return next(hand for hand in hands if hand.idle).submit(experiment, seed)

    stopped = True
    try:
        yield Crew(submit, queue.get_nowait, hands=count)
        stopped = False
    finally:
        for hand in hands:
            hand.close(kill=stopped)


def prepare_worker(queue: Any) -> None:
    Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    torch.set_num_threads(devices.THREADS)
    QUEUES.append(queue)


def end_with_parent() -> None:
    """A worker ends when the sweep was killed, whatever it is doing; checkpoints wait for the next sweep."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work(experiment: Experiment, seed: int) -> None:
    """One job, in a worker."""
    (queue,) = QUEUES

    def tell(*step: *Step) -> None:
        queue.put(step)

    train(experiment, seed, tell)
