"""Sweeps: the same results wherever runs are made; failures are named and the others go on."""

from dataclasses import replace

import pytest
from conftest import Folders
from helpers import assert_same_result, child_of, renamed
from processes import serve

from abc_nb.runs import runner, store, sweep
from abc_nb.specs.spec import Spec


def test_a_parent_that_is_nowhere_is_made_first(child: Spec, tiny: Spec, folders: Folders) -> None:
    jobs = [(child, 0), (child, 1), (tiny, 1)]
    todo = sweep.missing(jobs)
    assert todo == [(tiny, 0), (child, 0), (tiny, 1), (child, 1)]
    assert [sweep.depth(job) for job, _ in todo] == [0, 1, 0, 1]


@pytest.mark.slow
def test_processes_give_what_one_process_gives(child: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    serve()
    monkeypatch.setattr("joblib.externals.loky.backend.context._DEFAULT_START_METHOD", "forkserver")
    jobs = [(child, 0), (child, 1)]
    alone = [runner.ensure(*job) for job in jobs]
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs / "together"))
    assert sweep.sweep(jobs, processes=2) == []
    for one, job in zip(alone, jobs, strict=True):
        other = store.find(*job)
        assert other is not None and other.folder != one.folder
        assert_same_result(one, other)
    assert sweep.missing(jobs) == []


def test_a_failure_is_named_and_the_others_go_on(tiny: Spec, folders: Folders) -> None:
    broken = renamed(replace(tiny, tests=((1, 0),)), "broken")
    orphan = replace(child_of(broken), tests=())
    failures = sweep.sweep([(orphan, 0), (tiny, 0), (broken, 1)], processes=1)
    wanted = ("successor-broken seed 0", "successor-broken seed 1", "successor-abc seed 0")
    for failure, name in zip(failures, wanted, strict=True):
        assert failure.startswith(f"{name} failed: ") and "0 problems of 1 digits are too few" in failure
    assert store.find(tiny, 0) is not None
