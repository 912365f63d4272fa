"""Commands that write into the repository or end with a status: what they leave, print and return."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from conftest import Folders
from helpers import assert_same_result
from nbformat.v4 import new_code_cell, new_notebook

from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.runs import store, sweep
from abc_nb.show import notebooks
from abc_nb.specs.spec import Spec
from audit import reproduce

Capture = pytest.CaptureFixture[str]
FAILED = "addition-vanilla seed 3 failed: no memory"


@pytest.mark.parametrize(("failures", "status"), [([], 0), ([FAILED], 1)])
def test_a_sweep_ends_with_the_status_of_its_runs_and_names_those_that_failed(
    failures: list[str], status: int, folders: Folders, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "workers", lambda: 1)
    monkeypatch.setattr(sweep, "attempt", lambda spec, seed, runs: ("".join(failures) * (seed == 3), 0))
    assert main(["sweep", "addition-vanilla", "--seeds", "0-3", "--profile", "smoke"]) == status
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "runs asked for: 4, to be made: 4"
    assert out.splitlines()[1].startswith(f"made: {4 - status}, failed: {status}; all are kept in ")
    assert re.findall("^abc-nb: (.*)$", err, re.MULTILINE) == failures


def test_a_reproduction_whose_run_failed_runs_no_notebook(
    folders: Folders, tiny: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no notebook was to be run")

    monkeypatch.setattr(reproduce, "needed", lambda profile: [tiny])
    monkeypatch.setattr(sweep, "sweep", lambda jobs: [FAILED])
    monkeypatch.setattr(notebooks, "execute", never)
    assert reproduce.reproduce("smoke", [0]) == 1


@pytest.mark.notebooks
def test_a_notebook_is_refreshed_in_place_without_the_traces_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    parameters = new_code_cell("value = 1", metadata={"tags": ["parameters"]})
    prints = new_code_cell("import os; print(value, os.environ['ABC_NB_FIGURES'])")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    path = tmp_path / "01_one.ipynb"
    nbformat.write(new_notebook(cells=[parameters, prints], metadata=kernel), path)
    assert main(["notebooks", "01_one"]) == 0
    done = nbformat.read(path, 4)
    assert done.cells[-1].outputs[0].text.strip() == f"1 {tmp_path / 'figures'}"
    assert "papermill" not in path.read_text() and "version" not in done.metadata.get("language_info", {})


@pytest.mark.parametrize("options", [[], ["--weights"]])
def test_shipped_runs_come_with_weights_only_if_asked_and_list_tells_which_have_them(
    options: list[str], run: store.Run, folders: Folders, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = run.spec
    monkeypatch.setattr("abc_nb.commands.spec", lambda *_, **__: tiny)
    monkeypatch.setattr("abc_nb.commands.matching", lambda *_: [tiny.name])
    assert main(["ship", tiny.name, "--profile", "smoke", *options]) == 0
    assert capsys.readouterr().out.strip() == f"{run.key} is in {folders.shipped}"
    shipped = store.find(tiny, 0, ("shipped",))
    assert shipped is not None
    assert shipped.facts["shipped"] is True
    if options:
        assert_same_result(shipped, run)
    else:
        with pytest.raises(InputError, match="was shipped without its weights: run `abc-nb train successor-vanilla"):
            shipped.model()
    shutil.rmtree(run.folder)
    assert main(["list", "--profile", "smoke"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[4:] == ["0"] * (1 + bool(options))
