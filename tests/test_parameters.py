"""The course under other parameters: it runs, and what it prints of a problem is what Python's integers say."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from abc_nb.analysis.dataset import the_problem
from abc_nb.problems.tasks import Task
from abc_nb.show import notebooks
from abc_nb.specs.names import ARITHMETIC


class Case(NamedTuple):
    """A notebook and its parameters; one case of each notebook that trains is quick enough for every run."""

    notebook: str
    parameters: dict[str, Any]


QUICK = [
    Case("02_vanilla_failure", {"base": 4, "digits": 12, "steps": 5, "train": True}),
    Case("04_abs", {"task": "successor", "base": 4, "window": 0, "steps": 20}),
    Case("05_abc", {"task": "parity", "base": 2, "digits": 5, "share": 0.5, "steps": 20}),
]
LONG = [
    Case("00_in_ten_minutes", {"task": "parity", "digits": 3}),
    Case("00_in_ten_minutes", {"task": "n-by-1", "digits": 30}),
    Case("01_data", {"task": "n-by-1", "base": 16, "seed": 7}),
    Case("01_data", {"base": 2, "digits": 40}),
    Case("02_vanilla_failure", {"task": "n-by-1", "digits": 20, "seed": 3, "steps": 30, "train": True}),
    Case("03_attention_analysis", {"task": "n-by-1", "zeros": 9}),
    Case("03_attention_analysis", {"task": "parity", "zeros": 0}),
    Case("04_abs", {"task": "parity", "base": 2, "window": 2}),
    Case("05_abc", {"task": "successor", "digits": 20, "share": 0.1, "steps": 100}),
    Case("06_rpe_connection", {"digits": 12}),
    Case("06_rpe_connection", {"digits": 500, "seeds": [3]}),
    Case("07_every_length", {"task": "n-by-1", "digits": 3}),
    Case("07_every_length", {"task": "parity", "digits": 12}),
    Case("09_models_people_use", {"task": "successor", "digits": 30}),
    Case("09_models_people_use", {"task": "parity", "digits": 7}),
    Case("08_products", {"digits": 1}),
    Case("08_products", {"digits": 20}),
    Case("09_models_people_use", {"digits": 1}),
    Case("09_models_people_use", {"digits": 300, "text": "{sum} and {sum}, no more"}),
    Case("09_models_people_use", {"text": "It is 99999*9= or 99999+1="}),
]
EVERY = [*QUICK, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)]
RIGHT = re.compile(r"^([0-9a-f]+)(?:([+*])([0-9a-f]+))? gives .*, right is ([0-9a-f]+)$", re.MULTILINE)


def printed(path: Path) -> str:
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)


def answer_of(task: str, base: int, first: str, operator: str, second: str) -> int:
    """With Python's integers; of Parity the parity of all bits."""
    a, b = int(first, base), int(second or "0", base)
    if task == "parity":
        return first.count("1") % 2
    return {"": a + 1, "+": a + b, "*": a * b}[operator]


@pytest.mark.notebooks
@pytest.mark.usefixtures("forked_kernels")
@pytest.mark.parametrize(
    "case", EVERY, ids=lambda case: f"{case.notebook}-{'-'.join(map(str, case.parameters.values()))}"
)
def test_the_course_runs_under_other_parameters(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    output = tmp_path / "out.ipynb"
    (notebook,) = (path for path in notebooks.in_reading_order() if path.stem == case.notebook)
    notebooks.execute(notebook, output, case.parameters, bar=False)
    wrong = case.notebook in ("00_in_ten_minutes", "07_every_length")  # they show wrong ones, whatever the task
    task = "n-by-1" if wrong else case.parameters.get("task", "addition")
    base = 2 if task == "parity" else case.parameters.get("base", 10)
    answers = RIGHT.findall(printed(output))
    assert answers or case.notebook != "02_vanilla_failure"
    for first, operator, second, right in answers:
        assert int(right, base) == answer_of(task, base, first, operator, second)


@pytest.mark.parametrize("task", ARITHMETIC)
@pytest.mark.parametrize("digits", [1, 6, 30])
def test_the_problem_of_the_course_has_the_digits_of_pi_and_e(task: str, digits: int) -> None:
    problem = the_problem(Task(task), digits)
    numbers = re.split(r"[+*]", problem)
    if Task(task).base == 10:
        assert numbers[0] == "314159265358979323846264338327"[:digits]
    if task == "addition":
        assert numbers[1] == "271828182845904523536028747135"[:digits]
    assert len(numbers[0]) == Task(task).places(digits)
