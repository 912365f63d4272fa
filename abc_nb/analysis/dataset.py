"""What the data look like: problems as tokens, how long they are, and small matrices, for the first notebooks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from mpmath import mp
from torch import Tensor

from abc_nb.bias.base import CLOSED
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.specs.names import ARITHMETIC, LISTS


def on_paper(task: Task, problem: str, arrangement: Arrangement) -> Batch:
    """A problem with just the zeros in front that its result can need."""
    operands = task.read(problem)
    width = task.width_of(operands)
    return Sampler(task, arrangement).batch(task.widen(operands, width), width)


def the_problem(task: Task, digits: int) -> str:
    """The problem of all notebooks: numbers that begin as pi and e (a factor: as e), each digit modulo the base."""
    places = task.places(digits)
    with mp.workdps(places + 10):
        decimals = [str(int(number * 10 ** (places - 1))) for number in (mp.pi, mp.e)]  # 314 and 271
    numbers = [np.array([int(digit) % task.base for digit in reversed(text)]) for text in decimals]
    counts = task.operand_places(places)
    return task.typed([number[None, :count] for number, count in zip(numbers, counts, strict=False)])


def task_examples() -> pd.DataFrame:
    """One row a task of the course: a problem, its source and target tokens as the model sees them."""
    rows = []
    for task in map(Task, (*ARITHMETIC, *LISTS)):
        row = {"task": task.title, "problem": task.example, "answer": task.right_answer(task.example)}
        rows.append(row | tokens_of(task, task.example))
    return pd.DataFrame(rows).rename(columns={"source, natural": "source", "source, aligned": "aligned source"})


def tokens_of(task: Task, problem: str) -> dict[str, str]:
    """Source (natural and aligned) and target tokens of one problem."""
    natural, aligned = on_paper(task, problem, "natural"), on_paper(task, problem, "aligned")
    sequences = {"source, natural": natural.source, "source, aligned": aligned.source, "target": natural.target}
    return {name: " ".join(task.text(tokens[0].tolist())) for name, tokens in sequences.items()}


def with_tokens(matrix: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A small matrix as text, with the tokens of its rows and columns; closed cells are dots."""
    cells = [["·" if value == CLOSED else f"{value:g}" for value in row] for row in matrix.tolist()]
    return str(pd.DataFrame(cells, index=list(rows), columns=list(columns)).to_string())
