"""Which certificates belong to results: those made here, those shipped, or either."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import Folders

from abc_nb import commands
from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.runs import runner, store
from abc_nb.specs.spec import Spec

NAME = "successor-abc"  # which the run below stands for
OTHER = "parity-abc"  # of which no run is there


def certificate(name: str, contexts: int) -> files.Data:
    """Of seed 0, told apart by its number of contexts."""
    data = {"type": "certificate", "experiment": name, "profile": "smoke", "seed": 0, "recipe": "plain", "base": 10}
    return data | {"contexts": contexts}


def write_here(data: files.Data) -> None:
    folder = paths.certificates_made_here()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{files.name_of(data)}.json").write_text(json.dumps(data))


@pytest.fixture
def shipped(folders: Folders) -> None:
    for name in (NAME, OTHER):
        files.ship(f"{name}-smoke-seed0", certificate(name, contexts=1))


def contexts(origin: str) -> dict[str, int]:
    return {each["experiment"]: each["contexts"] for each in certified.read(Results("smoke", origin, [0]))}


@pytest.fixture
def run(tiny: Spec, shipped: None, monkeypatch: pytest.MonkeyPatch) -> store.Run:
    """A run made here under the name of a shipped certificate."""
    found = runner.ensure(tiny, 0)
    monkeypatch.setattr(certified.store, "find", lambda experiment, *_: found if experiment.name == NAME else None)
    return found


def test_a_certificate_made_here_replaces_the_shipped_one(shipped: None) -> None:
    write_here(certificate(NAME, contexts=2))
    assert contexts("any") == {OTHER: 1, NAME: 2}
    assert contexts("runs") == {NAME: 2}
    assert contexts("shipped") == {OTHER: 1, NAME: 1}


def test_a_run_made_here_has_no_shipped_certificate(run: store.Run) -> None:
    assert contexts("any") == {OTHER: 1}
    assert contexts("shipped") == {OTHER: 1, NAME: 1}
    write_here(certificate(NAME, contexts=2))
    assert contexts("any") == {OTHER: 1, NAME: 2}


def test_of_shipped_runs_no_certificate_is_made(run: store.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(certified, "certify_model", lambda *given: tried.append(given))
    monkeypatch.setattr(certified, "names", lambda found: [NAME])
    monkeypatch.setattr(Results, "runs", lambda *_: [replace(run, manifest={**run.manifest, "shipped": True})])
    assert certified.certify_runs(Results("smoke", "any", [0])) == [] and not tried


def test_a_shipped_run_brings_the_certificate_of_its_weights_and_no_other(
    tiny: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "chosen", lambda arguments: tiny)
    run, name = runner.ensure(tiny, 0), f"{tiny.name}-smoke-seed0"
    own = certificate(tiny.name, contexts=3) | {"weights": checksum(weights_of(run.model()))}
    write_here(own | {"weights": "of another model"})
    assert main(["ship", tiny.name, "--weights"]) == 0 and files.shipped() == {}
    write_here(own)
    assert main(["ship", tiny.name, "--weights"]) == 0 and files.shipped() == {name: own}
    assert main(["ship", tiny.name]) == 0 and files.shipped() == {}
