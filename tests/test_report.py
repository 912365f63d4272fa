"""The report: a profile's worst runs and claims in Markdown, and its runs."""

import re
import shutil
from pathlib import Path

import pytest
from conftest import Folders

from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.paper import claims, exhibits, ledger, report
from abc_nb.show import notebooks
from abc_nb.specs.spec import SEEDS

FIGURES = paths.ROOT / "figures"
SHIPPED = Results("quick", "shipped", SEEDS)
SMOKE = Results("smoke", "runs", [0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: Folders) -> Path:
    """The smoke profile's folder, empty, as are runs and shipped results."""
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    (tmp_path / "figures" / "smoke").mkdir(parents=True)
    return tmp_path / "figures" / "smoke"


def test_the_report_that_comes_with_the_project_is_that_of_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written into a copy of the figures, which lies elsewhere."""
    shutil.copytree(FIGURES, tmp_path / "figures", ignore=shutil.ignore_patterns("smoke", "REPORT.md"))
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    text = report.write(SHIPPED).read_text()
    moved = re.sub(r"\]\([./\w-]+(notebooks/\w+\.ipynb)\)", r"](../\1)", text)
    assert moved == (FIGURES / "REPORT.md").read_text(), "the results have changed: run `abc-nb report`"
    assert (tmp_path / "figures" / "runs.csv").read_bytes() == (FIGURES / "runs.csv").read_bytes()


def test_figures_and_tables_are_those_that_notebooks_save_and_each_has_its_caption() -> None:
    sources = "".join(path.read_text() for path in notebooks.sequence()).replace("\\", "")
    saved = set(re.findall(r'"((?:figure|table)-[\w-]+)"', sources))
    files = [path.stem for pattern in ("figure-*.png", "table-*.csv") for path in FIGURES.glob(pattern)]
    assert saved == set(files) == set(exhibits.captions()) - {"benchmarks"}


def test_what_the_ledger_holds_is_escaped(folder: Path) -> None:
    """Without runs the report is written all the same."""
    ledger.record([claims.Verdict("C02", "differs", "None.", "<script>alert(1)</script> $x$ | y")], "02", "smoke")
    text = report.write(SMOKE).read_text()
    assert r"\<script>" in text and r"\$x\$ \| y" in text
