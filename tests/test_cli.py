"""The command line: what it prints, and that bad input is one sentence on standard error and status 2."""

import io
import os
import re
import shlex
import subprocess
import sys

import pandas as pd
import pytest
from conftest import Folders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import abc_nb
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.runs.store import Run
from abc_nb.specs.names import every_name
from abc_nb.training.evaluation import COLUMNS

SMOKE = ["--profile", "smoke"]
COMMANDS = ["list", "train", "evaluate", "compute", "sweep", "notebooks", "ship"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def trained(vanilla: Run, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(vanilla.folder.parent))


def output(capsys: Capture, *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


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


def test_list_names_every_experiment(capsys: Capture, folders: Folders) -> None:
    head, *listed = output(capsys, "list").splitlines()
    assert [line.split()[0] for line in listed] == [*map(str, every_name())]
    assert head.split() == ["experiment", "task", "model", "regime", "seeds_with_results", "seeds_with_weights"]


@pytest.mark.usefixtures("trained")
def test_evaluate_gives_a_tidy_table(capsys: Capture) -> None:
    said = output(capsys, "evaluate", "addition-vanilla", *SMOKE, "--lengths", "1,3-5,20", "--samples", "12")
    rows = pd.read_csv(io.StringIO(said), sep=r"\s+")
    assert [*rows.columns] == COLUMNS
    assert rows.length.tolist() == [1, 3, 4, 5, 20]
    assert rows.samples.tolist() == [9, 12, 12, 12, 12]
    assert set(rows.experiment) == {"addition-vanilla"}
    assert ((rows.ci_low <= rows.accuracy) & (rows.accuracy <= rows.ci_high)).all()


@pytest.mark.usefixtures("trained")
def test_another_recipe_is_another_run(capsys: Capture, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is set gives a run of its own, which every command finds by the same option."""
    change = ["--set", "training.steps=12"]
    assert main(["evaluate", "addition-vanilla", *SMOKE, *change]) == 2, "the run of the usual recipe is not served"
    assert "run `abc-nb train addition-vanilla --set training.steps=12 --profile smoke`" in capsys.readouterr().err
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs))
    text = output(capsys, "train", "addition-vanilla", *SMOKE, *change)
    assert f"12 steps in 0 s, kept in {folders.runs}" in re.sub(r"in \d+ s", "in 0 s", text) and "accuracy" in text
    assert len(output(capsys, "compute", "addition-vanilla", "1+2", *SMOKE, *change)) > 1


BAD = {  # commands, and what is said
    "compute addition-vanilla 12a+3": "cannot read '12a+3': 'a' is no digit",
    "compute addition-vanilla '1\n2+3'": "cannot read '1\\n2+3'",
    "compute addition-vanilla -5+3": "cannot read '-5+3': '-' is no digit",
    "compute addition-vanilla 1+2": "is not trained yet: run `abc-nb train addition-vanilla",
    "train addition-vanila": "did you mean addition-vanilla",
    "train addition-vanilla --profile huge": "choose one of smoke, quick, paper",
    "train addition-vanilla --set training.step=9": "one of steps, batch",
    "evaluate addition-vanilla --lengths 0": "a length is a whole number from 1",
    "evaluate addition-vanilla --lengths 1-100000": "give at most 10,000 whole numbers, as in",
    f"evaluate addition-vanilla --samples 1{'0' * 21}": "number from 1 to 1,000,000",
    "evaluate addition-vanilla-base7 --seed 3 --profile smoke": (
        "`abc-nb train addition-vanilla-base7 --profile smoke --seed 3`"
    ),
    "sweep addition-* --seeds 0,4-2": "cannot read '0,4-2'",
    "sweep division-*": "no experiment matches 'division-*'",
    "ship addition-vanilla": "was not made here: there is nothing new to ship",
    "notebooks 99_nothing": "99_nothing",
    "fly": "fly",
    "": "COMMAND",
}


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


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")], ids=repr
)
def test_too_little_memory_is_one_sentence(error: Exception, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("abc_nb.commands.evaluate", fails)
    assert_one_sentence(capsys, main(["evaluate", "addition-vanilla"]), "there is not enough memory for this")


def test_an_interruption_is_a_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("abc_nb.commands.train", interrupted)
    assert main(["train", "addition-vanilla"]) == 130
    assert capsys.readouterr().err.startswith("abc-nb: stopped; the same command goes on from the last checkpoint")


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
