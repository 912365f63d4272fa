"""Files of one's own problems: every format says the same, every line has its row, every answer is the model's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import torch
from helpers import TINY, half_trained
from hypothesis import given, settings
from hypothesis import strategies as st

import abc_nb
from abc_nb.cli import main
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.files import Reader, Record, format_of
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training import from_file
from abc_nb.training.answers import attempts
from abc_nb.training.evaluation import exact_match

ADDITION = Task("addition")
NUMBERS = st.integers(0, 10**30)
Rows = list[tuple[int, int]]


def records(folder: Path, text: str, task: Task = ADDITION, name: str = "p.txt", **options: object) -> list[Record]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [*Reader(task, format_of(path), **options).records(path)]  # type: ignore[arg-type]


# ---- formats ----------------------------------------------------------------------------------------


def table(rows: Rows, header: str, dialect: str, columns: Callable[[int, int], list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, dialect)
    writer.writerows([header.split(), *(columns(*row) for row in rows)] if header else [columns(*row) for row in rows])
    return text.getvalue()


FORMATS: dict[str, tuple[str, Callable[[Rows], str], dict[str, object]]] = {
    "lines": ("p.txt", lambda rows: "".join(f"{a}+{b}={a + b}\n" for a, b in rows), {}),
    "lines with spaces": ("p", lambda rows: "".join(f"  {a} + {b} = {a + b} \r\n" for a, b in rows), {}),
    "a mark in front": ("p.txt", lambda rows: "\ufeff" + "\n\n".join(f"{a}+{b}={a + b}" for a, b in rows), {}),
    "usual names": (
        "p.csv",
        lambda rows: table(rows, "id Answer PROBLEM", "excel", lambda a, b: [7, a + b, f"{a}+{b}"]),
        {},
    ),
    "operands in columns": ("p.csv", lambda rows: table(rows, "a b c", "excel", lambda a, b: [a, b, a + b]), {}),
    "other names": (
        "p.csv",
        lambda rows: table(rows, "sum first second answer", "excel", lambda a, b: [a + b, a, b, 0]),
        {"problem": ["first", "second"], "answer": "sum"},
    ),
    "two columns": ("p.tsv", lambda rows: table(rows, "", "excel-tab", lambda a, b: [f"{a}+{b}", a + b]), {}),
    "three columns": ("p.tsv", lambda rows: table(rows, "", "excel-tab", lambda a, b: [a, b, a + b]), {}),
    "the answer first": (
        "p.tsv",
        lambda rows: table(rows, "", "excel-tab", lambda a, b: [a + b, f"{a}+{b}"]),
        {"problem": ["2"], "answer": "1"},
    ),
    "one column": ("p.csv", lambda rows: table(rows, "", "excel", lambda a, b: [f"{a}+{b}={a + b}"]), {}),
    "JSON": (
        "p.jsonl",
        lambda rows: "".join(json.dumps({"id": 1, "input": f"{a}+{b}", "target": a + b}) + "\n" for a, b in rows),
        {},
    ),
    "JSON, named": (
        "p.jsonl",
        lambda rows: "".join(json.dumps({"x": a, "y": b, "z": str(a + b)}) + "\n" for a, b in rows),
        {"problem": ["x", "y"], "answer": "z"},
    ),
}


@pytest.mark.parametrize("form", FORMATS)
@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6))
def test_every_format_says_the_same(form: str, tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> None:
    name, write, options = FORMATS[form]
    found = records(tmp_path_factory.getbasetemp(), write(rows), name=name, **options)
    assert [record.reason for record in found] == [""] * len(rows)
    said = [(ADDITION.right_answer(record.problem), record.answer) for record in found]
    assert said == [(str(a + b), str(a + b)) for a, b in rows]


def test_a_line_that_cannot_be_read_spoils_no_other(tmp_path: Path) -> None:
    found = records(tmp_path, 'problem,answer\n1+2,3\n"1+2,3\n4+5\n\n6+7,13\n', name="p.csv")
    assert [(record.line, record.answer) for record in found if not record.reason] == [(2, "3"), (6, "13")]
    assert {record.line: record.reason for record in found if record.reason} == {
        3: "unexpected end of data",
        4: "columns in it: 1, named: 2",
    }
    found = records(tmp_path, '{"problem": "1+2", "answer": 3}\n[1]\n{"question": "1+2"}\n{"sum": 3}\n', name="p.jsonl")
    assert [(record.line, record.answer, record.reason) for record in found] == [
        (1, "3", ""),
        (2, "", "it is no object in JSON"),
        (3, "", ""),
        (4, "", "which of the columns sum has the problem is not known: name it"),
    ]
    (tmp_path / "p.txt").write_bytes(b"1+2=3\n\xff\xfe=4\n5+6=11\n")
    found = [*Reader(ADDITION, "lines").records(tmp_path / "p.txt")]
    assert [record.problem for record in found] == ["1+2", "\ufffd\ufffd", "5+6"]


def test_a_file_or_a_column_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nothing\.txt"):
        [*Reader(ADDITION, "lines").records(tmp_path / "nothing.txt")]
    with pytest.raises(InputError, match="the table has no column 'sums': it has a, b, sum"):
        records(tmp_path, "a,b,sum\n1,2,3\n", name="p.csv", answer="sums")
    with pytest.raises(InputError, match="no format of a file: choose one of lines, csv, tsv, jsonl"):
        format_of(tmp_path / "p.txt", "xml")


@pytest.mark.parametrize(
    ("name", "line", "problem", "expected", "lengths"),
    [
        ("addition", "12 + 34 = 46", "12 + 34", "46", (2, 2)),
        ("n-by-1", "12 * 3 = 36", "12 * 3", "36", (2, 1)),
        ("n-by-n", "12 × 345 = 4140", "12 × 345", "4140", (2, 3)),
        ("subtraction", "46 - 12 = 034", "46 - 12", "34", (2, 2)),
        ("parity", "1011 = odd", "1011", "1", (4,)),
        ("parity", "1 0 1 = 0", "1 0 1", "0", (3,)),
        ("listops-sm", "[SM 1 2 9 ] = 2", "[SM 1 2 9 ]", "2", (3,)),
        ("listops-max", "[MAX 1 2 9 ] = 9", "[MAX 1 2 9 ]", "9", (3,)),
        ("listops-nested", "[SUM_MOD 1 [MIN 2 9 4 ] 3 ] = 6", "[SUM_MOD 1 [MIN 2 9 4 ] 3 ]", "6", (5,)),
        ("sorting", "[3, 9, 4] = [3, 4, 9]", "[3, 9, 4]", "3 4 9", (3,)),
        ("sum-of-many", "1 + 22 + 333 = 356", "1 + 22 + 333", "356", (3, 3)),
    ],
)
def test_notations_are_read_as_people_write_them(
    name: str, line: str, problem: str, expected: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    task = Task(name)
    (record,) = records(tmp_path, line, task)
    row = from_file.record_row(task, record)
    assert (row["problem"], row["expected"], row["reason"]) == (problem, expected, "")
    assert task.right_answer(problem) == expected
    assert tuple(row[column] for column in from_file.length_columns(task)) == lengths


# ---- answers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=get_args(Arrangement))
def half(request: pytest.FixtureRequest) -> tuple[Transformer, Sampler, list[str]]:
    """A model that knows a part of some problems by heart, and these problems; in every order of the digits.

    What it knows are the digits as they stand in training: read or written in another order, all would be wrong.
    """
    sampler = Sampler(ADDITION, request.param)
    batch = sampler.training_batch(0, 0, 60)
    model = half_trained(TINY, batch, len(ADDITION.vocabulary))
    operands = ADDITION.operands(batch.source.numpy(), batch.layout)
    problems = [ADDITION.typed([digits[row : row + 1] for digits in operands]) for row in range(60)]
    frame = from_file.frame_of(model, sampler, [Record(row, problem) for row, problem in enumerate(problems)])
    short = (frame[["length_1", "length_2"]].max(axis=1) < ADDITION.training_width).tolist()  # others are asked wider
    assert frame.correct[short].tolist() == exact_match(model, batch)[torch.tensor(short)].tolist()
    return model, sampler, problems


@settings(max_examples=20)
@given(data=st.data())
def test_answers_are_those_of_greedy_decoding_whatever_the_file_says(
    half: tuple[Transformer, Sampler, list[str]], data: st.DataObject
) -> None:
    """`correct` is about the file's answer, also where that is wrong; without one it is about the right answer."""
    model, sampler, known = half
    more = st.tuples(NUMBERS, NUMBERS).map(lambda pair: f"{pair[0]}+{pair[1]}")
    problems = data.draw(st.lists(st.sampled_from(known) | more, min_size=1, max_size=8))
    said = attempts(model, sampler, problems)
    right = [str(sum(map(int, problem.split("+")))) for problem in problems]
    given_ = [
        data.draw(st.sampled_from(["", sure, str(answer).replace("?", ""), "0" + sure]))
        for sure, answer in zip(right, said, strict=True)
    ]
    lines = [Record(3 * number, *pair) for number, pair in enumerate(zip(problems, given_, strict=True))]
    frame = from_file.frame_of(model, sampler, lines)
    assert frame.answer.tolist() == said and frame.right.tolist() == right
    assert frame.line.tolist() == [record.line for record in lines]
    expected = [answer.lstrip("0") or "0" if answer else sure for answer, sure in zip(given_, right, strict=True)]
    assert frame.expected.tolist() == expected
    assert frame.correct.tolist() == [one == other for one, other in zip(said, expected, strict=True)]
    lengths = [[len(number) for number in problem.split("+")] for problem in problems]
    assert frame[["length_1", "length_2"]].values.tolist() == lengths


FILE = "1+2=3\n12+34=47\n\n9z+1=10\n999999+1=1000000\n5+5\n1+2=x\n123456789012+1=123456789013\n7+1=8\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(from_file, "WINDOW", 3)
    (tmp_path / "own.txt").write_text(FILE, encoding="utf-8")
    return tmp_path / "own.txt"


def test_every_line_but_empty_ones_has_its_row(own: Path) -> None:
    """Of a certified model, over several windows."""
    frame = abc_nb.evaluate_file("addition-abc", own)
    assert frame.line.tolist() == [1, 2, 4, 5, 6, 7, 8, 9]
    assert frame.index.tolist() == [*range(8)]
    assert frame.answer.tolist() == ["3", "46", "", "1000000", "10", "", "123456789013", "8"]
    assert frame.correct.tolist() == [True, False, pd.NA, True, True, pd.NA, True, True]
    assert frame.reason.str.startswith("cannot read").tolist() == [line in (4, 7) for line in frame.line]
    pd.testing.assert_frame_equal(frame, abc_nb.evaluate_file(abc_nb.load("addition-abc"), own))


def test_the_command_shows_lengths_mistakes_and_lines_without_an_answer(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, plot = own.with_name("rows.csv"), own.with_name("plot.png")
    assert main(["evaluate", "addition-abc", "--file", str(own), "--rows", str(rows), "--plot", str(plot)]) == 2
    out, err = capsys.readouterr()
    assert "5 of 6 answers are right; lines without an answer: 2" in out
    assert "lines whose own answer is not the right one: 1 (2)" in out
    assert "line 2: 12+34\n  expected 47\n  answer   46\n            ^\n" in out
    assert [line.split(": ")[1] for line in err.splitlines()] == ["line 4", "line 7"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    frame = abc_nb.evaluate_file("addition-abc", own)
    assert pd.read_csv(rows, dtype=str, keep_default_na=False).answer.tolist() == frame.answer.tolist()
    assert main(["evaluate", "addition-abc", "--file", str(own), "--csv"]) == 2
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table[["length_1", "length_2", "samples", "correct"]].values.tolist() == [
        [1, 1, 3, 3],
        [2, 2, 1, 0],
        [6, 1, 1, 1],
        [12, 1, 1, 1],
    ]
    assert ((table.ci_low <= table.accuracy) & (table.accuracy <= table.ci_high)).all()


def test_a_file_of_which_nothing_can_be_read_has_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.txt").write_text("x\n1+\n", encoding="utf-8")
    arguments = ["evaluate", "addition-abc", "--file", str(tmp_path / "own.txt")]
    assert main([*arguments, "--plot", str(tmp_path / "map.png")]) == 2
    out, err = capsys.readouterr()
    assert out == "0 of 0 answers are right; lines without an answer: 2\n" and err.count("\n") == 2
    assert main([*arguments, "--csv"]) == 2
    assert capsys.readouterr().out == "length_1,length_2,samples,correct,accuracy,ci_low,ci_high\n"


def test_a_task_of_one_length_has_one_row_of_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bits.tsv").write_text("bits\tparity\n1011\todd\n11\teven\n0\teven\n", encoding="utf-8")
    options = ["--problem", "bits", "--answer", "parity", "--plot", str(tmp_path / "map.png")]
    assert main(["evaluate", "parity-abc", "--file", str(tmp_path / "bits.tsv"), *options]) == 0
    assert "3 of 3 answers are right" in capsys.readouterr().out
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("answer", "expected", "place"), [("1000", "999", 0), ("579", "589", 1), ("1579", "579", 3), ("5?9", "579", 1)]
)
def test_the_first_wrong_place_is_counted_from_the_units(answer: str, expected: str, place: int) -> None:
    row = pd.Series({"line": 1, "problem": "1+2", "answer": answer, "expected": expected})
    *_, said, caret = from_file.marked(row).splitlines()
    assert len(said) - len(caret) == place


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--file", "nothing.txt"], "there is no file nothing.txt"),
        (["--plot", "x.png"], "--plot is about a file of problems: name it by --file"),
        (["--file", "x", "--lengths", "3"], "not allowed with argument"),
    ],
)
def test_bad_options_are_one_sentence(
    options: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "addition-abc", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err


def test_a_file_without_a_problem_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("problem,answer\n\n", encoding="utf-8")
    with pytest.raises(InputError, match="there is no problem in"):
        abc_nb.evaluate_file("addition-abc", tmp_path / "empty.csv")
