"""Lists of dependencies agree, CI runs the tests, pages show what is there, and nothing names the machine."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from helpers import skip_without_shipped_figures
from packaging.utils import canonicalize_name

from abc_nb.analysis.results import Results
from abc_nb.experiments.catalogue import MODELS
from abc_nb.paper import facts

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][0-9A-Za-z.]*)")  # no URL, no +local label, no marker
MACHINE_PATH = re.compile(r"(?<![\w.-])/" + "work" + r"/")


def parse_pins(requirements: list[str]) -> dict[str, str]:
    """Map each canonical name to its version; anything but `name==version` is an error."""
    matches = {line: PIN.fullmatch(line) for line in requirements}
    loose = [line for line, match in matches.items() if match is None]
    assert not loose, f"not an exact pin: {loose}"
    pins = {canonicalize_name(match[1]): match[2] for match in matches.values() if match}
    assert len(pins) == len(requirements), "a package is listed twice"
    return pins


def project_pins() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return parse_pins(project["dependencies"] + project["optional-dependencies"]["dev"])


def lock_lines() -> list[str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_lock_holds_every_project_pin() -> None:
    lock = parse_pins(lock_lines())
    assert project_pins().items() <= lock.items()
    assert "abc-nb" not in lock


def test_lock_is_sorted() -> None:
    assert lock_lines() == sorted(lock_lines(), key=str.upper)


def test_conda_environment_installs_exactly_the_project_pins() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip[-1] == "-e ."
    assert parse_pins(pip[:-1]) == project_pins()


@pytest.mark.parametrize("extra", ["dask", "hf"])
def test_what_the_extras_install_is_tested(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*project["optional-dependencies"][extra]} <= {*project["optional-dependencies"]["dev"]}


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


def test_no_file_names_a_path_of_the_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    files = [path for name in names if name and (path := ROOT / name).is_file()]
    assert files
    leaks = [
        str(path.relative_to(ROOT))
        for path in files
        if b"\0" not in (data := path.read_bytes()) and MACHINE_PATH.search(data.decode(errors="replace"))
    ]
    assert not leaks


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def test_code_that_pages_show_from_a_file_is_in_that_file() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"```python\n# (abc_nb/\S+)\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 4, "a task, a position encoding, a bias and an experiment"
    for name, block in blocks:
        source = (ROOT / name).read_text()
        for part in re.split(r"\n\n(?=    \")", block.rstrip("\n")):
            assert part in source, f"{name} has no longer\n{part}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_of_the_project(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if not link.startswith(("https://", "http://"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_page_of_folders_has_the_rooms_in_the_order_of_the_contract_and_modules_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", (ROOT / "docs" / "folders.md").read_text(), re.MULTILINE)
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [f"abc_nb.{room}" for room, _ in rows] == contract["layers"][::-1]
    named = [ROOT / "abc_nb" / room / module for room, modules in rows for module in re.findall(r"`(\S+)`", modules)]
    assert len(named) > 40
    assert [path for path in named if not path.exists()] == []


def test_models_that_the_page_of_readings_names_are_in_the_catalogue() -> None:
    """Names with a hyphen that begin as models do; those with braces, dots or capitals stand for several."""
    text = (ROOT / "docs" / "readings.md").read_text()
    named = set(re.findall(r"`((?:abc|window|nope|rope|rpe|alibi|vanilla|by)-[a-z0-9.-]+)`", text))
    assert len(named) > 20
    assert named <= MODELS.keys()


def test_the_numbers_of_the_readme_are_those_of_the_shipped_results() -> None:
    readme = (ROOT / "README.md").read_text()
    found = Results("quick", "shipped", [0, 1, 2, 3, 4])
    assert facts.worst_runs(found) in readme
    assert f"{facts.fresh_seeds(found)} {facts.fresh_certificates(found)}" in readme
    skip_without_shipped_figures()
    assert facts.verdicts("quick") in readme
