"""One problem typed by a person: read it, let the model decode it, write its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from abc_nb.errors import InputError
from abc_nb.evaluation import greedy
from abc_nb.experiments import Experiment
from abc_nb.model import Transformer
from abc_nb.sampling import make_batch
from abc_nb.tasks import DIGITS, EOS, SOS, Digits, Task


def read(task: Task, text: str) -> list[Digits]:
    """The operands of a problem such as `123+456`, of shape (1, places) each; InputError if it is none."""
    operation, known = task.operation, DIGITS[: task.base]
    expression = text.strip().lower().replace("×", "*").replace("x", "*")
    if operation.items:
        expression = re.sub(rf"^{re.escape(operation.operator.lower().replace('x', '*'))}(?![a-z])", "", expression)
        parts = re.split(r"[\s,]+", expression.strip(" ()"))
        fits = all(len(part) == 1 for part in parts)
    else:
        parts = [part.strip() for part in expression.split(operation.operator)] if operation.second else [expression]
        fits = len(parts) == (2 if operation.second else 1) and (operation.second != "digit" or len(parts[1]) == 1)
    if not fits or not all(part and set(part) <= set(known) for part in parts):
        example = re.sub(r"\d", lambda digit: str(min(int(digit[0]), task.base - 1)), operation.example)
        digits = f"digits {known[0]}-{known[-1]}"
        raise InputError(f"cannot read {text.strip()!r}: {task.title} takes {digits}, as in {example}")
    if operation.items:
        return [digit_array("".join(parts))]
    return [digit_array(part.lstrip("0") or "0") for part in parts]


def typed_places(task: Task, text: str) -> int:
    """Places of the longest operand as it is typed, zeros in front included; of a list its items."""
    operands = read(task, text)
    if task.operation.items:
        return operands[0].shape[1]
    return max(len(digits) for digits in re.findall(rf"[{DIGITS[: task.base]}]+", text.lower()))


def digit_array(text: str) -> Digits:
    return np.array([[DIGITS.index(character) for character in reversed(text)]])


def widen(operands: Sequence[Digits], width: int, task: Task) -> list[Digits]:
    """Leading zeros up to `width` places, except on a single digit."""
    single = [False, task.operation.second == "digit"]
    return [
        digits if one else np.pad(digits, [(0, 0), (0, width - digits.shape[1])])
        for digits, one in zip(operands, single, strict=False)
    ]


def write(task: Task, tokens: Sequence[int]) -> str:
    """The answer in output tokens, as a person writes it; `?` where the model put no digit."""
    symbols = task.text(tokens)
    output = symbols[: symbols.index(EOS)] if EOS in symbols else symbols
    digits = [symbol if symbol in DIGITS else "?" for symbol in output] or ["?"]
    if task.operation.scratchpad:
        return digits[-1]
    return "".join(reversed(digits)).lstrip("0") or "0"


def answers(model: Transformer, experiment: Experiment, expressions: Sequence[str]) -> Iterator[str]:
    """The model's answers, in order; problems of one width are decoded together."""
    task, sampler = experiment.task, experiment.sampler
    problems = [read(task, expression) for expression in expressions]
    widths = [task.width_for(max(digits.shape[1] for digits in problem), sampler.regime) for problem in problems]
    found: dict[int, str] = {}
    for width in set(widths):
        rows = [row for row, own in enumerate(widths) if own == width]
        columns = zip(*(widen(problems[row], width, task) for row in rows), strict=True)
        batch = make_batch(task, [np.concatenate(column) for column in columns], width, sampler.arrangement)
        device = next(model.parameters()).device
        tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS))
        found |= {row: write(task, output) for row, output in zip(rows, tokens.tolist(), strict=True)}
    return (found[row] for row in range(len(expressions)))


def expected(task: Task, expression: str) -> str:
    """The right answer, computed digit by digit from the task's definition."""
    operands = read(task, expression)
    width = max(digits.shape[1] for digits in operands) + task.operation.grows
    return write(task, torch.from_numpy(task.answer(widen(operands, width, task)))[0].tolist())
