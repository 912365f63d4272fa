"""Sweeps: worker processes give what one process gives, in turn or alone, and a run that fails stops no other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty

import pandas as pd
import psutil
import pytest
import torch
from conftest import Folders
from helpers import child_of, history, holds, longer_experiment, members, read_tensors, spawned, wait_for

from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.model.positions import Learned
from abc_nb.runs import runner, store, sweep
from abc_nb.runs.crew import Crew, Step
from abc_nb.runs.processes import processes

WAYS = pytest.mark.parametrize("in_turn", [False, True], ids=["in processes", "in turn"])


@pytest.mark.slow
@WAYS
def test_a_sweep_trains_what_each_run_gives_alone(folders: Folders, tiny: Experiment, in_turn: bool) -> None:
    jobs = [(tiny, 0), (replace(tiny, name="other"), 1)]
    assert sweep.missing(jobs) == jobs
    assert sweep.sweep(jobs, show=False, in_turn=in_turn) == []
    assert sweep.missing(jobs) == []
    swept = [runner.ensure(*job).model().state_dict() for job in jobs]
    for (chosen, seed), weights in zip(jobs, swept, strict=True):
        runner.ensure(chosen, seed).folder.rename(folders.runs / f"aside-{seed}")
        alone = runner.ensure(chosen, seed).model().state_dict()
        torch.testing.assert_close(alone, weights, rtol=0, atol=0)


@pytest.mark.slow
@WAYS
def test_a_run_that_fails_is_reported_and_the_others_go_on(folders: Folders, tiny: Experiment, in_turn: bool) -> None:
    broken = replace(tiny, name="broken", model=replace(tiny.model, position=Learned(longest=2)))
    failures = sweep.sweep([(broken, 0), (tiny, 0)], show=False, in_turn=in_turn)
    assert [(failure.name, failure.seed) for failure in failures] == [("broken", 0)]
    assert failures[0].error
    assert sweep.missing([(tiny, 0)]) == []


@pytest.mark.slow
@WAYS
def test_children_of_a_run_that_fails_are_not_started(folders: Folders, tiny: Experiment, in_turn: bool) -> None:
    broken = replace(tiny, name="broken", model=replace(tiny.model, position=Learned(longest=2)))
    jobs = [(replace(child_of(broken), name=name), 0) for name in ("one", "other")]
    found = sweep.sweep(jobs, show=False, in_turn=in_turn)
    assert [failure.name for failure in found] == ["broken", "one", "other"]
    assert [failure.error for failure in found[1:]] == 2 * ["it is retrained from broken, which failed"]


def test_a_sweep_takes_the_cores_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sweep.workers() == 3


def test_a_parent_that_is_nowhere_is_trained_before_its_child(folders: Folders, tiny: Experiment) -> None:
    child = child_of(tiny)
    assert sweep.missing([(child, 0), (tiny, 0)]) == [(tiny, 0), (child, 0)]
    parent = runner.ensure(tiny, 0)
    assert sweep.missing([(child, 0)]) == [(child, 0)]
    store.ship(parent, weights=False)
    shutil.rmtree(parent.folder)
    assert sweep.missing([(child, 0)]) == [(tiny, 0), (child, 0)], "numbers alone are not enough to go on from"
    assert sweep.sweep([(child, 0)], show=False, in_turn=True) == []
    assert sweep.missing([(child, 0), (tiny, 0)]) == []


KILLABLE = """
from helpers import longer_experiment

from abc_nb import sweep, training

training.CHECKPOINT_SECONDS = 0.2  # in the workers too: they import this file

if __name__ == "__main__":
    jobs = [(longer_experiment(), seed) for seed in (0, 1, 2)]
    print(sweep.sweep(jobs, show=False), len(sweep.missing(jobs)))
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_no_run_with_it(folders: Folders, tmp_path: Path) -> None:
    """Memory that runs out kills a worker; its run goes on from the checkpoint in another, and the others are made.

    Seconds, in a history, are those of the process that trained; a run begun anew would have others.
    """
    script, longer = tmp_path / "killable.py", longer_experiment()
    script.write_text(KILLABLE)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(script)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    checkpoint = folders.runs / ".partial" / longer.key(0) / runner.CHECKPOINT
    wait_for(lambda: len(history(checkpoint)) > 2 or started.poll() is not None)
    before = history(checkpoint)
    lock = folders.runs / ".locks" / f"{longer.key(0)}.lock"
    (busy,) = [pid for pid in members(started.pid) if pid != started.pid and holds(pid, lock)]
    os.kill(busy, signal.SIGKILL)
    told, _ = started.communicate(timeout=120)
    assert told.strip() == "[] 0"
    after = runner.ensure(longer, 0).history()
    pd.testing.assert_frame_equal(after[: len(before)], before, check_dtype=False, rtol=1e-12)
    assert len(after) == 30


FATAL = """
import os
import time

from abc_nb import processes, sweep
from abc_nb.experiments import experiment


def train(experiment, seed, tell):  # in the workers: they import this file
    if seed == 7:
        os._exit(1)
    time.sleep(1)
    original(experiment, seed, tell)


original, processes.train, sweep.workers = processes.train, train, lambda: 3

if __name__ == "__main__":
    jobs = [(experiment("successor-vanilla", "smoke"), seed) for seed in (7, 8, 9, 10)]
    failures = sweep.sweep(jobs, show=False)
    print([failure.seed for failure in failures], [seed for _, seed in sweep.missing(jobs)])
    assert failures[0].error == sweep.KILLED
"""


@pytest.mark.slow
def test_a_run_that_always_kills_its_worker_fails_alone(folders: Folders, tmp_path: Path) -> None:
    script = tmp_path / "fatal.py"
    script.write_text(FATAL)
    told = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
    assert told.strip() == "[7] [7]"


@pytest.mark.slow
def test_a_worker_that_is_killed_between_two_runs_is_made_anew(folders: Folders, tiny: Experiment) -> None:
    with processes(1) as crew:
        crew.submit(tiny, 0).result()
        (worker,) = spawned(psutil.Process())
        worker.kill()
        worker.wait()
        for _ in range(sweep.LIVES):  # the executor may not know yet
            with suppress(BrokenProcessPool):
                crew.submit(tiny, 1).result()
                break
    assert sweep.missing([(tiny, 0), (tiny, 1)]) == []


@pytest.mark.slow
@WAYS
def test_a_folder_that_cannot_be_made_is_named_before_training(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_turn: bool
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(NotADirectoryError):
        sweep.sweep([(tiny, 0)], show=False, in_turn=in_turn)


@pytest.mark.parametrize(
    ("hands", "expected"),
    [
        (None, ["successor-vanilla", "other", "successor-abc", "successor-abc"]),
        (1, ["successor-vanilla", "successor-abc", "other", "successor-abc"]),
    ],
)
def test_a_child_waits_for_its_parent(
    folders: Folders, tiny: Experiment, hands: int | None, expected: list[str]
) -> None:
    child, other = child_of(tiny), replace(tiny, name="other")
    order: list[str] = []

    def submit(experiment: Experiment, seed: int) -> Future[None]:
        order.append(experiment.name)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def told() -> Step:
        raise Empty

    jobs = {job.key(seed): (job, seed) for job, seed in [(child, 0), (tiny, 0), (other, 0), (child, 1)]}
    assert sweep.train_together(jobs, Crew(submit, told, hands), show=False) == []
    assert order == expected, "the second child has no parent to wait for here"


def test_the_estimate_counts_every_step_of_every_job(
    folders: Folders, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "step_seconds", lambda experiment, seed: 0.5)
    monkeypatch.setattr(sweep, "workers", lambda: 2)
    longer = replace(tiny, training=replace(tiny.training, steps=40))
    assert sweep.estimate([(tiny, 0), (tiny, 1), (longer, 0)]) == pytest.approx(0.5 * (4 + 4 + 40) / 2)
    assert sweep.estimate([(longer, 0)]) == pytest.approx(0.5 * 40), "one run has one worker"


ORPHAN = """
import time
from multiprocessing import get_context
from concurrent.futures import ProcessPoolExecutor

from abc_nb.processes import prepare_worker

if __name__ == "__main__":
    context = get_context("spawn")
    pool = ProcessPoolExecutor(1, context, prepare_worker, (context.Queue(),))
    pool.submit(time.sleep, 0).result()
    pool.submit(time.sleep, 600)
    print("busy", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_worker_that_tells_nothing_ends_with_its_parent(tmp_path: Path) -> None:
    """As it does while it evaluates, or waits for another run's lock."""
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "busy\n"
    (worker,) = spawned(psutil.Process(parent.pid))
    parent.kill()
    parent.communicate()
    worker.wait(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_leaves_checkpoints_and_no_process(folders: Folders, how: signal.Signals) -> None:
    """Stopped in mid-run, as Ctrl-C or a kill does it; the checkpoint is whole."""
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from abc_nb.cli import main;"
        "raise SystemExit(main(['sweep', 'successor-vanilla']))"
    )
    command = [sys.executable, "-c", script]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, start_new_session=True, **quiet)
    checkpoint = folders.runs / ".partial" / experiment("successor-vanilla").key(0) / runner.CHECKPOINT
    wait_for(checkpoint.exists)
    os.kill(started.pid, how)
    assert started.wait(timeout=60) == (130 if how is signal.SIGINT else -signal.SIGKILL)
    wait_for(lambda: not members(started.pid))
    assert json.loads(read_tensors(checkpoint)["progress"])["step"] > 0


@pytest.mark.slow
def test_a_worker_never_hears_ctrl_c_and_the_sweep_does(folders: Folders, tiny: Experiment) -> None:
    """From its start: while it imports it would answer with a traceback."""
    with processes(1) as crew:
        future = crew.submit(tiny, 0)
        (worker,) = spawned(psutil.Process())
        status = dict(line.split(":", 1) for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines())
        assert int(status["SigBlk"], 16) >> (signal.SIGINT - 1) & 1
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        future.result()


def test_the_bar_counts_a_finished_run_as_whole_and_never_goes_back(tiny: Experiment) -> None:
    bar = sweep.Bar([(tiny, 0), (tiny, 1)], show=True)
    bar.move(tiny.name, 0, 3)
    bar.move(tiny.name, 0, 1)
    assert bar.drawn.n == 3
    bar.move(tiny.name, 0)
    bar.move(tiny.name, 0, 2)
    assert (bar.drawn.n, bar.drawn.total) == (4, 8)
    bar.close()
