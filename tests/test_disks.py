"""Full and read-only disks: one sentence that says which, nothing is lost, and the same command goes on."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Folders
from helpers import assert_same_result

from abc_nb.analysis.results import Results
from abc_nb.cli import main
from abc_nb.experiments.experiment import Experiment
from abc_nb.paper import ledger, report
from abc_nb.paper.claims import Verdict
from abc_nb.runs import runner, store
from abc_nb.show import pictures, plots, tables
from abc_nb.training import trainer as training

SENTENCES = {"full": "No space left on device; make room there", "read-only": "Read-only file system; make it writable"}
TRAIN = ["train", "successor-vanilla", "--profile", "smoke"]
REPORT = ["report", "--profile", "smoke"]


@dataclass(frozen=True)
class Disk:
    """A small disk of its own, which can be filled and made read-only."""

    path: Path

    def spoil(self, how: str) -> None:
        if how == "read-only":
            return self.remount("ro")
        with suppress(OSError), (self.path / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1000))

    def repair(self) -> None:
        self.remount("rw")
        (self.path / "filler").unlink(missing_ok=True)

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)

    def temporary(self) -> list[Path]:
        return [*self.path.rglob(".tmp-*")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mounting, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def command(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """`abc-nb train` trains the tiny experiment, with a checkpoint after every step."""
    monkeypatch.setattr("abc_nb.experiments.experiment", lambda *_: tiny)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)


def assert_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str, place: Path) -> None:
    """Status 2 and one sentence; the other lines are the progress bar."""
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (sentence,) = (line for line in err.splitlines() if "it/s" not in line and "step" not in line and line)
    assert sentence.startswith(f"abc-nb: cannot use {place}")
    assert reason in sentence
    assert sentence.endswith(", and the same command goes on")


# ---- runs -------------------------------------------------------------------------------------------


@pytest.fixture
def on_disk(disk: Disk, folders: Folders, command: None, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk holds the folder of runs, with a finished one of another seed in it."""
    monkeypatch.setenv("ABC_NB_RUNS", str(disk.path / "runs"))
    assert main([*TRAIN, "--seed", "1"]) == 0
    return disk


def before(function: Callable[..., Any], action: Callable[[], None], call: int) -> Callable[..., Any]:
    """The function, with something else done before one of its calls."""
    calls = iter(range(1, 1000))

    def acting(*arguments: Any) -> Any:
        if next(calls) == call:
            action()
        return function(*arguments)

    return acting


def steps_to_go(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps from which trainings go on, filled as they are done."""
    found: list[int] = []
    step = training.Trainer.step

    def counted(trainer: training.Trainer) -> Any:
        found.append(trainer.progress.step)
        return step(trainer)

    monkeypatch.setattr(training.Trainer, "step", counted)
    return found


@pytest.mark.parametrize(
    ("how", "moment", "done"),
    [
        ("full", "at the start", 0),
        ("full", "at the third checkpoint", 2),
        ("full", "after training", 4),
        ("read-only", "at the start", 0),
    ],
)
def test_a_training_that_the_disk_stops_goes_on_when_it_is_mended(
    how: str,
    moment: str,
    done: int,
    on_disk: Disk,
    tiny: Experiment,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`done`: the steps that are not lost."""
    with monkeypatch.context() as patched:
        if moment == "at the start":
            on_disk.spoil(how)
        elif moment == "after training":
            patched.setattr(runner, "evaluate", before(runner.evaluate, partial(on_disk.spoil, how), 1))
        else:
            saving = before(training.save_checkpoint, partial(on_disk.spoil, how), 3)
            patched.setattr(training, "save_checkpoint", saving)
        reason = SENTENCES[how] + ", or name another folder in ABC_NB_RUNS"
        assert_refused(capsys, TRAIN, reason, on_disk.path / "runs")
    assert not on_disk.temporary()
    assert store.find(tiny, 1) is not None
    on_disk.repair()
    steps = steps_to_go(monkeypatch)
    assert main(TRAIN) == 0
    assert steps == [*range(done, 4)]
    run = store.find(tiny, 0)
    assert run is not None
    assert_same_result(run.folder, finished)
    assert not on_disk.temporary()


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_finished_runs_are_used_on_a_disk_that_takes_no_more(
    how: str, on_disk: Disk, tiny: Experiment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abc_nb.api.experiment", lambda *_: tiny)
    on_disk.spoil(how)
    assert main([*TRAIN, "--seed", "1"]) == 0
    assert main(["compute", "successor-vanilla", "99", "--profile", "smoke", "--seed", "1"]) == 0


def test_a_file_that_may_not_grow_is_one_sentence_and_the_older_checkpoint_stays(
    folders: Folders,
    command: None,
    tiny: Experiment,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A quota, which needs no mount."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))

    with monkeypatch.context() as patched:
        patched.setattr(training, "save_checkpoint", before(training.save_checkpoint, limit, 3))
        try:
            assert_refused(capsys, TRAIN, "File too large", folders.runs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    steps = steps_to_go(monkeypatch)
    assert main(TRAIN) == 0
    assert steps == [2, 3]
    run = store.find(tiny, 0)
    assert run is not None
    assert_same_result(run.folder, finished)


# ---- figures ----------------------------------------------------------------------------------------


def save_table() -> None:
    tables.save(pd.DataFrame({"length": range(500)}), "table-1", "smoke")


def save_figure() -> None:
    plots.save(pictures.new_figure(1)[0], "figure-1", "smoke")


def record_claim() -> None:
    ledger.record([Verdict("C01", "holds", "it holds")], "01_data", "smoke")


def write_report() -> None:
    report.write(Results("smoke", "shipped", [0]))


@pytest.mark.parametrize("how", ["full", "read-only"])
@pytest.mark.parametrize("save", [save_table, save_figure, record_claim, write_report])
def test_figures_on_a_disk_that_takes_no_more_stay_as_they_are(
    how: str, save: Callable[[], None], disk: Disk, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(disk.path))
    save_table()
    save()
    old = {path: path.read_bytes() for path in (disk.path / "smoke").iterdir()}
    disk.spoil(how)
    with pytest.raises(OSError, match=r"No space left|Read-only") as caught:
        save()
    assert str(caught.value.filename).startswith(str(disk.path / "smoke"))
    assert {path: path.read_bytes() for path in (disk.path / "smoke").iterdir()} == old
    disk.repair()
    save()
    assert not disk.temporary()


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_the_report_that_cannot_be_written_is_one_sentence(
    how: str, disk: Disk, folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(disk.path))
    save_table()
    disk.spoil(how)
    reason = SENTENCES[how] + ", or name another folder in ABC_NB_FIGURES"
    assert_refused(capsys, REPORT, reason, disk.path / "smoke" / "REPORT.md")
    disk.repair()
    assert main(REPORT) == 0
