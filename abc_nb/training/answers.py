"""The model's answers to problems that a person typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.expressions import read, widen, width_of, write, written_table
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler, make_batch
from abc_nb.training.evaluation import greedy


def answers(model: Transformer, sampler: Sampler, expressions: Sequence[str], trace: bool = False) -> Iterator[str]:
    """The model's answers, in order; problems of one width are decoded together.

    With `trace` the table comes first that the model wrote. InputError for a task without one.
    """
    task = sampler.task
    if trace and not task.trace:
        raise InputError(f"{task.title} has no trace to show: its output is the answer itself")
    problems = [read(task, expression) for expression in expressions]
    widths = [width_of(task, problem, sampler.regime) for problem in problems]
    found: dict[int, str] = {}
    for width in set(widths):
        rows = [row for row, own in enumerate(widths) if own == width]
        columns = zip(*(widen(problems[row], width, task) for row in rows), strict=True)
        batch = make_batch(task, [np.concatenate(column) for column in columns], width, sampler.arrangement)
        device = next(model.parameters()).device
        tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS))
        for row, output in zip(rows, tokens.tolist(), strict=True):
            table = ""
            if trace and batch.layout.row:
                table = written_table(task, output, batch.layout.row, problems[row]) + "\n"
            found[row] = table + write(task, output, batch.layout)
    return (found[row] for row in range(len(expressions)))
