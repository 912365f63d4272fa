"""Files of problems, with answers or without: `12+34=46` a line, tables in CSV or TSV, a JSON object a line.

Each line of a file stands for itself, so that one which cannot be read spoils no other.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task, check_choice
from abc_nb.problems.typed import Unreadable

FORMATS = ("lines", "csv", "tsv", "jsonl")
PROBLEM = ("problem", "question", "input", "prompt", "expression", "source")  # names that columns have, unless told
OPERANDS = ("a", "b")  # of a problem whose operands stand in columns of their own
ANSWER = ("answer", "target", "output", "expected", "result", "label", "c")


class Record(NamedTuple):
    """A line of a file that is not empty."""

    line: int  # its number, from 1 on
    problem: str  # as it is written; the whole line where that could not be read
    answer: str = ""  # as it is written; empty where the file has none
    reason: str = ""  # why the line could not be read


@dataclass
class Reader:
    """Reads the lines of one file; columns are named, or numbered from 1 on where the file has no names."""

    task: Task
    format: str  # one of FORMATS
    problem: Sequence[str] = ()  # the column of the problem, or those of its operands
    answer: str = ""  # the column of the answer
    header: Sequence[str] = ()  # of a table, once its first line has been read
    started: bool = False

    def records(self, path: Path) -> Iterator[Record]:
        """The lines that are not empty; InputError if the file or one of the named columns is not there."""
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                text = line.rstrip("\n")
                try:
                    if text.strip() and not self.is_header(text):
                        yield Record(number, *self.parts(text))
                except Unreadable as reason:
                    yield Record(number, text.strip(), reason=str(reason))

    def is_header(self, text: str) -> bool:
        """Whether this is the first line of a table, and names its columns."""
        if self.started or self.format not in ("csv", "tsv"):
            return False
        self.started, cells = True, [cell.strip() for cell in self.cells(text)]
        numbered = all(name.isdecimal() for name in (*self.problem, self.answer or "0"))
        if (self.problem or self.answer) and not numbered:
            self.header = cells
            if missing := [name for name in (*self.problem, self.answer) if name and name not in cells]:
                raise InputError(f"the table has no column {missing[0]!r}: it has {', '.join(cells)}")
        elif not self.problem and chosen(cells, PROBLEM, OPERANDS):
            self.header = cells
        return bool(self.header)

    def cells(self, text: str) -> list[str]:
        """The cells of a table's line."""
        try:
            return next(csv.reader([text], "excel" if self.format == "csv" else "excel-tab", strict=True))
        except csv.Error as error:
            raise Unreadable(str(error)) from None

    def parts(self, text: str) -> tuple[str, str]:
        """The problem of a line, and its answer."""
        if self.format == "lines":
            return split(text)
        fields = self.fields(text)
        unnamed = self.format != "jsonl" and not self.header
        last = [*fields][-1] if unnamed and len(fields) > 1 else ""
        answer = self.answer or next(iter(chosen(fields, ANSWER)), last)
        columns = list(self.problem) or chosen(fields, PROBLEM, OPERANDS)
        if not columns and unnamed and len(fields) <= 3:
            columns = [name for name in fields if name != answer]
        if not columns:
            raise Unreadable(f"which of the columns {', '.join(fields)} has the problem is not known: name it")
        if missing := [name for name in (*columns, answer) if name and name not in fields]:
            raise Unreadable(f"it has no column {missing[0]!r}")
        sign = self.task.operator if self.task.operator in ("+", "-", "*") else " "
        problem = sign.join(written(fields[name]) for name in columns)
        return (problem, written(fields[answer])) if answer else split(problem)

    def fields(self, text: str) -> Mapping[str, Any]:
        """The cells of a line by the names of their columns, or by their numbers."""
        if self.format == "jsonl":
            return json_object(text)
        cells = self.cells(text)
        names = self.header or [str(number) for number in range(1, len(cells) + 1)]
        if len(names) != len(cells):
            raise Unreadable(f"columns in it: {len(cells)}, named: {len(names)}")
        return dict(zip(names, cells, strict=True))


def line_count(path: Path) -> int:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return sum(1 for _ in lines)


def split(text: str) -> tuple[str, str]:
    """Problem and answer on both sides of an equals sign."""
    problem, _, answer = text.partition("=")
    return problem.strip(), answer.strip()


def chosen(there: Sequence[str] | Mapping[str, Any], *kinds: Sequence[str]) -> list[str]:
    """The first column that is called as one of a kind is; of operands, all of them."""
    known = {name.strip().lower(): name for name in there}
    for kind in kinds:
        if found := [known[name] for name in kind if name in known]:
            return found if kind is OPERANDS else found[:1]
    return []


def json_object(text: str) -> Mapping[str, Any]:
    """A line of JSON; numbers stay as they are written, of any length."""
    try:
        found = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unreadable("it is no object in JSON")
    return found


def written(value: Any) -> str:
    """A field as text: the items of a list with spaces between them."""
    items = value if isinstance(value, list) else [value]
    return " ".join("" if item is None else str(item) for item in items).strip()


def format_of(path: Path, name: str | None = None) -> str:
    """The format of a file: the one that is named, or that of its ending; lines if that says nothing."""
    if name is not None:
        check_choice(name, "format of a file", FORMATS)
        return name
    return {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(path.suffix.lower(), "lines")
