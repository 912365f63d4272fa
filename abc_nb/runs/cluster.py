"""Dask workers, which may be on other machines; all of them share our folder of runs.

A run that a lost worker leaves behind goes to another one, which takes it up from its checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs.workers import Step, Workers, train

if TYPE_CHECKING:
    from distributed import Client, Worker

PATIENCE = 10  # seconds for a scheduler to answer
CERTIFICATES = "Dask's settings distributed.comm.tls.ca-file, .client.cert and .client.key"


class Stopped(Exception):
    """The sweep that a run belongs to is over."""


@contextmanager
def cluster(address: str) -> Iterator[Workers]:
    """The workers of the scheduler at `address`, those that come later too."""
    with connect(address) as client, marked(paths.runs()) as mark:
        check(client, mark)
        steps: SimpleQueue[Step] = SimpleQueue()
        client.subscribe_topic(mark.name, lambda event: steps.put(event[1]))
        pool = client.get_executor(pure=False)
        try:
            yield Workers(lambda experiment, seed: pool.submit(work, mark, experiment, seed), steps)
        except CancelledError as error:
            raise InputError(f"lost the Dask scheduler at {address}: start it again, and this command") from error
        finally:
            pool.shutdown(wait=False)


def connect(address: str) -> Client:
    """A client of the scheduler; InputError if none answers. Certificates are those of Dask's configuration."""
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError as error:
        raise InputError("a sweep on a Dask cluster needs Dask: run `pip install -e '.[dask]'`") from error
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # we say ourselves what went wrong
    try:
        security = Security()
        settings = security.get_connection_args("client")
        if address.startswith("tls:") and settings["ssl_context"] is None:
            raise InputError(f"a tls:// address needs certificates: name them in {CERTIFICATES}")
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
            thread.submit(asyncio.run, knock(address, settings)).result()
        return Client(address, timeout=PATIENCE, set_as_default=False, security=security)
    except InputError:
        raise
    except Exception as error:  # of many kinds, where something else answers than a scheduler
        raise InputError(f"cannot reach a Dask scheduler at {address!r}: {str(error) or 'no answer'}") from error


async def knock(address: str, settings: dict[str, Any]) -> None:
    """Fails where no scheduler answers; a client that failed there would leave threads and tracebacks behind."""
    from distributed.comm.core import connect

    comm = await asyncio.wait_for(connect(address, PATIENCE, **settings), PATIENCE + 1)
    await comm.close()


@contextmanager
def marked(runs: Path) -> Iterator[Path]:
    """A file in the folder of runs while the sweep lasts: whoever sees it shares the folder."""
    runs.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=runs, prefix=".sweep-") as file:
        yield Path(file.name)


def check(client: Client, mark: Path) -> None:
    """InputError if one of the workers cannot train; a warning if there is none yet."""
    answers = client.run(fit, mark, on_error="return")
    if not answers:
        warnings.warn("no Dask worker has come yet, the runs wait for one", stacklevel=2)
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            raise InputError(f"the Dask worker {worker} cannot train: {answer}")


def fit(mark: Path, dask_worker: Worker) -> None:
    """InputError if this worker cannot train for the sweep of this mark."""
    threads = dask_worker.state.nthreads
    if threads != 1:  # torch has one random generator for all of them
        raise InputError(f"it has {threads} threads, and only one keeps results the same: start it with --nthreads 1")
    if not mark.exists():
        raise InputError(f"{socket.gethostname()} does not see {mark.parent}: the folder of runs has to be shared")


def work(mark: Path, experiment: Experiment, seed: int) -> None:
    """One job, on a worker, as long as the sweep lasts."""
    from distributed import get_worker

    worker = get_worker()
    fit(mark, worker)
    os.environ["ABC_NB_RUNS"] = str(mark.parent)

    def report(*step: *Step) -> None:
        if not mark.exists():
            raise Stopped
        worker.log_event(mark.name, step)

    train(experiment, seed, report)
