"""One problem typed by a person: read it, let the model decode it, write its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import EOS, Layout
from abc_nb.problems.rewriting import COMBINE
from abc_nb.problems.sampling import Batch, Sampler, make_batch
from abc_nb.problems.tasks import PAD, Digits, Task, Width
from abc_nb.problems.traces import DIGITS


class Unreadable(Exception):
    """What is wrong with a problem, as a part of a sentence."""


def read(task: Task, text: str) -> list[Digits]:
    """The operands of a problem such as `123+456`, of shape (1, places) each; InputError if it is none."""
    operands = typed(task, text)
    return operands if task.operation.items else [without_zeros(digits) for digits in operands]


def typed(task: Task, text: str) -> list[Digits]:
    """The same as they are typed: zeros in front count."""
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no problem: give it as text, as in {example(task)!r}")
    try:
        parts = (written_items if task.operation.items else written_numbers)(task, text.strip().lower())
    except Unreadable as reason:
        takes = f"{task.title} takes a problem in digits {DIGITS[0]}-{DIGITS[task.base - 1]}, as in {example(task)}"
        raise InputError(f"cannot read {text.strip()!r}: {reason}; {takes}") from None
    if task.operation.items:
        return [np.array([[task.token(part) for part in reversed(parts)]])]
    return [digit_array(part) for part in parts]


def without_zeros(digits: Digits) -> Digits:
    """One number without the zeros in front of it; zero has one digit."""
    return digits[:, : np.flatnonzero(digits[0]).max(initial=0) + 1]


def example(task: Task) -> str:
    """A problem, in the digits of the task's base."""
    return re.sub(r"\d", lambda digit: str(min(int(digit[0]), task.base - 1)), task.operation.example)


def written_numbers(task: Task, text: str) -> list[str]:
    """The operands of a problem as they are written; Unreadable if it is not one of the task's."""
    sign, wanted = task.operation.operator, len(task.operand_places(1))
    expression = text.replace("×", "*").replace("x", "*")
    parts = [part.strip() for part in expression.split(sign)] if sign else [expression]
    strange = [character for character in "".join(parts) if character not in task.digits]
    if strange:
        raise Unreadable(f"{strange[0]!r} is no digit" + (f", and the sign is {sign}" if sign else ""))
    if not all(parts) or len(parts) != wanted:
        raise Unreadable(f"numbers in it: {sum(map(bool, parts))}, needed: {wanted}")
    most = task.operation.second
    if most and len(parts[-1]) > most:
        raise Unreadable(f"the second number has {len(parts[-1])} digits, which is more than {most}")
    return parts


def written_items(task: Task, text: str) -> list[str]:
    """The tokens of a list, with or without its operator in front; Unreadable if it is not one of the task's."""
    own = task.operation.operator.lower()
    items = re.sub(rf"^{own}(?![a-z])", "", text.strip(" ()")) if own else text
    parts = [part.upper() if part.upper() in COMBINE else part for part in re.split(r"[\s,()]+", items.strip(" ,()"))]
    known = {*task.digits, *(COMBINE if task.operation.nested else ())}
    if strange := [part for part in parts if part not in known]:
        raise Unreadable(f"{strange[0]!r} is no item" if strange[0] else "there is no item")
    if task.operation.nested and not is_one_list(parts):
        raise Unreadable("its operators and items do not make one list")
    return parts


def is_one_list(parts: Sequence[str]) -> bool:
    """Whether operators and elements in prefix notation make one list, and nothing is left over."""
    wanted = 1
    for part in parts:
        if wanted == 0:
            return False
        wanted += 1 if part in COMBINE else -1
    return wanted == 0


def typed_places(task: Task, text: str) -> int:
    """Places of the longest operand as it is typed, zeros in front included; of a list its tokens."""
    return longest(typed(task, text))


def typed_batch(sampler: Sampler, text: str) -> Batch:
    """The problem as a batch of one, as wide as it is written (zeros in front count)."""
    task, operands = sampler.task, typed(sampler.task, text)
    width = width_of(task, operands, sampler.regime)
    return make_batch(task, widen(operands, width, task), width, sampler.arrangement)


def digit_array(text: str) -> Digits:
    return np.array([[DIGITS.index(character) for character in reversed(text)]])


def widen(operands: Sequence[Digits], width: Width, task: Task) -> list[Digits]:
    """Leading zeros, or blanks of a nested list, up to the places that each operand takes at this width."""
    pairs, blank = (
        zip(operands, task.operand_places(width), strict=True),
        task.token(PAD) if task.operation.nested else 0,
    )
    return [np.pad(digits, [(0, 0), (0, places - digits.shape[1])], constant_values=blank) for digits, places in pairs]


def write(task: Task, tokens: Sequence[int], layout: Layout | None = None) -> str:
    """The answer in output tokens, as a person writes it; `?` where the model put no digit.

    `layout`: of the problem, where the output is a table or its units stand last.
    """
    if task.trace:
        return written_answer(task, tokens, (layout.row if layout else None) or len(tokens))
    symbols = task.text(tokens)
    output = symbols[: symbols.index(EOS)] if EOS in symbols else symbols
    digits = [symbol if symbol in DIGITS else "?" for symbol in output] or ["?"]
    if task.operation.scratchpad:
        return digits[-1]
    if layout is None or layout.answer == "units first":
        digits.reverse()
    return "".join(digits).lstrip("0") or "0"


def table_of(task: Task, tokens: Sequence[int], row: int) -> np.ndarray:
    """The cells that output tokens stand for, (rows, columns): -1 for a token that is no cell."""
    cells = np.array(tokens[: len(tokens) // row * row], np.int64).reshape(-1, row) - task.first_cell
    return np.where(cells < 0, -1, cells)


def written_answer(task: Task, tokens: Sequence[int], row: int) -> str:
    """The answer that a table leads to; `?` where it has a token that is no cell."""
    assert task.trace is not None
    table = table_of(task, tokens, row)
    if not table.size or (table < 0).any():
        return "?"
    answer = [task.vocabulary[digit] for digit in reversed(task.trace.answer(table[None], task.base)[0])]
    return " ".join(answer) if task.operation.items else "".join(answer).lstrip("0") or "0"


def written_table(task: Task, tokens: Sequence[int], row: int, operands: Sequence[Digits]) -> str:
    """The table as people write it: a line for each row, units at the right.

    The rows of a product stand under its first factor: each behind its digit of the second one, and a column further
    left than the row above it.
    """
    assert task.trace is not None
    cells = table_of(task, tokens, row)
    rows = [[task.trace.write(cell, task.base) if cell >= 0 else "?" for cell in each[::-1]] for each in cells.tolist()]
    size = max((len(text) for each in rows for text in each), default=0)
    lines = [" ".join(text.rjust(size) for text in each) for each in rows]
    if not task.trace.by_digit:
        return "\n".join(lines)
    first, second = (task.text(digits[0].tolist()) for digits in operands)
    indents = [" " * (size + 1) * (len(second) - 1 - number) for number in range(len(second))]
    head = " ".join(text.rjust(size) for text in ("", *reversed(first)))
    products = [f"x {digit} | {indent}{line}" for digit, indent, line in zip(second, indents, lines, strict=False)]
    return "\n".join([" " * len("x 0 | ") + indents[0] + head, *products])


def longest(operands: Sequence[Digits]) -> int:
    return max(digits.shape[1] for digits in operands)


def width_of(task: Task, operands: Sequence[Digits], regime: str | None = None) -> Width:
    """Columns that hold the operands of a problem and its result; with a regime, no fewer than in its training."""
    if task.trace and len(operands) == 2:
        return operands[0].shape[1], operands[1].shape[1]
    places = longest(operands)
    if task.operation.items:
        return task.width_for((places + 1) // 2, "tight") if task.operation.nested else places
    return task.result_places(places) if regime is None else task.width_for(places, regime)


def expected(task: Task, expression: str) -> str:
    """The right answer, computed digit by digit from the task's definition."""
    operands = read(task, expression)
    width = width_of(task, operands)
    layout = task.layout(width)
    return write(task, torch.from_numpy(task.answer(widen(operands, width, task)))[0].tolist(), layout)
