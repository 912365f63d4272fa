"""The command line: what it prints, and that bad input is one sentence on standard error and status 2."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from conftest import Folders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import abc_nb
from abc_nb import cli, commands
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.runs import runner
from abc_nb.specs import studies
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import COLUMNS

SMOKE = ["--profile", "smoke"]
COMMANDS = ["list", "train", "evaluate", "compute", "sweep", "reproduce", "report", "notebooks", "ship", "bench"]


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder with addition-vanilla trained in the smoke profile."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(folder))
        assert main(["train", "addition-vanilla", *SMOKE]) == 0
    return folder


@pytest.fixture
def trained(trained_runs: Path, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(trained_runs))


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def table(capsys: pytest.CaptureFixture[str], *arguments: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(output(capsys, *arguments, "--csv")), keep_default_na=False)


# ---- help and list ----------------------------------------------------------------------------------


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\b", text, re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"usage: abc-nb {command}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"abc-nb {abc_nb.__version__}\n"


@pytest.mark.slow
def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, abc_nb, abc_nb.cli as c; c.build_parser().format_help(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=paths.ROOT)
    assert done.stdout.strip() == "False"


def test_list_names_every_experiment(capsys: pytest.CaptureFixture[str], folders: Folders) -> None:
    listed = table(capsys, "list", "--all")
    assert listed.experiment.tolist() == [*map(str, studies.names())]
    assert {"task", "model", "regime"} < {*listed.columns}
    assert (listed.seeds_with_results == "").all()
    text = output(capsys, "list", "--all")
    assert all(str(name) in text for name in studies.names())
    assert table(capsys, "list").empty


@pytest.mark.parametrize(
    ("pattern", "first"),
    [("addition", "addition-vanilla"), ("addition-abs", "addition-abs"), ("n-by-n", "n-by-n-vanilla")],
)
def test_list_takes_a_task_or_a_name(
    pattern: str, first: str, capsys: pytest.CaptureFixture[str], folders: Folders
) -> None:
    listed = table(capsys, "list", pattern, "--all")
    assert listed.experiment[0] == first
    assert listed.task.nunique() == 1


@pytest.mark.usefixtures("trained")
def test_list_says_what_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    listed = table(capsys, "list", *SMOKE).astype(str)
    assert listed[["experiment", "seeds_with_results", "seeds_with_weights"]].values.tolist() == [
        ["addition-vanilla", "0", "0"]
    ]


@pytest.mark.slow
def test_list_finds_seeds_of_any_size(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (12, 7):
        runner.ensure(spec("successor-vanilla", "smoke"), seed)
    listed = table(capsys, "list", "successor-*", *SMOKE).astype(str).set_index("experiment")
    assert listed.seeds_with_results["successor-vanilla"] == "7 12"
    assert listed.index.tolist() == ["successor-vanilla"]


# ---- train, evaluate, compute, ship -----------------------------------------------------------------


@pytest.mark.usefixtures("trained")
def test_train_again_says_where_the_run_is(capsys: pytest.CaptureFixture[str], trained_runs: Path) -> None:
    text = output(capsys, "train", "addition-vanilla", *SMOKE)
    assert f"kept in {trained_runs / spec('addition-vanilla', 'smoke').key(0)}" in text
    assert "accuracy" in text


@pytest.mark.usefixtures("trained")
def test_evaluate_gives_a_tidy_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "addition-vanilla", *SMOKE, "--lengths", "1,3-5,20", "--samples", "12"]
    rows = table(capsys, *arguments)
    assert [*rows.columns] == COLUMNS
    assert rows.length.tolist() == [1, 3, 4, 5, 20]
    assert rows.samples.tolist() == [9, 12, 12, 12, 12]
    assert set(rows.experiment) == {"addition-vanilla"}
    assert ((rows.ci_low <= rows.accuracy) & (rows.accuracy <= rows.ci_high)).all()
    assert "ci_high" in output(capsys, *arguments)


@pytest.mark.usefixtures("trained")
def test_compute_reads_lines_and_answers_each_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = ["1+2", "99999999999+1", "  7 + 8  ", "0+0", "123456+654321"]
    alone = [output(capsys, "compute", "addition-vanilla", problem, *SMOKE) for problem in problems]
    assert all(answer.count("\n") == 1 for answer in alone)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(problems) + "\n"))
    assert output(capsys, "compute", "addition-vanilla", "-", *SMOKE) == "".join(alone)


@pytest.mark.usefixtures("trained")
def test_compute_answers_more_lines_than_a_block(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+2\n" * 600))
    lines = output(capsys, "compute", "addition-vanilla", "-", *SMOKE).splitlines()
    assert len(lines) == 600
    assert len(set(lines)) == 1


@pytest.mark.usefixtures("trained")
def test_compute_of_no_lines_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert output(capsys, "compute", "addition-vanilla", "-", *SMOKE) == ""


@pytest.mark.usefixtures("trained")
def test_a_damaged_run_is_one_line_on_standard_error(
    capsys: pytest.CaptureFixture[str], trained_runs: Path, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = spec("addition-vanilla", "smoke").key(0)
    (folders.runs / name).mkdir(parents=True)
    (folders.runs / name / "run.json").write_text("{}")
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    capsys.readouterr()
    assert main(["evaluate", "addition-vanilla", *SMOKE]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "does not hold the run that its name says: move it away, and train the run again" in error


@pytest.mark.usefixtures("trained")
def test_another_recipe_is_another_run(
    capsys: pytest.CaptureFixture[str], folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that is set gives a run of its own, which every command finds by the same option."""
    change = ["--set", "training.steps=12"]
    assert main(["evaluate", "addition-vanilla", *SMOKE, *change]) == 2, "the run of the usual recipe is not served"
    assert "run `abc-nb train addition-vanilla --set training.steps=12 --profile smoke`" in capsys.readouterr().err
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    assert "12 steps" in output(capsys, "train", "addition-vanilla", *SMOKE, *change)
    assert len(output(capsys, "compute", "addition-vanilla", "1+2", *SMOKE, *change)) > 1


# ---- bad input --------------------------------------------------------------------------------------


BAD = {
    "no problem of the task": (["compute", "addition-vanilla", "12a+3"], "cannot read '12a+3': 'a' is no digit"),
    "no problem, over two lines": (["compute", "addition-vanilla", "1\n2+3"], "cannot read '1\\n2+3'"),
    "unknown experiment": (["train", "addition-vanila"], "did you mean addition-vanilla"),
    "unknown experiment to evaluate": (["evaluate", "nothing"], "unknown experiment 'nothing'"),
    "length zero": (
        ["evaluate", "addition-vanilla", "--lengths", "0"],
        "a length is a whole number from 1",
    ),
    "lengths that are none": (["evaluate", "addition-vanilla", "--lengths", "six"], "cannot read 'six'"),
    "a range without end": (["evaluate", "addition-vanilla", "--lengths", "1-9999999999"], "9,999,999,999 numbers"),
    "more seeds than there is time for": (["sweep", "addition-*", "--seeds", "0-10000"], "10,001 numbers, give at"),
    "an empty range": (["evaluate", "addition-vanilla", "--lengths", "6-3"], "cannot read '6-3'"),
    "no samples": (
        ["evaluate", "addition-vanilla", "--samples", "0"],
        "a sample is a whole number from 1",
    ),
    "samples beyond memory": (
        ["evaluate", "addition-vanilla", "--samples", "1" + 21 * "0"],
        "number from 1 to 1,000,000",
    ),
    "a length beyond patience": (
        ["evaluate", "addition-vanilla", "--lengths", "2000000"],
        "a length is a whole number",
    ),
    "base one": (["train", "addition-vanilla", "--base", "1"], "base 1 is not supported: choose a base from 2 to 16"),
    "base seventeen": (["train", "addition-vanilla", "--base", "17"], "base 17 is not supported"),
    "base ten in words": (["train", "addition-vanilla", "--base", "ten"], "--base"),
    "a negative seed": (["train", "addition-vanilla", "--profile", "smoke", "--seed", "-1"], "seed"),
    "an enormous seed": (["train", "addition-vanilla", "--profile", "smoke", "--seed", "9" * 30], "seed"),
    "a field that is not there": (["train", "addition-vanilla", "--set", "training.step=9"], "one of steps, batch"),
    "a part that is not there": (["train", "addition-vanilla", "--set", "parent.start=new"], "has no part 'parent'"),
    "a value of another type": (
        ["train", "addition-vanilla", "--set", "training.steps=1.5"],
        "cannot set steps",
    ),
    "wrong profile": (["train", "addition-vanilla", "--profile", "huge"], "choose one of smoke, quick, paper"),
    "not trained, evaluate": (
        ["evaluate", "addition-vanilla"],
        "is not trained yet: run `abc-nb train addition-vanilla",
    ),
    "not trained, compute": (["compute", "addition-vanilla", "1+2"], "is not trained yet"),
    "not trained, ship": (["ship", "addition-vanilla"], "was not made here: there is nothing new to ship"),
    "unknown command": (["fly"], "fly"),
    "unknown option": (["list", "--colour"], "--colour"),
    "no command": ([], "COMMAND"),
    "no expression": (["compute", "addition-vanilla"], "EXPR"),
    "a sign in front": (["compute", "addition-vanilla", "-5+3"], "cannot read '-5+3': '-' is no digit"),
    "a pattern without a match": (["sweep", "division-*"], "no experiment matches 'division-*'"),
    "a range that is empty": (["sweep", "addition-*", "--seeds", "0,4-2"], "cannot read '0,4-2'"),
    "a range of ranges": (["sweep", "addition-*", "--seeds", "1-2-3"], "cannot read '1-2-3'"),
    "a seed too large": (["reproduce", "--seeds", "5000000000"], "a seed is a whole number from 0 to"),
    "seeds that are none": (["sweep", "addition-*", "--seeds", "a"], "cannot read 'a'"),
    "an unknown notebook": (["notebooks", "99_nothing"], "99_nothing"),
}


def assert_one_sentence(capsys: pytest.CaptureFixture[str], status: int, sentence: str) -> None:
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.endswith("\n")
    (line,) = err.splitlines()
    assert line.startswith("abc-nb: ")
    assert sentence in line


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")], ids=repr
)
def test_too_little_memory_is_one_sentence(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("abc_nb.commands.evaluate", fails)
    assert_one_sentence(capsys, main(["evaluate", "addition-vanilla"]), "there is not enough memory for this")
    monkeypatch.setattr("abc_nb.commands.evaluate", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["evaluate", "addition-vanilla"])


@pytest.mark.parametrize(
    ("command", "said"), [("train", "goes on from the last checkpoint"), ("list", "abc-nb: stopped\n")]
)
def test_only_what_trains_goes_on_after_an_interruption(
    command: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"abc_nb.commands.{command.replace('list', 'list_')}", interrupted)
    assert main([command, *(["addition-vanilla"] if command == "train" else [])]) == 130
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_and_status_two(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], folders: Folders
) -> None:
    capsys.readouterr()
    assert_one_sentence(capsys, main(arguments), sentence)


def test_the_advice_of_an_untrained_model_names_the_profile_and_base_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], folders: Folders
) -> None:
    status = main(["evaluate", "addition-vanilla", *SMOKE, "--base", "7", "--seed", "3"])
    assert_one_sentence(capsys, status, "`abc-nb train addition-vanilla-base7 --profile smoke --seed 3`")


LINES = st.sampled_from([b"1+2", b"4+5", b"123456789+1", b"", b"  ", b"12a+3", b"+", b"\xff+3", b"0+0="])


@pytest.mark.usefixtures("trained")
@given(lines=st.lists(LINES, max_size=9), block=st.integers(1, 4), mark=st.sampled_from([b"", b"\xef\xbb\xbf"]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_gets_one_line_and_those_without_an_answer_are_named(
    lines: list[bytes], block: int, mark: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = abc_nb.load("addition-vanilla", profile="smoke")
    good = {line for line in lines if re.fullmatch(rb"[0-9]+\+[0-9]+=?", line)}
    expected = {line: abc_nb.answer(alone.spec.name, line.decode(), profile="smoke") for line in good}
    refused = [number for number, line in enumerate(lines, 1) if line.strip() and line not in good]
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commands, "BLOCK", block)
        text = mark + b"".join(line + b"\n" for line in lines)
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="ascii"))
        assert main(["compute", "addition-vanilla", "-", *SMOKE]) == (2 if refused else 0)
    out, err = capsys.readouterr()
    assert out.split("\n") == [expected.get(line, "") for line in lines] + [""]
    assert re.findall(r"^abc-nb: line (\d+): cannot read '", err, re.MULTILINE) == [*map(str, refused)]


@pytest.mark.usefixtures("trained")
def test_a_problem_that_the_model_refuses_leaves_the_others_their_answers(
    capsys: pytest.CaptureFixture[str], folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    few = ["--set", 'model.position={"type": "Learned", "longest": 30}', "--set", "training.steps=4"]
    assert main(["train", "addition-vanilla", *SMOKE, *few]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"1+2\n{'1' * 60}+1\n4+5\n"))
    capsys.readouterr()
    assert main(["compute", "addition-vanilla", "-", *SMOKE, *few]) == 2
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()] == [True, False, True]
    assert re.fullmatch(r"abc-nb: line 2: \d+ positions are too many: [^\n]*\n", err)


def without_encoding(path: Path) -> list[str]:
    """The calls of a module that open a text file in the encoding of the machine."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = {call: ast.unparse(call.func) for call in calls if "encoding" not in {word.arg for word in call.keywords}}
    opening = re.compile(r"(?!os\.|self\.)(.*\.(open|read_text|write_text)|open)")  # `self.open` is no file's
    return [f"{path.name}:{call.lineno}" for call, name in named.items() if opening.fullmatch(name)]


def test_every_text_file_is_opened_as_utf_8() -> None:
    assert [call for path in paths.PACKAGE.rglob("*.py") for call in without_encoding(path)] == []


@pytest.mark.slow
def test_an_ascii_locale_stops_no_command(tmp_path: Path) -> None:
    """In the C locale, where files and standard output are ASCII if a program does not say otherwise."""
    places = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "ABC_NB_FIGURES": str(tmp_path)}
    shutil.copytree(paths.figures(), tmp_path, dirs_exist_ok=True)
    for words in (["list", "--all"], ["report"], ["compute", "addition-abc", "12*3"]):
        command = [sys.executable, "-m", "abc_nb", *words]
        done = subprocess.run(command, capture_output=True, cwd=paths.ROOT, env={**os.environ, **places}, check=False)
        assert done.returncode == (2 if "compute" in words else 0), done.stderr.decode()
    assert b"is no digit" in done.stderr
    assert not (tmp_path / "REPORT.md").read_text(encoding="utf-8").isascii()


def regular_file(folder: Path) -> Path:
    folder.write_text("not a folder")
    return folder


def inside_a_regular_file(folder: Path) -> Path:
    return regular_file(folder) / "runs"


@pytest.mark.parametrize("place", [regular_file, inside_a_regular_file])
def test_a_runs_folder_that_cannot_be_written_is_one_sentence(
    place: Callable[[Path], Path],
    capsys: pytest.CaptureFixture[str],
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(place(folders.runs)))
    capsys.readouterr()
    assert_one_sentence(capsys, main(["train", "addition-vanilla", *SMOKE]), "ABC_NB_RUNS")
    assert folders.runs.read_text() == "not a folder"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m abc_nb list | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=paths.ROOT)
    assert done.stderr == ""
    heading, status = done.stdout.splitlines()
    assert heading.split()[0] == "experiment"
    assert status in ("0", "141"), "141 as for any program whose reader has gone, 0 if all was written before"


def test_a_seed_that_is_given_twice_counts_once() -> None:
    assert cli.numbers("seed")("1,0,0-2,1") == [1, 0, 2]
