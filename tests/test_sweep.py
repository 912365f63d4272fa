"""Sweeps: processes give what one process gives, in turn or alone, and a run that fails stops no other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import pandas as pd
import psutil
import pytest
import torch
from conftest import Folders
from helpers import child_of, history, longer_experiment, members, renamed, step_of, tiny_experiment, wait_for

from abc_nb.bias import Causal
from abc_nb.experiments import as_json
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.model.positions import Learned
from abc_nb.runs import processes, runner, store, sweep
from abc_nb.runs.workers import Workers

WAYS = pytest.mark.parametrize("in_turn", [False, True], ids=["in processes", "in turn"])


@pytest.mark.slow
@WAYS
def test_a_sweep_trains_what_each_run_gives_alone(folders: Folders, tiny: Experiment, in_turn: bool) -> None:
    jobs = [(tiny, 0), (renamed(tiny, "other"), 1)]
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
def test_a_run_that_fails_is_reported_its_children_are_not_started_and_the_others_go_on(
    folders: Folders, tiny: Experiment, in_turn: bool
) -> None:
    broken = replace(renamed(tiny, "broken"), model=replace(tiny.model, position=Learned(longest=2)))
    jobs = [(renamed(child_of(broken), name), 0) for name in ("one", "other")]
    found = sweep.sweep([*jobs, (tiny, 0)], show=False, in_turn=in_turn)
    assert [(failure.name, failure.seed) for failure in found] == [
        (f"successor-{name}", 0) for name in ("broken", "one", "other")
    ]
    assert found[0].error
    assert [failure.error for failure in found[1:]] == 2 * ["it is retrained from successor-broken, which failed"]
    assert sweep.missing([(tiny, 0)]) == []


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


# ---- processes that are killed ----------------------------------------------------------------------


def command_of(folder: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Let sweeps start `abc-nb` with a change of the package made first."""
    script = folder / "command.py"
    script.write_text(f"{change}\nfrom abc_nb.cli import main\n\nraise SystemExit(main())\n")
    monkeypatch.setattr(processes, "COMMAND", [sys.executable, "-P", str(script)])


def swept(process: psutil.Process, seed: int | None = None) -> list[psutil.Process]:
    """The processes of the runs that a sweep trains, or of those with this seed."""
    wanted = ["--in-sweep"] if seed is None else ["--seed", str(seed), "--in-sweep"]
    found = []
    for child in process.children():
        with suppress(psutil.Error):  # it has ended meanwhile
            found += [child] if child.cmdline()[-len(wanted) :] == wanted else []
    return found


@pytest.mark.slow
def test_a_run_whose_process_is_killed_goes_on_from_its_checkpoint(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it happens when memory runs out; the other runs are made as well.

    Seconds, in a history, are those of the process that trained; a run begun anew would have others.
    """
    command_of(tmp_path, monkeypatch, "from abc_nb.training import trainer\n\ntrainer.CHECKPOINT_SECONDS = 0.2")
    monkeypatch.setattr(sweep, "workers", lambda: 2)
    longer = longer_experiment()
    longer = replace(longer, training=replace(longer.training, steps=300, hold=300))
    jobs = [(longer, 0), (tiny_experiment(), 1)]
    checkpoint = folders.runs / ".partial" / longer.key(0) / runner.CHECKPOINT
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(sweep.sweep, jobs, False)
        wait_for(lambda: result.done() or len(history(checkpoint)) > 1)
        (busy,) = swept(psutil.Process(), seed=0)
        before = history(checkpoint)
        busy.kill()
        assert result.result(timeout=300) == []
    assert sweep.missing(jobs) == []
    after = runner.ensure(longer, 0).history()
    pd.testing.assert_frame_equal(after[: len(before)], before, check_dtype=False, rtol=1e-12)
    assert len(after) == 6


@pytest.mark.slow
def test_a_process_that_is_killed_before_it_reads_its_configuration_is_started_again(
    folders: Folders, tiny: Experiment
) -> None:
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(sweep.sweep, [(tiny, 0)], False)
        wait_for(lambda: swept(psutil.Process()) != [])
        swept(psutil.Process())[0].kill()
        assert result.result(timeout=300) == []
    assert sweep.missing([(tiny, 0)]) == []


FATAL = """
import os
import signal
import sys

with open(os.path.join(os.environ["ABC_NB_RUNS"], ".starts"), "a") as file:
    file.write(sys.argv[sys.argv.index("--seed") + 1] + "\\n")
if "7" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_run_whose_process_is_always_killed_fails_alone_after_four_restarts(
    folders: Folders, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_of(tmp_path, monkeypatch, FATAL)
    jobs = [(tiny, seed) for seed in (7, 8)]
    assert sweep.sweep(jobs, show=False) == [sweep.Failure(tiny.name, 7, sweep.KILLED)]
    assert sweep.missing(jobs) == [(tiny, 7)]
    starts = (folders.runs / ".starts").read_text().split()
    assert Counter(starts) == {"7": 5, "8": 1}


# ---- what a process says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "status", "expected"),
    [
        ("abc-nb: a warning\nabc-nb: it has failed\n", 2, "it has failed"),
        ('Traceback:\n  File "x"\nKeyError: 3\n\n', 1, "KeyError: 3"),
        ("", 3, "its process ended with status 3"),
    ],
)
def test_a_run_that_ends_with_an_error_is_reported_with_its_last_sentence(
    written: str,
    status: int,
    expected: str,
    folders: Folders,
    tiny: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command_of(tmp_path, monkeypatch, f"import sys\n\nsys.stderr.write({written!r})\nsys.exit({status})")
    assert sweep.sweep([(tiny, 0)], show=False) == [sweep.Failure(tiny.name, 0, expected)]
    assert capsys.readouterr().err == ("abc-nb: a warning\n" if "warning" in written else "")


@dataclass(frozen=True)
class OwnBias(Causal):
    """A bias that the package does not define."""


def test_settings_that_another_process_cannot_restore_are_reported_with_what_to_do(
    folders: Folders, tiny: Experiment
) -> None:
    own = replace(tiny, model=replace(tiny.model, bias=OwnBias()))
    (failure,) = sweep.sweep([(own, 0)], show=False)
    assert "sweep it with in_turn=True" in failure.error
    assert sweep.sweep([(own, 0)], show=False, in_turn=True) == []


def test_steps_reach_the_sweep(
    folders: Folders, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_of(tmp_path, monkeypatch, "print('{\"step\": 2}')\nprint('{\"step\": 3}')\nraise SystemExit")
    with processes.processes(1) as workers:
        workers.submit(tiny, 5).result()
    assert [workers.steps.get_nowait() for _ in range(2)] == [(tiny.name, 5, 2), (tiny.name, 5, 3)]
    assert workers.steps.empty()


# ---- before and between runs ------------------------------------------------------------------------


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
    ("count", "expected"),
    [
        (None, ["successor-vanilla", "successor-other", "successor-abc", "successor-abc"]),
        (1, ["successor-vanilla", "successor-abc", "successor-other", "successor-abc"]),
    ],
)
def test_a_child_waits_for_its_parent(
    folders: Folders, tiny: Experiment, count: int | None, expected: list[str]
) -> None:
    child, other = child_of(tiny), renamed(tiny, "other")
    order: list[str] = []

    def submit(experiment: Experiment, seed: int) -> Future[None]:
        order.append(experiment.name)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    jobs = {job.key(seed): (job, seed) for job, seed in [(child, 0), (tiny, 0), (other, 0), (child, 1)]}
    assert sweep.train_together(jobs, Workers(submit, SimpleQueue(), count), show=False) == []
    assert order == expected, "the second child has no parent to wait for here"


def test_the_estimate_counts_every_step_of_every_job(
    folders: Folders, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "step_seconds", lambda experiment, seed: 0.5)
    monkeypatch.setattr(sweep, "workers", lambda: 2)
    longer = replace(tiny, training=replace(tiny.training, steps=40))
    assert sweep.estimate([(tiny, 0), (tiny, 1), (longer, 0)]) == pytest.approx(0.5 * (4 + 4 + 40) / 2)
    assert sweep.estimate([(longer, 0)]) == pytest.approx(0.5 * 40), "one run has one worker"


# ---- a sweep that ends early ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("work", ["time.sleep(600)", "sum(zero for zero in iter(int, 1))"], ids=["waits", "computes"])
def test_a_process_that_reports_nothing_ends_with_its_sweep(
    work: str, folders: Folders, tiny: Experiment, tmp_path: Path
) -> None:
    """As it does while it evaluates, or waits for another run's lock."""
    script = tmp_path / "busy.py"
    script.write_text(f"""import time
from abc_nb.runs import processes

processes.train = lambda *_: (print("busy", flush=True), {work})
processes.train_in_sweep(0)
""")
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(as_json.written(tiny) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "busy\n"
        process.stdin.close()
        assert process.wait(timeout=120) == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


OFTEN = """import signal
import sys

from abc_nb.cli import main
from abc_nb.runs import processes
from abc_nb.training import trainer

signal.signal(signal.SIGINT, signal.default_int_handler)
trainer.CHECKPOINT_SECONDS = 0.2
processes.COMMAND = [sys.executable, "-P", __file__]
raise SystemExit(main(sys.argv[1:]))
"""


def started(folder: Path, command: str, *arguments: str) -> subprocess.Popen[str]:
    """An `abc-nb` command that saves checkpoints often, in a session of its own, which Ctrl-C stops."""
    script, pipe = folder / "command.py", subprocess.PIPE
    script.write_text(OFTEN)
    line = [sys.executable, "-P", str(script), command, *arguments]
    return subprocess.Popen(line, start_new_session=True, stdout=pipe, stderr=pipe, text=True)


STOPPED = "abc-nb: stopped; the same command goes on from the last checkpoint"
WAYS_TO_STOP = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
COMMANDS = {"sweep": ["successor-vanilla"], "train": ["successor-vanilla"], "reproduce": ["--seeds", "0"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "how", "status"),
    [
        *(("sweep", how, status) for how, status in WAYS_TO_STOP),
        ("train", signal.SIGTERM, 143),
        pytest.param("reproduce", signal.SIGTERM, 143, marks=pytest.mark.long),
    ],
)
def test_a_stopped_command_leaves_checkpoints_and_no_process(
    command: str, how: signal.Signals, status: int, folders: Folders, tmp_path: Path
) -> None:
    """Stopped in mid-run by Ctrl-C, SIGTERM or a kill; the checkpoint is whole, and there is one sentence."""
    process = started(tmp_path, command, *COMMANDS[command])
    checkpoint = folders.runs / ".partial" / experiment("successor-vanilla").key(0) / runner.CHECKPOINT
    wait_for(checkpoint.exists)
    os.kill(process.pid, how)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == status
    lines = [line for line in errors.splitlines() if line and "step" not in line]
    assert lines == ([] if how is signal.SIGKILL else [STOPPED])
    wait_for(lambda: not members(process.pid))
    assert step_of(checkpoint) > 0


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_sweep_and_not_its_processes(folders: Folders, tmp_path: Path) -> None:
    """A terminal sends it to the whole process group, at any moment; a process would answer with a traceback."""
    process = started(tmp_path, "sweep", "successor-vanilla")
    wait_for(lambda: swept(psutil.Process(process.pid)) != [])
    assert os.getpgid(swept(psutil.Process(process.pid))[0].pid) != os.getpgid(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    assert [line for line in errors.splitlines() if line and "step" not in line] == [STOPPED]
    wait_for(lambda: not members(process.pid))


def test_the_bar_counts_a_finished_run_as_whole_and_never_goes_back(tiny: Experiment) -> None:
    bar = sweep.Bar([(tiny, 0), (tiny, 1)], show=True)
    bar.move(tiny.name, 0, 3)
    bar.move(tiny.name, 0, 1)
    assert bar.drawn.n == 3
    bar.move(tiny.name, 0)
    bar.move(tiny.name, 0, 2)
    assert (bar.drawn.n, bar.drawn.total) == (4, 8)
    bar.close()
