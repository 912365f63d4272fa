"""What the data look like: problems as tokens, what each output needs, and windows, for the first notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from abc_nb.analysis.attention import needed
from abc_nb.bias.base import CLOSED
from abc_nb.bias.window import Sides, Window
from abc_nb.problems.digits import Digits, digit_count, to_digits
from abc_nb.problems.products import Product
from abc_nb.problems.sampling import split_numbers
from abc_nb.problems.tasks import NUMBERS, Task, Width
from abc_nb.specs.studies import ARITHMETIC, LISTS


class Needs(NamedTuple):
    """A problem, and what its output digits are made from."""

    source: list[str]
    target: list[str]  # units first
    cells: np.ndarray  # booleans (output token, source token)
    carries: list[int]  # steps that hand a carry to the next one


class Trace(NamedTuple):
    """The table of a product, units first in every direction."""

    first: np.ndarray  # digits of the factor whose digits stand above the columns
    second: np.ndarray  # of the factor that has a row a digit
    digits: np.ndarray  # (row, column)
    carries: np.ndarray  # (row, column): what a cell carries on


def on_paper(task: Task, problem: str) -> tuple[list[Digits], Width]:
    """A problem's operands with the zeros in front that they have in tokens, and the columns that they take."""
    operands = task.read(problem)
    width = task.width_of(operands)
    return task.widen(operands, width), width


def task_examples() -> pd.DataFrame:
    """One row a task of the story: a problem, its source and target tokens as the model sees them."""
    rows = []
    for name in (*ARITHMETIC, *LISTS):
        task = Task(name)
        tokens = tokens_of(task, *on_paper(task, task.problem))
        row = {"task": task.title, "problem": task.problem, "answer": task.right_answer(task.problem)}
        row |= {"source": tokens["source, natural"], "aligned source": tokens["source, aligned"]}
        rows.append(row | {"target": tokens["target"]})
    return pd.DataFrame(rows)


def tokens_of(task: Task, operands: list[Digits], width: Width) -> dict[str, str]:
    """Source (natural and aligned) and target tokens of one problem."""
    sources = {
        f"source, {arrangement}": task.source(operands, task.layout(width, arrangement))
        for arrangement in ("natural", "aligned")
    }
    every = sources | {"target": task.target(operands)}
    return {name: " ".join(task.text(tokens[0].tolist())) for name, tokens in every.items()}


def example_tokens(task: Task, operands: list[int], width: int) -> dict[str, str]:
    """`tokens_of` a problem of these numbers."""
    return tokens_of(task, [to_digits(np.array([number]), task.base, width) for number in operands], width)


def training_lengths(seed: int = 0) -> pd.DataFrame:
    """Share of the training and validation numbers by their digits."""
    count = digit_count(NUMBERS, 10)
    bounds = 10 ** np.arange(1, count)
    shares = {
        name: np.bincount(np.searchsorted(bounds, pool, side="right"), minlength=count) / len(pool)
        for name, pool in zip(("training", "validation"), split_numbers(seed), strict=True)
    }
    return pd.DataFrame({"digits": np.arange(1, count + 1), **shares})


def window_matrices(w: int, sides: Sides = "one", width: int = 6) -> list[tuple[str, np.ndarray]]:
    """The open cells of a window of `w`, True where open: decoder self-attention and cross-attention."""
    one, two = Task("successor").layout(width), Task("addition").layout(width, "aligned")
    opened = Window(w, sides).opened
    first, last = ("cross-attention, ", "") if sides == "one" else ("", ", both sides")
    return [
        (f"self-attention, w={w}", opened(one, "self", 0)[0].numpy()),
        (f"{first}unary{last}", opened(one, "cross", 0)[0].numpy()),
        (f"{first}binary{last}", opened(two, "cross", 0)[0].numpy()),
    ]


def window(name: str, problem: str, w: int) -> Tensor:
    """The window added to the logits of cross-attention for one problem: (output token, input token)."""
    layout = Task(name).layout(on_paper(Task(name), problem)[1], "aligned")
    matrix = Window(w).dense(layout, "cross", layer=0, heads=1)
    assert matrix is not None
    return matrix[0]


def with_tokens(matrix: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A small matrix as text, with the tokens of its rows and columns; closed cells are dots."""
    cells = [["·" if value == CLOSED else f"{value:g}" for value in row] for row in matrix.tolist()]
    return str(pd.DataFrame(cells, index=list(rows), columns=list(columns)).to_string())


def needs_of(name: str, problem: str) -> Needs:
    """What the digits of a sum are made from, or of a successor, which begins with a carry."""
    task = Task(name)
    operands, width = on_paper(task, problem)
    layout = task.layout(width, "aligned")
    cells, carry = needed(layout, "cross").numpy(), [int(len(operands) == 1)]
    for digits in zip(*(digits[0].tolist() for digits in operands), strict=True):
        carry.append((sum(digits) + carry[-1]) // task.base)
    source, target = (task.source(operands, layout)[0], task.target(operands)[0, 1:-1])
    return Needs(task.text(source.tolist()), task.text(target.tolist()), cells, np.flatnonzero(carry[1:-1]).tolist())


def trace_of_product(problem: str) -> Trace:
    """The table that a model writes for a product."""
    task = Product("n-by-n")
    operands = task.read(problem)
    first, second = (digits[0] for digits in operands)
    cells = task.table(operands)[0]
    return Trace(first, second, cells % task.base, cells // task.base)
