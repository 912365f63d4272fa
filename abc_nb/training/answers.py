"""The model's answers to problems that a person typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.training.evaluation import greedy, parts

Problem = Sequence[Digits]  # its operands, one row each
Outcome = str | InputError  # what a problem comes to: an answer, or why it has none


def answers(model: Transformer, sampler: Sampler, expressions: Sequence[str], trace: bool = False) -> Iterator[str]:
    """The model's answers, in order, decoded greedily; problems of one width are decoded together.

    With `trace` the table comes first that the model wrote. InputError for a task without one, or for a problem that
    cannot be read or has too many digits for the model.
    """
    for outcome in attempts(model, sampler, expressions, trace):
        if isinstance(outcome, InputError):
            raise outcome
        yield outcome


def attempts(model: Transformer, sampler: Sampler, expressions: Sequence[str], trace: bool = False) -> list[Outcome]:
    """The answer to each problem, or the error that says why there is none."""
    task, problems, found = sampler.task, dict[int, Problem](), dict[int, Outcome]()
    for row, expression in enumerate(expressions):
        try:
            problems[row] = task.read(expression)
        except InputError as error:
            found[row] = error
    device = next(model.parameters()).device
    for rows, batch in batches(sampler, problems):
        try:
            tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS)).tolist()
        except InputError as error:
            found |= dict.fromkeys(rows, error)
            continue
        for row, output in zip(rows, tokens, strict=True):
            table = task.written_table(output, batch.layout, problems[row]) + "\n" if trace else ""
            found[row] = table + task.write(output, batch.layout)
    return [found[row] for row in range(len(expressions))]


def batches(sampler: Sampler, problems: Mapping[int, Problem]) -> Iterator[tuple[list[int], Batch]]:
    """The problems of each width, as few at a time as are fast to compute together, and their numbers."""
    widths = {row: sampler.task.width_of(problem, sampler.regime) for row, problem in problems.items()}
    for width in dict.fromkeys(widths.values()):
        rows = [row for row, own in widths.items() if own == width]
        columns = zip(*(sampler.task.widen(problems[row], width) for row in rows), strict=True)
        for part in parts(sampler.batch([np.concatenate(column) for column in columns], width)):
            yield rows[: len(part.source)], part
            rows = rows[len(part.source) :]
