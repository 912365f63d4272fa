"""SIGKILL at any moment: nothing is half-written, and the same command ends with the same result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Folders
from helpers import (
    assert_same_result,
    child_of,
    forking,
    read_tensors,
    report_versions,
    step_of,
    tiny_experiment,
    write_report,
)

from abc_nb.bias.lines import Lines
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import manifest, runner, store
from abc_nb.training import trainer as training

PARENT = replace(
    tiny_experiment(), training=replace(tiny_experiment().training, steps=100, held_batch=8, validate_every=50)
)
CHILD = child_of(PARENT)
PHASES = ["start", "training", "finishing", "calibration", "retraining", "report"]
KILLS = {"training": 12, "finishing": 10, "calibration": 8, "retraining": 8, "report": 12}  # fifty
ONCE = dict.fromkeys(KILLS, 1)
LONGEST = {"training": 0.2, "finishing": 0.05, "calibration": 0.05, "retraining": 0.2, "report": 0.6}  # seconds


# ---- what is killed ---------------------------------------------------------------------------------


def pipeline(folder: Path, seed: int, channel: Connection) -> None:
    """Train, calibrate, retrain, then write the report again and again; says which phase begins."""
    os.setsid()
    os.environ |= {"ABC_NB_RUNS": str(folder / "runs"), "ABC_NB_FIGURES": str(folder / "figures")}
    torch.set_num_threads(1)
    training.CHECKPOINT_SECONDS = -1.0
    run = training.Trainer.run

    def announced_run(trainer: training.Trainer, *arguments: Any) -> training.Progress:
        channel.send("retraining" if isinstance(trainer.model.config.bias, Lines) else "training")
        return run(trainer, *arguments)

    training.Trainer.run = announced_run  # type: ignore[method-assign]
    runner.evaluate = announced("finishing", runner.evaluate, channel)
    runner.calibrate_model = announced("calibration", runner.calibrate_model, channel)
    runner.ensure(CHILD, seed)
    for version in count():
        channel.send("report")
        write_report(version % 2)


def announced(phase: str, function: Callable[..., Any], channel: Connection) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        channel.send(phase)
        return function(*arguments)

    return call


class Victim:
    """The pipeline in a session of its own, forked from a process that has everything imported."""

    def __init__(self, folder: Path, seed: int) -> None:
        context = forking()
        self.ear, mouth = context.Pipe(duplex=False)
        self.process = context.Process(target=pipeline, args=(folder, seed, mouth))
        self.process.start()
        mouth.close()
        self.phase = "start"

    def wait(self, phase: str) -> None:
        """Until this phase, or a later one, begins."""
        while PHASES.index(self.phase) < PHASES.index(phase):
            assert self.ear.poll(60), f"nothing came after {self.phase}"
            self.phase = self.ear.recv()

    def kill(self) -> str:
        """The phase that it was in."""
        assert self.process.pid is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        with suppress(EOFError):
            while self.ear.poll():
                self.phase = self.ear.recv()
        return self.phase


# ---- what is looked at afterwards -------------------------------------------------------------------


def assert_nothing_is_half_written(runs: Path) -> None:
    """Run folders are whole, and so is every file under its own name, finished or not."""
    for run in runs.glob("[!.]*"):
        manifest.read_manifest(run)
    for path in runs.rglob("[!.]*.*"):
        READERS.get(path.suffix, Path.stat)(path)


def read_lines(path: Path) -> None:
    assert path.read_text().endswith("\n")


READERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda path: json.loads(path.read_text()),
    ".csv": read_lines,
    ".safetensors": read_tensors,
    ".pt": step_of,
}


def finish(runs: Path, seed: int, experiments: tuple[Experiment, ...], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The experiments' run folders, made now or from where they stopped, without a warning of damage."""
    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("error")
        patched.setenv("ABC_NB_RUNS", str(runs))
        return [runner.ensure(experiment, seed).folder for experiment in experiments]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [ONCE, pytest.param(KILLS, marks=pytest.mark.long)], ids=["five", "fifty"])
def test_kills_leave_nothing_half_written_and_the_same_weights(
    kills: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, runs, figures = np.random.default_rng(6), tmp_path / "runs", tmp_path / "figures"
    versions = report_versions(figures, monkeypatch)
    assert len(versions) == 9
    hits: Counter[str] = Counter()
    seed = 0
    for phase, wanted in kills.items():
        while hits[phase] < wanted:
            victim = Victim(tmp_path, seed)
            victim.wait(phase)
            time.sleep(random.uniform(0, LONGEST[phase]))
            hit = victim.kill()
            hits[hit] += 1
            assert hits.total() < 3 * sum(KILLS.values()), f"the moments do not hit {phase}: {hits}"
            assert_nothing_is_half_written(runs)
            for path in figures.rglob("[!.]*.*"):
                assert path.read_bytes() in versions[path.name]
            if PHASES.index(hit) > PHASES.index(phase):
                seed += 1  # this one is beyond the phase
    assert hits.total() >= sum(kills.values())
    for each in range(seed + 1):
        found = finish(runs, each, (PARENT, CHILD), monkeypatch)
        for run, expected in zip(found, finish(tmp_path / "whole", each, (PARENT, CHILD), monkeypatch), strict=True):
            assert_same_result(run, expected)
    assert not (runs / ".set-aside").exists()
    assert not [*(runs / ".partial").iterdir()]


# ---- every moment that matters ----------------------------------------------------------------------


class Dead(BaseException):
    """The process is no more."""


@contextmanager
def dying(at: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Die at a change of the disk: a write is done by half, anything else not at all, and nothing after it."""
    numbers = count(1)

    def mortal(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            number = next(numbers)
            if number == at and function is write:
                write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if number >= at:
                raise Dead
            return function(*arguments, **options)

        return call

    write = Path.write_bytes
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", mortal(write))
        for name in ("replace", "rename", "unlink", "mkdir"):
            patched.setattr(os, name, mortal(getattr(os, name)))
        yield


def deaths(work: Callable[[], object], look: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int:
    """Let `work` die at its first change of the disk, then at its second, until it succeeds; `look` after each."""
    for at in count(1):
        try:
            with dying(at, monkeypatch):
                work()
        except Dead:
            look()
        else:
            break
    return at - 1


@pytest.mark.slow
def test_a_run_that_dies_at_any_change_of_the_disk_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    parent = replace(PARENT, training=replace(PARENT.training, steps=2, validate_every=1))
    child, runs = child_of(parent), tmp_path / "runs"
    (expected,) = finish(tmp_path / "whole", 0, (child,), monkeypatch)
    shutil.copytree(expected.parent / parent.key(0), runs / parent.key(0))
    monkeypatch.setenv("ABC_NB_RUNS", str(runs))

    def look() -> None:
        assert_nothing_is_half_written(runs)
        (found,) = finish(runs, 0, (child,), monkeypatch)
        assert_same_result(found, expected)
        assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
        shutil.rmtree(found)

    assert deaths(lambda: runner.ensure(child, 0), look, monkeypatch) > 40


@pytest.mark.slow
def test_shipping_that_dies_at_any_change_of_the_disk_leaves_a_whole_result_or_none(
    run: store.Run, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        found = store.find(run.experiment, run.seed, ("shipped",))
        if found is not None:
            assert found.source.tests() == run.source.tests()
            assert found.history().equals(run.history())
        store.ship(run, weights=False)

    assert deaths(lambda: store.ship(run, weights=True), look, monkeypatch) > 5
    found = store.find(run.experiment, run.seed, ("shipped",))
    assert found is not None and found.has_weights
