"""`reproduce` writes below build/ and runs/ alone, so that `make test` after it still has what is committed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from abc_nb.common import paths
from audit import reproduce

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ("figures", "notebooks", "results")
# Tests that read what is committed: report, figures, captions, notebooks' stored outputs.
READING = ["tests/test_exhibits.py", "tests/test_packaging.py", "tests/test_notebooks.py"]
QUICK = "not long and not slow and not notebooks"


def written(folder: Path) -> dict[Path, int]:
    """Every file of a folder and when it was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_nothing_that_is_committed_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without trainings, and with a file from each notebook where its kernel would save its figures."""
    outputs: list[Path] = []

    def save(notebook: Path, output: Path, parameters: object, bar: bool) -> None:
        outputs.append(output)
        paths.figures("smoke").mkdir(parents=True, exist_ok=True)
        (paths.figures("smoke") / f"table-{notebook.stem}.csv").write_text("a,b\n1,2\n")

    monkeypatch.setenv("ABC_NB_FIGURES", "")  # so that what `reproduce` sets is taken back after the test
    monkeypatch.delenv("ABC_NB_FIGURES")
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(reproduce, "needed", lambda profile: [])
    monkeypatch.setattr(reproduce.sweep, "sweep", lambda jobs: [])
    monkeypatch.setattr(reproduce.notebooks, "execute", save)
    before = [written(ROOT / folder) for folder in COMMITTED]
    assert reproduce.reproduce("smoke", [0]) == 0
    assert [written(ROOT / folder) for folder in COMMITTED] == before
    assert paths.figures("smoke") == tmp_path / "build" / "reproduced" / "smoke"
    assert (paths.figures("smoke") / "REPORT.md").exists()
    assert all(output.is_relative_to(tmp_path / "build" / "notebooks") for output in outputs)
    assert len(outputs) == len(list((ROOT / "notebooks").rglob("*.ipynb")))


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_reproduce_and_test_in_one_clone_in_either_order(tmp_path: Path) -> None:
    """`make reproduce` in a clone, with this environment, between two runs of the tests that read committed files."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").mkdir()
    (clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (clone / ".venv" / ".installed").touch()  # so that make installs nothing
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABC_NB_")}
    environment |= {"PYTHONPATH": str(clone)}

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        assert subprocess.check_output(["git", "status", "--porcelain"], cwd=clone) == b""

    test = [sys.executable, "-m", "pytest", "-q", "-m", QUICK, *READING]
    run(*test)
    run("make", "reproduce", "PROFILE=smoke")
    run(*test)
