"""`reproduce` writes below build/ and runs/ alone, so that `make test` after it still has what is committed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Tests that read what is committed: report, figures, captions, notebooks' stored outputs.
READING = ["tests/test_exhibits.py", "tests/test_packaging.py", "tests/test_notebooks.py"]
QUICK = "not long and not slow and not notebooks"


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
