"""Two processes at once: each run is trained once, and no file is half-written or mixed."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import Folders
from helpers import child_of, forking, report_versions, tiny_experiment, write_report

from abc_nb.experiments.experiment import Experiment
from abc_nb.paper import claims, ledger
from abc_nb.paper.claims import Verdict
from abc_nb.runs import manifest, processes, runner, store, sweep
from abc_nb.show import notebooks
from abc_nb.training.progress import Progress


def together(work: Callable[..., None], *each: tuple[Any, ...], look: Callable[[], object] = lambda: None) -> None:
    """Run `work` in a process for each of these arguments, all at once; `look` again and again meanwhile."""
    folders = {name: value for name, value in os.environ.items() if name.startswith("ABC_NB_")}
    started = [forking().Process(target=in_folders, args=(folders, work, arguments)) for arguments in each]
    for process in started:
        process.start()
    while any(process.is_alive() for process in started):
        look()
        started[0].join(0.02)
    assert [process.exitcode for process in started] == [0] * len(started)


def in_folders(folders: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """The process that is forked from has the environment of the first test."""
    os.environ |= folders
    work(*arguments)


# ---- runs -------------------------------------------------------------------------------------------


def train(experiment: Experiment, log: Path) -> None:
    runner.ensure(experiment, 0, partial(note, log))


def note(log: Path, progress: Progress) -> None:
    """One short line appended at once, from whichever process."""
    with log.open("a") as file:
        file.write(f"{os.getpid()} {progress.step}\n")


@pytest.mark.slow
def test_two_processes_train_a_run_once(tiny: Experiment, folders: Folders) -> None:
    log = folders.runs.with_name("log")
    experiment = replace(tiny, training=replace(tiny.training, steps=60, held_batch=8))
    together(train, (experiment, log), (experiment, log))
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [int(step) for _, step in lines] == list(range(1, 61))
    assert len({process for process, _ in lines}) == 1
    assert store.find(experiment, 0) is not None


JOBS = [(tiny_experiment(), 0), (child_of(tiny_experiment()), 0), (tiny_experiment(), 1)]
COUNTED = """
import os

from abc_nb.cli import main
from abc_nb.problems.sampling import Sampler

training_batch = Sampler.training_batch


def counted(sampler, seed, step, *arguments):
    with open(os.path.join(os.environ["ABC_NB_RUNS"], ".steps"), "a") as file:
        file.write(f"{sampler.width_count} {seed} {step}\\n")
    return training_batch(sampler, seed, step, *arguments)


Sampler.training_batch = counted
raise SystemExit(main())
"""


def sweep_alone(command: list[str]) -> None:
    """In one process at a time, each of which notes its training steps."""
    sweep.workers, processes.COMMAND = lambda: 1, command
    assert sweep.sweep(JOBS, show=False) == []


@pytest.mark.slow
def test_two_sweeps_of_the_same_jobs_train_each_run_once(folders: Folders, tmp_path: Path) -> None:
    script = tmp_path / "counted.py"
    script.write_text(COUNTED)
    command = [sys.executable, "-P", str(script)]
    together(sweep_alone, (command,), (command,))
    runs = [path for path in folders.runs.iterdir() if not path.name.startswith(".")]
    assert {path.name for path in runs} == {experiment.key(seed) for experiment, seed in JOBS}
    for run in runs:
        manifest.read_manifest(run)
    steps = Counter((folders.runs / ".steps").read_text().splitlines())
    assert steps == {f"{width} {seed} {step}": 1 for width, seed in ((1, 0), (3, 0), (1, 1)) for step in range(4)}
    assert not (folders.runs / ".set-aside").exists()


def test_a_damaged_run_that_another_process_has_set_aside_is_no_error(
    run: store.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(folder: Path) -> None:
        folder.rename(folder.with_name("elsewhere"))
        raise manifest.DamagedRun("it is damaged")

    monkeypatch.setattr(store, "read_manifest", slow)
    with pytest.warns(UserWarning, match="it is damaged"):
        assert store.find(run.experiment, run.seed) is None


# ---- figures, tables, claims, report ----------------------------------------------------------------


def record(ids: Sequence[str]) -> None:
    for id in ids:
        ledger.record([Verdict(id, "holds", f"{id} holds")], "01_data", "smoke")


@pytest.mark.slow
def test_two_writers_of_the_ledger_lose_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    ids = list(claims.known())
    record(ids[:1])

    def look() -> None:
        assert ledger.ledger("smoke").id.tolist() == ids

    together(record, (ids[::2],), (ids[1::2],), look=look)
    book = ledger.ledger("smoke")
    assert (book.verdict == "holds").all()
    assert book.finding.tolist() == [f"{id} holds" for id in ids]


def write_reports(version: int) -> None:
    for _ in range(3):
        write_report(version)


@pytest.mark.slow
def test_two_writers_of_figures_tables_and_report_never_show_half_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = report_versions(tmp_path, monkeypatch)
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))

    def look() -> None:
        for path in (tmp_path / "smoke").glob("[!.]*.*"):
            content = path.read_bytes()
            if path.name in ("report.html", "REPORT.md"):  # either version's figure beside either one's table
                assert content[-20:] in {version[-20:] for version in versions[path.name]}
            else:
                assert content in versions[path.name]

    together(write_reports, (0,), (1,), look=look)
    look()
    write_report(0)
    assert not [*tmp_path.rglob(".tmp-*")]


# ---- notebooks --------------------------------------------------------------------------------------


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """Three cells that say who ran them, slowly."""
    cells = [nbformat.v4.new_code_cell("who = 0", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell("import time\n\ntime.sleep(0.3)\nprint(who)") for _ in range(3)]
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, tmp_path / "slow.ipynb")
    return tmp_path / "slow.ipynb"


def execute(notebook: Path, output: Path, who: int) -> None:
    notebooks.execute(notebook, output, {"who": who})


@pytest.mark.notebooks
def test_a_notebook_executed_twice_at_once_has_the_outputs_of_one_of_them(notebook: Path, tmp_path: Path) -> None:
    output = tmp_path / "build" / "slow.ipynb"

    def look() -> None:
        if output.exists():
            cells = json.loads(output.read_text())["cells"]
            printed = ["".join(each["text"]) for cell in cells for each in cell.get("outputs", [])]
            assert printed in (["1\n"] * 3, ["2\n"] * 3)

    together(execute, (notebook, output, 1), (notebook, output, 2), look=look)
    look()
    assert [path.name for path in output.parent.iterdir()] == ["slow.ipynb"]
