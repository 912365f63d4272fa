"""A Dask scheduler and its workers, as processes of their own on the loopback address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers import wait_for

HASTY = "from abc_nb.training import trainer\n\ntrainer.CHECKPOINT_SECONDS = 0.2\n"


@dataclass(frozen=True)
class Cluster:
    """Processes, each the first of a session of its own."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def dask_process(*arguments: str | Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`dask ...` in a session of its own, which knows nothing of our folder of runs; killed at the end."""
    environment = {name: value for name, value in os.environ.items() if name != "ABC_NB_RUNS"}
    environment |= {f"DASK_DISTRIBUTED__{name}": value for name, value in settings.items()}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "dask", *map(str, arguments), "--host", "127.0.0.1"]
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The whole session, as if its machine were lost: a worker's nanny starts no other."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def started(folder: Path, workers: int, protocol: str = "tcp", **settings: str) -> Iterator[Cluster]:
    """A scheduler and its workers, which write a checkpoint five times a second."""
    file, hasty = folder / "scheduler.json", folder / "hasty.py"
    hasty.write_text(HASTY)
    listening = ["--protocol", protocol, "--port", "0", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", file]
    working = ["--nthreads", "1", "--preload", hasty, "--local-directory", folder]
    with ExitStack() as stack:
        scheduler = stack.enter_context(dask_process("scheduler", *listening, **settings))
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        running = [stack.enter_context(dask_process("worker", address, *working, **settings)) for _ in range(workers)]
        yield Cluster(address, scheduler, running)
