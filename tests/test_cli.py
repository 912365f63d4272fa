"""The command line: what it prints, and that bad input is one sentence on standard error and status 2."""

import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from conftest import Folders
from helpers import assert_same_result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

import abc_nb
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.show.notebooks import refresh
from abc_nb.specs.names import every_name

SMOKE = ["--profile", "smoke"]
COMMANDS = ["list", "train", "evaluate", "compute", "certify", "sweep", "notebooks", "ship"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def trained(vanilla: Run, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain model of Addition, of a few steps, has been made here."""
    monkeypatch.setenv("ABC_NB_RUNS", str(vanilla.folder.parent))


def output(capsys: Capture, *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def columns(said: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(said), sep=r"\s+")


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS)], ids=" ".join)
def test_help_names_every_command_and_each_explains_itself(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["usage: abc-nb", *words]))
    assert words or all(re.search(rf"^    {command}\b", text, re.MULTILINE) for command in COMMANDS)


@pytest.mark.slow
def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, abc_nb, abc_nb.cli as c; c.build_parser().format_help(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=paths.ROOT)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_list_names_every_experiment_that_a_profile_has(profile: str, capsys: Capture, folders: Folders) -> None:
    head, *listed = output(capsys, "list", "--profile", profile).splitlines()
    names = [str(name) for name in every_name() if profile == "quick" or name.task != "language"]
    assert [line.split()[0] for line in listed] == names
    assert head.split() == ["experiment", "seeds", "with", "weights", "model"]


@pytest.mark.parametrize("options", [[], ["--weights"]])
def test_shipped_runs_come_with_weights_only_if_asked_and_list_says_which_have_them(
    options: list[str], trained: None, vanilla: Run, folders: Folders, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = output(capsys, "ship", "addition-vanilla", *SMOKE, *options)
    assert said.strip() == f"{vanilla.key} is in {folders.shipped}"
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    shipped = store.find(vanilla.spec, 0)
    assert shipped is not None and shipped.shipped
    if options:
        assert_same_result(shipped, vanilla)
    else:
        with pytest.raises(InputError, match="was shipped without its weights: run `abc-nb train addition-vanilla"):
            shipped.model()
    changed = replace(vanilla, spec=replace(vanilla.spec, changes=("training.steps=7",)))
    assert store.ship(changed, bool(options)) == folders.shipped
    assert len([*folders.shipped.glob("weights/*")]) == 2 * bool(options), "a changed one has a file of its own"
    _, line = output(capsys, "list", "addition-vanilla", *SMOKE).splitlines()
    assert line.partition("Addition")[0].split()[1:] == ["0"] * (1 + bool(options))


def test_evaluate_gives_the_share_that_is_right_with_its_interval(trained: None, capsys: Capture) -> None:
    rows = columns(output(capsys, "evaluate", "addition-vanilla", *SMOKE, "--lengths", "1,3-5,20", "--samples", "12"))
    assert rows.length.tolist() == [1, 3, 4, 5, 20]
    assert rows.samples.tolist() == [9, 12, 12, 12, 12]
    assert rows.accuracy.tolist() == pytest.approx((rows.correct / rows.samples).tolist())
    assert ((rows.ci_low <= rows.accuracy) & (rows.accuracy <= rows.ci_high)).all()


def test_another_recipe_is_another_run(
    trained: None, capsys: Capture, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that is set gives a run of its own, which every command finds by the same option."""
    change = ["--set", "training.steps=12"]
    assert main(["evaluate", "addition-vanilla", *SMOKE, *change]) == 2, "the run of the usual recipe is not served"
    assert "run `abc-nb train addition-vanilla --set training.steps=12 --profile smoke`" in capsys.readouterr().err
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    text = output(capsys, "train", "addition-vanilla", *SMOKE, *change)
    assert re.search(rf"12 steps in \d+ s, kept in {folders.runs}", text) and "accuracy" in text
    assert len(output(capsys, "compute", "addition-vanilla", "1+2", *SMOKE, *change)) > 1


def test_a_sweep_makes_what_is_missing(folders: Folders, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # of cores
    for made in (2, 0):
        first, *rest = output(capsys, "sweep", "addition-vanilla", "--seeds", "0-1", *SMOKE).splitlines()
        assert first == f"runs asked for: 2, to be made: {made}"
        assert [line.partition(": ")[0] for line in rest] == (["1 of 2", "2 of 2", "made"] if made else [])


def test_a_notebook_is_run_in_place_and_its_figures_go_where_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    parameters = new_code_cell("value = 1", metadata={"tags": ["parameters"]})
    prints = new_code_cell("import os; print(value, os.environ['ABC_NB_FIGURES'])")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    path = tmp_path / "01_one.ipynb"
    nbformat.write(new_notebook(cells=[parameters, prints], metadata=kernel), path)
    refresh(["01_one"], tmp_path)
    done = nbformat.read(path, 4)
    assert done.cells[-1].outputs[0].text.strip() == f"1 {tmp_path / 'figures'}"
    assert "papermill" not in path.read_text() and "version" not in done.metadata.get("language_info", {})


# ---- bad input, and options of each kind of model


BAD = {  # commands, and what is said
    "compute addition-vanilla 12a+3": "cannot read '12a+3': 'a' is no digit",
    "compute addition-vanilla '1\n2+3'": "cannot read '1\\n2+3'",
    "compute addition-vanilla -5+3": "cannot read '-5+3': '-' is no digit",
    "compute addition-vanilla 1+2": "is not trained yet: run `abc-nb train addition-vanilla",
    "compute language-abs 1+2+3=": "cannot read",
    "train addition-vanila": "did you mean addition-vanilla",
    "train addition-vanilla --profile huge": "choose one of smoke, quick, paper",
    "train addition-vanilla --set training.step=9": "one of steps, batch",
    "evaluate addition-vanilla --lengths 0": "a length is a whole number from 1",
    "evaluate addition-vanilla --lengths 1-100000": "give at most 10,000 whole numbers, as in",
    f"evaluate addition-vanilla --samples 1{'0' * 21}": "number from 1 to 1,000,000",
    "evaluate addition-vanilla-base7 --seed 3 --profile smoke": (
        "`abc-nb train addition-vanilla-base7 --profile smoke --seed 3`"
    ),
    "sweep addition-* --seeds 0,4-2": "cannot read '4-2': give the smaller number first",
    "sweep addition-* --seeds 3-": "'' is not possible: a seed is a whole number",
    "list language --profile smoke": "has no profile 'smoke'",
    "sweep language-* --profile smoke": "has no profile 'smoke'",
    "sweep division-*": "no experiment matches 'division-*'",
    "ship addition-vanilla": "was not made here: there is nothing new to ship",
    "notebooks 99_nothing": "99_nothing",
    "fly": "fly",
    "": "COMMAND",
}
REFUSED = {  # options that a kind of model cannot obey, by what is said
    "--set no.such=field": "cannot set 'no.such=field'",
    "--set training.step=9": "cannot set 'training.step=9'",
    "--set training.steps=-9": "steps=-9",
    "--set tests=[[6,10]]": "cannot set 'tests=[[6,10]]'",
    "--set training.steps=9": "is not trained yet",
    "--profile nosuch": "profile 'nosuch'",
    "--seed 77": "is not trained yet",
}
BY_KIND = {
    "addition-vanilla": {f"--set {field}": f"cannot set '{field}'" for field in ("accept=0.5", "practice=3", "rank=2")},
    "addition-abc-unpractised": {"--set practice=3": "cannot set 'practice=3'"},
    "language-text": {"--set practice.steps=3": "cannot set 'practice.steps=3'"},
    "language-abs": {"--profile smoke": "no profile 'smoke'", "--set parent.training.steps=9": "cannot set"},
}
PROBLEMS = {"addition": "1+2", "language": "1+2="}


def assert_one_sentence(capsys: Capture, status: int, sentence: str) -> None:
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.endswith("\n")
    (line,) = err.splitlines()
    assert line.startswith("abc-nb: ")
    assert sentence in line


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence_and_status_two(command: str, capsys: Capture, folders: Folders) -> None:
    capsys.readouterr()
    assert_one_sentence(capsys, main(shlex.split(command)), BAD[command])


@pytest.mark.parametrize("command", ["train", "evaluate", "compute", "certify", "ship"])
@pytest.mark.parametrize("name", BY_KIND)
def test_an_option_that_cannot_be_obeyed_is_refused_by_every_command_for_every_kind_of_model(
    command: str, name: str, capsys: Capture
) -> None:
    """With the shipped results, in which each of these models is there without the option."""
    for option, sentence in (REFUSED | BY_KIND[name]).items():
        if command != "train" or "not trained" not in sentence:
            problem = [PROBLEMS[name.partition("-")[0]]] * (command == "compute")
            capsys.readouterr()
            status = main([command, name, *problem, *option.split()])
            assert_one_sentence(
                capsys, status, "was not made here" if command == "ship" and "not trained" in sentence else sentence
            )


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("compute addition-abc 1+2 --text", "Addition shows no table: take N x N"),
        ("ship language-abs --weights", "was not made here"),
    ],
)
def test_of_a_shipped_model_no_table_is_shown_and_nothing_new_is_shipped(
    command: str, sentence: str, capsys: Capture
) -> None:
    assert_one_sentence(capsys, main(command.split()), sentence)


def test_a_language_model_is_evaluated_at_the_lengths_asked_for(capsys: Capture) -> None:
    rows = columns(output(capsys, "evaluate", "language-abs", "--lengths", "2,9", "--samples", "3"))
    assert [*rows.columns] == ["task", "length", "samples", "correct", "accuracy", "ci_low", "ci_high"]
    assert rows.length.tolist() == [2, 9] * 4 and set(rows.samples) == {3} and set(rows.accuracy) == {1}
    kept = abc_nb.load("language-abs").evaluation()
    assert {*kept.task} == {*rows.task} and kept.accuracy.min() > 0.9


def test_an_interruption_and_too_little_memory_are_a_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = "there is not enough memory for this"
    raised = {MemoryError(): memory, RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"): memory}
    for error, sentence in (raised | {KeyboardInterrupt(): "stopped; the same command goes on"}).items():

        def fails(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("abc_nb.commands.train", fails)
        assert main(["train", "addition-vanilla"]) == (130 if isinstance(error, KeyboardInterrupt) else 2)
        assert capsys.readouterr().err.startswith(f"abc-nb: {sentence}")


@pytest.mark.parametrize("inside", ["", "runs"])
def test_a_runs_folder_that_cannot_be_written_is_one_sentence(
    inside: str, capsys: Capture, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.runs.write_text("not a folder")
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs / inside))
    capsys.readouterr()
    assert_one_sentence(capsys, main(["train", "addition-vanilla", *SMOKE]), "ABC_NB_RUNS")
    assert folders.runs.read_text() == "not a folder"


LINES = st.sampled_from([b"1+2", b"4+5", b"123456789+1", b"", b"  ", b"12a+3", b"+", b"\xff+3"])


@pytest.mark.usefixtures("trained")
@given(lines=st.lists(LINES, max_size=9), mark=st.sampled_from([b"", b"\xef\xbb\xbf"]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_gets_one_line_and_those_without_an_answer_are_named(
    lines: list[bytes], mark: bytes, capsys: Capture
) -> None:
    alone = abc_nb.load("addition-vanilla", profile="smoke")
    good = {line for line in lines if re.fullmatch(rb"[0-9]+\+[0-9]+", line)}
    expected = {line: abc_nb.answer(alone.spec.name, line.decode(), profile="smoke") for line in good}
    refused = [number for number, line in enumerate(lines, 1) if line.strip() and line not in good]
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched:
        text = mark + b"".join(line + b"\n" for line in lines)
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="ascii"))
        assert main(["compute", "addition-vanilla", "-", *SMOKE]) == (2 if refused else 0)
    out, err = capsys.readouterr()
    assert out.split("\n") == [expected.get(line, "") for line in lines] + [""]
    assert re.findall(r"^abc-nb: line (\d+): cannot read '", err, re.MULTILINE) == [*map(str, refused)]


@pytest.mark.slow
def test_neither_an_ascii_locale_nor_a_reader_that_has_seen_enough_is_an_error() -> None:
    """In the C locale, where standard output is ASCII if a program does not say otherwise."""
    places = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from abc_nb.cli import main; print(main(['compute', 'addition-abc', '12\\xd73']), '\\xd7', flush=True); "
    command = f"{sys.executable} -c \"{code}exit(main(['list']))\" | head -2; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, **places}
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=paths.ROOT, env=environment, check=True)
    assert done.stderr.count(b"\n") == 1 and rb"'\xd7' is no digit" in done.stderr
    escaped, heading, status = done.stdout.splitlines()
    assert escaped == rb"2 \xd7" and heading.split()[0] == b"experiment"
    assert status in (b"0", b"141"), "141 as for any program whose reader has gone, 0 if all was written before"
