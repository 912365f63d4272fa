"""The page on adding one's own: each file is put where it says, and each command and cell is run, in a copy."""

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
from test_rules import life, problem_of

from abc_nb.specs.spec import spec

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "add-your-own.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
DOUBLING = ("abc", "abc-unpractised", "abs", "abs-unpractised", "vanilla")
TRIED = r"[\d,]+ contexts in .* wrong, smallest margin|no certificate: there are [\d,]+ contexts"


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL)


def files(section: str) -> dict[str, str]:
    """The code that the section puts into files, by the path in its first line."""
    shown = (re.match(r"# (abc_nb/\S+\.py)\n", block) for block in blocks(section, "python"))
    return {match[1]: match.string[match.end() :] for match in shown if match}


class Copy:
    """A copy of the package, with runs of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "abc_nb", folder / "abc_nb", ignore=shutil.ignore_patterns("__pycache__", "models"))
        (folder / "pyproject.toml").write_text('name = "abc-nb"')  # what makes a folder a checkout
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ABC_NB_")}
        self.environment["CUDA_VISIBLE_DEVICES"] = ""

    def write(self, section: str) -> None:
        """Put the section's files where it says; each is new."""
        for name, code in files(section).items():
            assert not (self.folder / name).exists()
            (self.folder / name).write_text(code)

    def commands(self, section: str) -> list[str]:
        """What each command of the section prints. A model of 20 steps need not be certified, but it is tried."""
        lines = "".join(blocks(section, "sh")).splitlines()
        words = [shlex.split(line) for line in lines]
        assert {program for program, *_ in words} == {"abc-nb"}
        said = processes.commands([arguments for _, *arguments in words], self.folder, self.environment)
        for line, (code, text) in zip(lines, said, strict=True):
            fine = re.search(TRIED, text) is not None if line.startswith("abc-nb certify") else code == 0
            assert fine, f"{line}\n{text}"
        return [text for _, text in said]

    def runs(self) -> list[str]:
        return sorted(path.parent.name for path in (self.folder / "runs").glob("*/run.json"))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "runs"),
    [
        ("A task", [f"doubling-{model}" for model in DOUBLING]),
        ("A position encoding", ["addition-vanilla"] * 2),
        ("A bias", ["addition-window-cyclic"]),
        ("Other training settings", ["addition-vanilla"]),
    ],
)
def test_a_section_is_one_file_or_none_and_its_commands_work(copy: Copy, section: str, runs: list[str]) -> None:
    copy.write(section)
    said = copy.commands(section)
    assert [run.partition("-smoke")[0] for run in copy.runs()] == runs
    for code in files(section).values():
        (name,) = re.findall(r"^(?:class|def) (\w+)", code, re.MULTILINE)
        for run in copy.runs():
            assert name.lower() in (copy.folder / "runs" / run / "run.json").read_text().lower()
    if not files(section):
        assert any(": 30 steps in " in text for text in said)
        assert copy.runs() != [spec("addition-vanilla", "smoke").key(0)]


@pytest.mark.slow
def test_a_task_can_stand_in_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond the sizes of training its model does what a loop does, and shows its rows."""
    cell, file = blocks("A task", "python")
    assert file.startswith("# abc_nb/problems/") and len([line for line in cell.splitlines() if line]) <= 15
    names: dict[str, Any] = {}
    exec(cell, names)
    assert capsys.readouterr().out.splitlines()[-1] == "11010 True"
    taught, first = names["taught"], np.random.default_rng(0).integers(2, size=40).tolist()
    assert taught.certificate.contexts <= 192
    assert taught.answer(problem_of(first, 30)) == "".join(map(str, life(110, first, 30)[-1]))
    rows = ["0 | 0 0 0 1", "0 | 0 0 1 1", "0 | 0 1 1 1"]
    assert taught.answer("0001*000", trace=True).splitlines()[1:-1] == rows


@pytest.mark.slow
def test_machines_are_taught_in_a_few_lines(copy: Copy) -> None:
    cells = blocks("A machine", "python")
    assert all(len([line for line in cell.splitlines() if line]) <= 15 for cell in cells)
    for cell in cells:
        said = re.findall("# (.*)$", cell)[-1]
        assert processes.python(cell, copy.folder, copy.environment).splitlines()[-1] == said


@pytest.mark.slow
def test_a_row_gives_a_model_a_name(copy: Copy) -> None:
    copy.write("A bias")
    ((name, row),) = files("A name for a model").items()
    path = copy.folder / name
    assert "at the end of the table `BASIC`" in SECTIONS["A name for a model"]
    before, table, after = re.split(r"(^BASIC = \{.*?^)(?=\}$)", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert "Write `from abc_nb.bias.pairs import Pairs`" in SECTIONS["A name for a model"]
    before = before.replace("from abc_nb.bias import ", "from abc_nb.bias.pairs import Pairs\nfrom abc_nb.bias import ")
    path.write_text(before + table + row + after)
    copy.commands("A name for a model")
    assert [run.partition("-smoke")[0] for run in copy.runs()] == ["addition-pairs"]
