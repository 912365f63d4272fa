"""The committed notebooks: executed, checked by nbval, run in the smoke profile, and under other parameters."""

import io
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from abc_nb.analysis import results
from abc_nb.analysis.dataset import the_problem
from abc_nb.certificates import practice, tables
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task
from abc_nb.runs import sweep
from abc_nb.show import exhibits, notebooks
from abc_nb.specs.names import ARITHMETIC
from audit import NOTEBOOKS, studies
from audit.claims import VERDICTS
from audit.reproduce import reproduce

APPENDICES = notebooks.in_reading_order(NOTEBOOKS)  # results, for reference
BOOKS = [*notebooks.in_reading_order(), *APPENDICES]
PRINTED = ("06_rpe_connection",)  # small tables alone
NAME = re.compile(r'"((?:figure|table)-[\w-]+)"')
NBVAL = ["-q", "-s", "-o", "addopts=", "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=600"]
NBVAL += [f"--nbval-sanitize-with={Path(__file__).parent / 'sanitize.cfg'}"]
NBVAL += [f"-pno:{plugin}" for plugin in ("xdist", "cacheprovider", "faulthandler", "unraisableexception")]


@cache  # to read a notebook is to check it against a schema
def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_every_code_cell_is_executed_and_some_are_checked(path: Path) -> None:
    for cell in code_cells(path):
        assert cell.execution_count is not None, "nbval compares nothing in a cell that was never run"
        assert not [output for output in cell.outputs if output.output_type == "error"]
    cell_tags = [tag for cell in code_cells(path) for tag in tags(cell)]
    assert cell_tags.count("parameters") == 1 and cell_tags.count("nbval-check-output") >= 1


@pytest.mark.notebooks
@pytest.mark.usefixtures("forked_kernels")
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_stored_outputs_and_tables_are_what_the_notebook_gives_now(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the shipped results alone; what it writes is compared with what is committed, which it leaves alone.

    nbval is run in this process, which has it imported, and its cells in a kernel of their own. A cell that trains a
    model, tagged `nbval-skip`, is run by the reproduction below.
    """
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "runs"))
    (tmp_path / "figures").mkdir()
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.chdir(path.parent)
    with redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*NBVAL, str(path)])
    assert status == 0, said.getvalue()[-6000:]
    written = [file for file in (tmp_path / "figures").iterdir() if not file.name.startswith(".")]
    assert {file.name for file in written} <= {file.name for file in paths.figures().iterdir()}
    for file in written:
        if file.name == "claims.csv":
            assert_same_verdicts(file, paths.figures() / file.name)
        elif file.suffix == ".csv":
            ours, stored = (pd.read_csv(folder / file.name) for folder in (file.parent, paths.figures()))
            pd.testing.assert_frame_equal(ours, stored, rtol=1e-3, atol=1e-3, obj=file.name)


def assert_same_verdicts(written_file: Path, committed_file: Path) -> None:
    """Of one notebook, whose ledger has no other's verdicts."""
    files = (written_file, committed_file)
    written, committed = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in files)
    written = written[written.notebook != ""]
    of_notebook = committed[committed.notebook.isin(written.notebook)]
    pd.testing.assert_frame_equal(written.reset_index(drop=True), of_notebook.reset_index(drop=True))


BAD: dict[str, list[object]] = {
    "profile": ["huge", 3, ["quick"], None],
    "results": ["elsewhere", True, {}],
    "seeds": [[], 0, "01", [0, 0], [-1], [True], [0.5], None],
    "task": ["modulo", 3, None],
    "base": [1, 17, True, "10"],
    "digits": [0, 10**9, 2.0],
    "seed": [-1, True, [0]],
    "window": [-1, "1"],
    "zeros": [-3, None],
    "steps": [0, 1.5],
    "share": [0, 1.1, "half", True],
    "train": [1, "yes", None],
    "text": ["", " ", 3, None],
}
EVERYWHERE = {"profile", "results", "seeds"}


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_every_parameter_is_checked_before_a_notebook_computes(path: Path) -> None:
    first, second = code_cells(path)[:2]
    parameters: dict[str, object] = {}
    exec(first.source, parameters)
    names = {*parameters} - {"__builtins__"}
    assert "parameters" in tags(first) and names <= {*BAD} == {*results.PARAMETERS}
    assert names == EVERYWHERE if path in APPENDICES else names >= EVERYWHERE
    for name in names:
        for value in BAD[name]:
            with pytest.raises(InputError, match=rf"^{name} [^\n]*: (choose one of|give) [^\n]*$"):
                exec(second.source, parameters | {name: value})


LEFT = ("addition-rope", "parity-abc")  # runs that the reproduction finds missing


def run_here(notebook: Path, output: Path, parameters: dict[str, object], bar: bool) -> None:
    """A notebook's cells in this process, in a shell of their own: a kernel for each notebook would take minutes."""
    shell = InteractiveShell()
    for cell in code_cells(notebook):
        shell.run_cell(cell.source).raise_error()
        if "parameters" in tags(cell):
            shell.user_ns.update(parameters)
    plt.close("all")


def committed() -> dict[Path, int]:
    """Every file of the folders that a reproduction leaves alone, and when it was last written."""
    folders = (paths.ROOT / name for name in ("figures", "notebooks", "results"))
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file()}


def reproduced(folder: Path) -> str:
    """`make reproduce` in the smoke profile, most runs being finished: a process for each would take minutes."""
    jobs = [(experiment, 0) for experiment in studies.needed("smoke") if experiment.name not in LEFT]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(folder / "runs"))
        patched.setenv("ABC_NB_FIGURES", str(folder / "figures"))
        patched.setattr(practice, "EXAMPLES", 3)  # untrained models are wrong on most contexts
        patched.setattr(tables, "DRAWN", 100)  # and on most problems
        patched.setenv("LOKY_MAX_CPU_COUNT", "1")  # of cores
        with pytest.MonkeyPatch.context() as training:  # not of the machine that notebook 8 teaches
            training.setattr(
                practice, "CONTEXTS_A_STEP", 250
            )  # for each of 20 steps: models with more are not practised
            assert sweep.sweep(jobs) == []
        patched.setattr(notebooks, "execute", run_here)
        with redirect_stdout(printed):
            assert reproduce("smoke", [0]) == 0
    return printed.getvalue()


@pytest.mark.notebooks
def test_reproduce_trains_what_is_missing_and_writes_figures_tables_and_the_ledger(tmp_path: Path) -> None:
    """One test of one reproduction, as two workers would each make their own."""
    before, count, figures = committed(), len(studies.needed("smoke")), tmp_path / "figures" / "smoke"
    said = reproduced(tmp_path)
    assert committed() == before
    assert f"runs asked for: {count}, to be made: {len(LEFT)}" in said
    pictures = [f"{name}.{end}" for name in ("figure-a0-1-curves", "figure-0-2-headline") for end in ("png", "svg")]
    tables = [f"table-{number}.{end}" for number in (1, 2, 3) for end in ("csv", "md", "tex")]
    assert {*pictures, *tables} <= {path.name for path in figures.iterdir()}
    assert all(len(pd.read_csv(figures / f"table-{number}.csv")) >= 4 for number in (1, 2, 3))
    book = pd.read_csv(figures / "claims.csv", keep_default_na=False)
    judged = book[book.notebook == "a0_papers_tables"]
    assert len(book) == 41 and set(judged.id) >= {"C01", "C02", "C03", "C04", "C05", "C14", "C15"}
    assert set(judged.verdict) <= set(VERDICTS)


def shown(path: Path) -> tuple[list[str], list[str]]:
    """The names of figures and tables in a notebook's code, and what it shows as Markdown, in reading order."""
    names = [name for cell in code_cells(path) for name in NAME.findall(cell.source)]
    outputs = [output.get("data", {}) for cell in code_cells(path) for output in cell.outputs]
    return list(dict.fromkeys(names)), [data["text/markdown"] for data in outputs if "text/markdown" in data]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_every_figure_and_table_is_shown_with_its_caption_and_ours_are_numbered_in_reading_order(path: Path) -> None:
    names, texts = shown(path)
    assert names or path.stem in PRINTED
    for name in names:
        number = exhibits.numbered(name, "")
        assert any(text.startswith(number) and len(text) > len(number) + 20 for text in texts), name
    for kind in ("figure", "table"):
        ours = [match for match in map(exhibits.OURS.fullmatch, names) if match and match[1] == kind]
        assert [int(match[3]) for match in ours] == [*range(1, len(ours) + 1)]


# ---- other parameters


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
    answers = RIGHT.findall("".join(shown.get("text", "") for cell in code_cells(output) for shown in cell.outputs))
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
