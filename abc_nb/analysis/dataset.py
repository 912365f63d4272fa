"""What the data look like: frames for the first notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from abc_nb.analysis.attention import needed
from abc_nb.bias.base import CLOSED, Attention
from abc_nb.bias.window import Window
from abc_nb.experiments import ARITHMETIC, LISTS
from abc_nb.problems.digits import Digits, digit_count, to_digits
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import split_numbers
from abc_nb.problems.tasks import NUMBERS, Task


def task_examples() -> pd.DataFrame:
    """One row a task of the story: a problem, its source and target tokens as the model sees them."""
    rows = []
    for name in (*ARITHMETIC, *LISTS):
        task = Task(name)
        operands = task.read(task.problem)
        width = task.width_of(operands)
        operands = task.widen(operands, width)
        row = {"task": task.title, "problem": task.problem, "answer": task.right_answer(task.problem)}
        row["source"] = " ".join(task.text(task.source(operands, task.layout(width))[0]))
        row["aligned source"] = " ".join(task.text(task.source(operands, task.layout(width, "aligned"))[0]))
        row["target"] = " ".join(task.text(task.target(operands)[0]))
        rows.append(row)
    return pd.DataFrame(rows)


def example_tokens(task: Task, operands: list[int], width: int) -> dict[str, list[str]]:
    """Source (natural and aligned) and target tokens of one problem, for `maps.token_grid`."""
    digits = [to_digits(np.array([number]), task.base, width) for number in operands]
    sources = {
        f"source, {arrangement}": task.text(task.source(digits, task.layout(width, arrangement))[0])
        for arrangement in ("natural", "aligned")
    }
    return sources | {"target": task.text(task.target(digits)[0])}


def training_lengths(seed: int = 0, base: int = 10) -> pd.DataFrame:
    """Share of the training and validation numbers by their digits."""
    count = digit_count(NUMBERS, base)
    bounds = base ** np.arange(1, count)
    shares = {
        name: np.bincount(np.searchsorted(bounds, pool, side="right"), minlength=count) / len(pool)
        for name, pool in zip(("training", "validation"), split_numbers(seed), strict=True)
    }
    return pd.DataFrame({"digits": np.arange(1, count + 1), **shares})


def window_matrices(w: int, width: int = 6) -> dict[str, np.ndarray]:
    """The open cells of a window of `w`, True where open: decoder self-attention and cross-attention."""
    one, two = Task("successor").layout(width), Task("addition").layout(width, "aligned")
    parts: dict[str, tuple[Layout, Attention]] = {
        f"self-attention, w={w}": (one, "self"),
        "cross-attention, unary": (one, "cross"),
        "cross-attention, binary": (two, "cross"),
    }
    return {title: Window(w).opened(*part, layer=0)[0].numpy() for title, part in parts.items()}


def window(name: str, problem: str, w: int) -> Tensor:
    """The window added to the logits of cross-attention for one problem: (output token, input token)."""
    task = Task(name)
    operands = task.read(problem)
    layout = task.layout(task.width_of(operands), "aligned")
    matrix = Window(w).dense(layout, "cross", layer=0, heads=1)
    assert matrix is not None
    return matrix[0]


def with_tokens(matrix: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A small matrix as text, with the tokens of its rows and columns; closed cells are dots."""
    cells = [["·" if value == CLOSED else f"{value:g}" for value in row] for row in matrix.tolist()]
    return str(pd.DataFrame(cells, index=list(rows), columns=list(columns)).to_string())


def needed_cells(name: str, problem: str) -> dict[str, Any]:
    """What `maps.dependencies` draws: tokens, the cells that each output digit needs, the steps with a carry."""
    task = Task(name)
    operands = task.read(problem)
    operands = task.widen(operands, task.width_of(operands))
    layout = task.layout(operands[0].shape[1], "aligned")
    handed = carries(operands, task.base)[0]
    return {
        "source": task.text(task.source(operands, layout)[0].tolist()),
        "target": task.text(task.target(operands)[0, 1:-1].tolist()),
        "cells": needed(layout, "cross").numpy(),
        "carries": np.flatnonzero(handed[:-1]).tolist(),
    }


def carries(operands: Sequence[Digits], base: int) -> np.ndarray:
    """Where adding two operands carries out of a place: booleans of shape (samples, places)."""
    a, b = operands
    out, carry = np.zeros(a.shape, bool), np.zeros(len(a), np.int64)
    for place in range(a.shape[1]):
        carry = (a[:, place] + b[:, place] + carry) // base
        out[:, place] = carry > 0
    return out
