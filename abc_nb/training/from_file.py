"""A model's answers to a file of problems: a row a line, and accuracy by the lengths of the operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.files import Reader, Record, format_of, line_count
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.answers import Problem, batches, checked_answers
from abc_nb.training.evaluation import wilson

SHOWN = 20  # wrong answers
TEXTS = ("problem", "expected", "answer", "right")
WINDOW = 4096  # lines whose problems are sorted by width: what is held at a time, in any file


def length_columns(task: Task) -> list[str]:
    """A column for each length that a problem has."""
    count = len(task.lengths_of(task.read(task.problem)))
    return ["length"] if count == 1 else [f"length_{number + 1}" for number in range(count)]


def evaluated(
    model: Transformer, sampler: Sampler, path: Path, format: str | None, problem: Sequence[str], answer: str
) -> Iterator[pd.DataFrame]:
    """The answers to some thousand lines of a file at a time, in its order (see `frame_of`), with a progress bar.

    InputError for a file without a problem.
    """
    lines = Reader(sampler.task, format_of(path, format), problem, answer).records(path)
    window = list(islice(lines, WINDOW))
    if not window:
        raise InputError(f"there is no problem in {path}")
    with tqdm(total=line_count(path), unit="line", disable=None) as bar:
        while window:
            yield frame_of(model, sampler, window)
            bar.update(window[-1].line - bar.n)
            window = list(islice(lines, WINDOW))


def frame_of(model: Transformer, sampler: Sampler, records: Sequence[Record]) -> pd.DataFrame:
    """A row for each line: `line`, `problem`, `expected`, `answer`, `right`, `correct`, lengths and `reason`.

    `expected` is the file's answer, or the right one where it has none. `answer` is the model's, and `correct` says
    whether it is the expected one. `right` is computed from the task's definition. `reason` says why a line has no
    answer; its `correct` is missing.
    """
    task, lengths = sampler.task, length_columns(sampler.task)
    found, problems = [record_row(task, record) for record in records], dict[int, Problem]()
    for number, row in enumerate(found):
        if not row["reason"]:
            problems[number] = row.pop("operands")
    for numbers, batch in batches(sampler, problems):
        try:
            tokens = checked_answers(model, sampler, batch).tolist()
        except InputError as error:
            for number in numbers:
                found[number]["reason"] = str(error)
            continue
        for number, output, target in zip(numbers, tokens, batch.target[:, 1:].tolist(), strict=True):
            answer, right = task.write(output, batch.layout), task.write(target, batch.layout)
            expected = found[number]["expected"] or right
            found[number] |= {"answer": answer, "right": right, "expected": expected, "correct": answer == expected}
    frame = pd.DataFrame(found, columns=["line", *TEXTS, "correct", *lengths, "reason"])
    return frame.astype({"correct": "boolean"} | dict.fromkeys(lengths, "Int64"))


def record_row(task: Task, record: Record) -> dict[str, Any]:
    """What is known of a line before the model is asked: its fields, lengths and operands, or the reason."""
    texts = dict.fromkeys(TEXTS, "") | {"problem": record.problem, "expected": record.answer}
    row = {"line": record.line, **texts, "reason": record.reason}
    if record.reason:
        return row
    try:
        operands = task.read(record.problem)
        row |= {"expected": record.answer and task.read_answer(record.answer), "operands": operands}
    except InputError as error:
        return row | {"reason": str(error)}
    return row | dict(zip(length_columns(task), task.lengths_of(operands), strict=True))


@dataclass
class Tally:
    """What is kept of a file's answers, some thousand lines after the others."""

    task: Task
    counts: pd.DataFrame | None = None  # samples and correct, by lengths
    wrong: list[str] = field(default_factory=list)  # the first wrong answers, marked
    false: list[int] = field(default_factory=list)  # lines whose own answer is not the right one
    refused: int = 0  # lines without an answer

    def add(self, frame: pd.DataFrame) -> None:
        answered, lengths = frame[frame.reason == ""], length_columns(self.task)
        more = answered.assign(samples=1).groupby(lengths)[["samples", "correct"]].sum().astype(int)
        self.counts = more if self.counts is None else self.counts.add(more, fill_value=0).astype(int)
        mistakes = answered[~answered.correct.astype(bool)]
        self.wrong += [marked(row) for row in mistakes.head(SHOWN - len(self.wrong)).itertuples()]
        self.false += answered.line[answered.expected != answered.right].tolist()
        self.refused += len(frame) - len(answered)

    @property
    def table(self) -> pd.DataFrame:
        """Tidy rows of accuracy (a fraction) with its Wilson 95% interval, one for each combination of lengths."""
        assert self.counts is not None
        rows = [(right / samples, *wilson(right, samples)) for samples, right in self.counts.itertuples(index=False)]
        shares = pd.DataFrame(rows, columns=["accuracy", "ci_low", "ci_high"], index=self.counts.index)
        return self.counts.join(shares).reset_index()

    def text(self) -> str:
        """How many answers are right, their share by lengths, and the first wrong answers."""
        table, (samples, right) = self.table, self.table[["samples", "correct"]].sum()
        lines = [f"{right:,} of {samples:,} answers are right; lines without an answer: {self.refused:,}"]
        if self.false:
            first = ", ".join(map(str, self.false[:SHOWN])) + ", ..." * (len(self.false) > SHOWN)
            lines += [f"lines whose own answer is not the right one: {len(self.false):,} ({first})"]
        if table.empty:
            return lines[0]
        percent = table.accuracy.map(lambda share: "100" if share == 1 else f"{min(100 * share, 99.9):.1f}")
        if "length_2" in table:
            lines += ["", "percent right, by the first operand's length (downward) and the second's (across)"]
            table = table.assign(percent=percent).pivot(index="length_1", columns="length_2", values="percent")
        lines += [table.fillna("").to_string(index="length" not in table)]
        if self.wrong:
            lines += ["", f"wrong answers: {samples - right:,}, of which the first are", *self.wrong]
        return "\n".join(lines)


def marked(row: Any) -> str:
    """A wrong answer below the expected one, with a caret under the first place from the units that differs."""
    size = max(len(row.expected), len(row.answer))
    expected, answer = row.expected.rjust(size), row.answer.rjust(size)
    wrong = max(column for column in range(size) if expected[column] != answer[column])
    return f"line {row.line}: {row.problem}\n  expected {expected}\n  answer   {answer}\n{' ' * (11 + wrong)}^"
