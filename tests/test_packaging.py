"""Lists of dependencies agree, CI runs the tests, pages show what is there, and nothing names the machine."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain, product
from pathlib import Path

import processes
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from abc_nb.analysis import certified
from abc_nb.common import paths
from abc_nb.runs import store
from abc_nb.specs.names import ARITHMETIC
from audit import ledger, report
from audit.results import Results
from audit.studies import GROUPS

ROOT = Path(__file__).resolve().parents[1]
MACHINE_PATH = r"(?<![\w.-])/" + "work" + r"/"
APART = "smol"  # the extra that brings a language model of 93 MB: not locked, and not installed for tests


def test_nothing_is_pinned_and_the_lock_is_within_the_ranges() -> None:
    """So that the package can stand beside others."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(lines, key=str.upper)
    locked = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (extra for name, extra in project["optional-dependencies"].items() if name != APART)
    needed = map(Requirement, [*project["dependencies"], *chain.from_iterable(extras)])
    for requirement in (requirement for requirement in needed if requirement.name != "abc-nb"):
        assert {specifier.operator for specifier in requirement.specifier} == {">="}
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier
    assert "abc-nb" not in locked


def test_the_packages_models_are_the_shipped_ones() -> None:
    """Every record and its weights, which `make models` copies."""
    shipped_lines = store.shipped_lines()
    records = [json.loads(line) for line in store.record_lines(paths.PACKAGED_MODELS / store.RUNS, 0).values()]
    assert {(record["task"], record["model"]) for record in records} == {*product(ARITHMETIC, ("abs", "abc"))}
    for record in records:
        (file, prefix), shipped = record.pop("tensors"), json.loads(shipped_lines[record["key"]])
        where, shipped_prefix = shipped.pop("tensors")
        assert record == shipped, "run `make models`"
        packaged = store.weights_in(paths.PACKAGED_MODELS / file, prefix)
        ours = store.weights_in(paths.SHIPPED / where, shipped_prefix)
        assert store.tensors_checksum(packaged) == store.tensors_checksum(ours) == record["facts"]["weights"]
    assert sum(path.stat().st_size for path in paths.PACKAGED_MODELS.rglob("*.*")) < 5_000_000


def files_of(folder: Path) -> set[Path]:
    """All but what Python compiles."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_wheel_works_away_from_the_checkout(tmp_path: Path) -> None:
    """Without any folder of the project: answers are there, and what needs the checkout says so in a sentence."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "abc_nb", checkout / "abc_nb", ignore=shutil.ignore_patterns("__pycache__"))
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(checkout)], check=True)
    shutil.rmtree(checkout)
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABC_NB_")}
    environment["PYTHONPATH"] = str(site)

    command, installed = [sys.executable, "-m", "abc_nb", "compute", "addition-abc", "12+34"], files_of(site)
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "46\n")
    assert [*elsewhere.iterdir()] == [] and files_of(site) == installed, "nothing is left anywhere"
    lines = ["compute parity-abs 1011", "list", "train addition-vanilla", "compute addition-vanilla 12+34"]
    answer, table, refused, absent = processes.commands([line.split() for line in lines], site, environment)
    assert answer == (0, "1\n") and table[1].count("\n") >= 9
    assert "train needs the project's checkout" in refused[1]
    assert "set ABC_NB_RESULTS to the folder results of a checkout" in absent[1]
    assert "run `abc-nb train addition-vanilla` first in the project's checkout" in absent[1]
    assert all((code, sentence.count("\n")) == (2, 1) for code, sentence in (refused, absent))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_file_names_a_path_of_the_machine() -> None:
    """Of the files that git has, or would have; -I leaves out binary ones."""
    command = ["git", "grep", "--untracked", "-I", "-l", "-P", MACHINE_PATH]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


def test_what_is_run_in_the_lab_does_not_write_into_the_committed_figures(tmp_path: Path) -> None:
    jupyter = tmp_path / "bin" / "jupyter"
    jupyter.parent.mkdir()
    jupyter.write_text('#!/bin/sh\necho "$@" "$ABC_NB_FIGURES"\n')
    jupyter.chmod(0o755)
    (tmp_path / ".installed").touch()
    command = ["make", "--silent", "lab", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"/lab/tree/notebooks {ROOT / 'build' / 'figures'}" in done.stdout


PAGES = (ROOT / "README.md", ROOT / "figures" / "REPORT.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_of_the_project(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if not link.startswith(("https://", "http://"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_page_of_folders_has_the_rooms_in_the_order_of_the_contract_and_modules_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / "docs" / "folders.md").read_text(), re.MULTILINE)
    contract, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [f"abc_nb.{room}" for room, _ in rows] == contract["layers"][::-1]
    named = [ROOT / "abc_nb" / room / module for room, text in rows for module in re.findall(r"`(\S+\.py)`", text)]
    assert named
    assert [path for path in named if not path.exists()] == []


def test_the_numbers_of_the_readme_are_those_of_the_shipped_results() -> None:
    readme = (ROOT / "README.md").read_text()
    fresh = Results("quick", "shipped", GROUPS["20 to 29"])
    assert report.worst_runs(fresh, ("vanilla", "abs", "abc")) in readme
    before = certified.practice(fresh).groupby("model").before.sum()
    some, other = (40 - before[model] or "none" for model in ("abs", "abc"))
    assert f"Practice was needed for {some} of the 40 ABS models, and for {other} of the 40 ABC models." in readme
    verdicts = ledger.ledger("quick").verdict.value_counts()
    judged = verdicts.drop("definition").sum()
    counts = f"Of the paper's {judged} claims {verdicts['holds']} hold as they stand and "
    counts += f"{verdicts['holds with changes']} with changes; "
    counts += f"{verdicts['in part']} hold in part, and {verdicts['differs']} do not hold here."
    assert counts in readme and "undecided" not in verdicts
