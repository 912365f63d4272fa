"""The model's answers to problems that a person typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import greedy


def answers(model: Transformer, sampler: Sampler, expressions: Sequence[str], trace: bool = False) -> Iterator[str]:
    """The model's answers, in order; problems of one width are decoded together.

    With `trace` the table comes first that the model wrote. InputError for a task without one.
    """
    task = sampler.task
    problems = [task.read(expression) for expression in expressions]
    widths = [task.width_of(problem, sampler.regime) for problem in problems]
    texts: dict[int, str] = {}
    for width in set(widths):
        rows = [row for row, own in enumerate(widths) if own == width]
        columns = zip(*(task.widen(problems[row], width) for row in rows), strict=True)
        batch = sampler.batch([np.concatenate(column) for column in columns], width)
        device = next(model.parameters()).device
        tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS))
        for row, output in zip(rows, tokens.tolist(), strict=True):
            table = task.written_table(output, batch.layout, problems[row]) + "\n" if trace else ""
            texts[row] = table + task.write(output, batch.layout)
    return (texts[row] for row in range(len(expressions)))
