"""A crew of worker processes on this machine, of one thread each.

Two single-threaded workers train more models an hour than one with two threads, and a fixed thread
count makes runs repeatable bit for bit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from abc_nb import store
from abc_nb.crew import Crew, Step, train
from abc_nb.experiments import Experiment

PARENT: list[Any] = []  # in a worker: the queue to its parent, and the parent's process id


@contextmanager
def processes(count: int) -> Iterator[Crew]:
    """`count` processes, killed if the sweep is stopped."""
    context = get_context("spawn")
    queue = context.Queue()
    pool = ProcessPoolExecutor(count, context, prepare_worker, (queue, os.getpid()))
    try:
        yield Crew(partial(submit, pool), queue.get_nowait, hands=count)
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def submit(pool: ProcessPoolExecutor, experiment: Experiment, seed: int) -> Future[None]:
    """A job for the pool; of one whose worker was killed, a future that says so."""
    try:
        return pool.submit(work, experiment, seed)
    except BrokenProcessPool as error:
        future: Future[None] = Future()
        future.set_exception(error)
        return future


def prepare_worker(queue: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    torch.set_num_threads(store.THREADS)
    PARENT.extend((queue, parent))


def work(experiment: Experiment, seed: int) -> None:
    """One job, in a worker, as long as its parent lives."""
    queue, parent = PARENT

    def tell(*step: *Step) -> None:
        if os.getppid() != parent:  # the sweep was killed; its checkpoints wait for the next one
            os._exit(1)
        queue.put(step)

    train(experiment, seed, tell)
