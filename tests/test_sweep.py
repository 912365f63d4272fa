"""Sweeps: worker processes give what training in turn gives, and a run that fails stops no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import psutil
import pytest
import torch
from conftest import Folders
from safetensors import safe_open

from abc_nb import store, sweep
from abc_nb.experiments import Experiment, experiment


@pytest.mark.slow
def test_workers_train_what_one_process_trains(folders: Folders, tiny: Experiment) -> None:
    jobs = [(tiny, 0), (replace(tiny, name="other"), 1)]
    assert sweep.missing(jobs) == jobs
    assert sweep.sweep(jobs, show=False) == []
    assert sweep.missing(jobs) == []
    swept = [store.ensure(*job).model().state_dict() for job in jobs]
    for (chosen, seed), weights in zip(jobs, swept, strict=True):
        store.ensure(chosen, seed).folder.rename(folders.runs / f"aside-{seed}")
        alone = store.ensure(chosen, seed).model().state_dict()
        torch.testing.assert_close(alone, weights, rtol=0, atol=0)


@pytest.mark.slow
def test_a_run_that_fails_is_reported_and_the_others_go_on(folders: Folders, tiny: Experiment) -> None:
    broken = replace(tiny, name="broken", model=replace(tiny.model, heads=3))
    failures = sweep.sweep([(broken, 0), (tiny, 0)], show=False)
    assert [(failure.name, failure.seed) for failure in failures] == [("broken", 0)]
    assert failures[0].error
    assert sweep.missing([(tiny, 0)]) == []


def test_the_estimate_counts_every_step_of_every_job(
    folders: Folders, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "step_seconds", lambda experiment, seed: 0.5)
    monkeypatch.setattr(sweep, "workers", lambda: 2)
    longer = replace(tiny, training=replace(tiny.training, steps=40))
    assert sweep.estimate([(tiny, 0), (tiny, 1), (longer, 0)]) == pytest.approx(0.5 * (4 + 4 + 40) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_leaves_checkpoints_and_no_process(folders: Folders, how: signal.Signals) -> None:
    """Stopped in mid-run, as Ctrl-C or a kill does it; the checkpoint is whole and later than step 0."""
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from abc_nb.cli import main;"
        "raise SystemExit(main(['sweep', 'successor-vanilla']))"
    )
    command = [sys.executable, "-c", script]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, start_new_session=True, **quiet)
    checkpoint = folders.runs / ".partial" / experiment("successor-vanilla").key(0) / store.CHECKPOINT
    wait_for(checkpoint.exists)
    os.kill(started.pid, how)
    assert started.wait(timeout=60) == (130 if how is signal.SIGINT else -signal.SIGKILL)
    wait_for(lambda: not members(started.pid))
    with safe_open(checkpoint, "pt") as file:
        assert '"step": 0,' not in file.metadata()["progress"]


def wait_for(done: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def members(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
