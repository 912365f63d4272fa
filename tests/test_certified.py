"""Which certificates belong to results: those made here, those shipped, or either."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Folders

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.runs import runner, store
from abc_nb.specs.spec import Spec

NAME = "successor-abc"  # which the run below stands for
OTHER = "parity-abc"  # of which no run is there


def written(folder: Path, name: str, contexts: int) -> None:
    """A certificate of seed 0, told apart by its number of contexts."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"type": "certificate", "experiment": name, "profile": "smoke", "seed": 0, "recipe": "plain", "base": 10}
    (folder / f"{name}-smoke-seed0.json").write_text(json.dumps(data | {"contexts": contexts}))


@pytest.fixture
def shipped(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "certificates", lambda: folders.shipped / "certificates")
    for name in (NAME, OTHER):
        written(folders.shipped / "certificates", name, contexts=1)
    return folders.shipped / "certificates"


def contexts(origin: str) -> dict[str, int]:
    return {each["experiment"]: each["contexts"] for each in certified.read(Results("smoke", origin, [0]))}


@pytest.fixture
def run(tiny: Spec, shipped: Path, monkeypatch: pytest.MonkeyPatch) -> store.Run:
    """A run made here under the name of a shipped certificate."""
    found = runner.ensure(tiny, 0)
    monkeypatch.setattr(certified.store, "find", lambda experiment, *_: found if experiment.name == NAME else None)
    return found


def test_a_certificate_made_here_replaces_the_shipped_one(shipped: Path) -> None:
    written(certified.made_here(), NAME, contexts=2)
    assert contexts("any") == {OTHER: 1, NAME: 2}
    assert contexts("runs") == {NAME: 2}
    assert contexts("shipped") == {OTHER: 1, NAME: 1}


def test_a_run_made_here_has_no_shipped_certificate(run: store.Run) -> None:
    assert contexts("any") == {OTHER: 1}
    assert contexts("shipped") == {OTHER: 1, NAME: 1}
    written(certified.made_here(), NAME, contexts=2)
    assert contexts("any") == {OTHER: 1, NAME: 2}


def test_of_shipped_runs_no_certificate_is_made(run: store.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(certified, "certify_model", lambda *given: tried.append(given))
    monkeypatch.setattr(certified, "names", lambda found: [NAME])
    monkeypatch.setattr(Results, "runs", lambda *_: [replace(run, manifest={**run.manifest, "shipped": True})])
    assert certified.certify_runs(Results("smoke", "any", [0])) == [] and not tried
