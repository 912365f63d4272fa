"""Local workers: one process a run, `abc-nb train NAME --seed N`, started and watched by the sweep.

Two single-threaded processes train more models an hour than one with two threads, and a fixed thread
count makes runs repeatable bit for bit. The sweep writes the configuration to the standard input of the
process, as one line of JSON, and reads its steps from the standard output. It keeps that standard input open:
when it closes, the sweep has ended, however it ended, and so does the process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from typing import IO

from tqdm.auto import tqdm

from abc_nb.common.errors import InputError
from abc_nb.experiments import as_json
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs.workers import Killed, Step, Workers, train

COMMAND = [sys.executable, "-P", "-m", "abc_nb"]
PREFIX = "abc-nb: "  # of every sentence that the command writes to standard error


@contextmanager
def processes(count: int) -> Iterator[Workers]:
    """At most `count` processes at the same time; those that still run at the end are killed."""
    steps: SimpleQueue[Step] = SimpleQueue()
    started: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(count) as threads:

        def submit(experiment: Experiment, seed: int) -> Future[None]:
            configuration = as_json.written(experiment)
            errors = TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed by `follow`)
            started.append(start(experiment, seed, errors))
            return threads.submit(follow, started[-1], configuration, (experiment.name, seed), errors, steps)

        try:
            yield Workers(submit, steps, count)
        finally:
            for process in started:
                process.kill()


def start(experiment: Experiment, seed: int, errors: IO[str]) -> subprocess.Popen[str]:
    """A process that waits for its configuration; Ctrl-C in the terminal of the sweep does not reach it."""
    command = [*COMMAND, "train", experiment.name, "--profile", experiment.profile, "--seed", str(seed), "--in-sweep"]
    pipe, path = subprocess.PIPE, os.pathsep.join(map(os.path.abspath, sys.path))  # it imports what we import
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment, process_group=0
    )


def follow(
    process: subprocess.Popen[str], configuration: str, run: tuple[str, int], errors: IO[str], steps: SimpleQueue[Step]
) -> None:
    """Give a process its configuration and pass on its steps and warnings, to its end.

    Killed if a signal ended it; InputError with its last sentence if it failed.
    """
    with errors:
        with suppress(BrokenPipeError), process:  # a process that has ended already says below why it did
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(configuration + "\n")
            process.stdin.flush()
            for line in process.stdout:
                steps.put((*run, json.loads(line)["step"]))
        if process.returncode < 0:
            raise Killed
        errors.seek(0)
        lines = [line.rstrip("\n") for line in errors if line.strip()]
    reason = lines.pop() if process.returncode and lines else f"its process ended with status {process.returncode}"
    for line in lines:
        if line.startswith(PREFIX):
            tqdm.write(line, file=sys.stderr)
    if process.returncode:
        raise InputError(reason.removeprefix(PREFIX))


def train_in_sweep(seed: int) -> None:
    """The other side: train the experiment on standard input, and write its steps to standard output."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the sweep starts again what a signal has ended
    configuration = sys.stdin.readline()
    Thread(target=end_with_sweep, daemon=True).start()
    if configuration:  # otherwise the sweep has ended already
        train(as_json.read(configuration), seed, write_step)


def write_step(name: str, seed: int, step: int) -> None:
    print(json.dumps({"step": step}), flush=True)


def end_with_sweep() -> None:
    """End this process when its standard input closes, whatever Python code or tensor operation runs then."""
    while os.read(0, 1):  # of sys.stdin a thread that waits would hold the lock, also at the end of the process
        pass
    os._exit(1)
