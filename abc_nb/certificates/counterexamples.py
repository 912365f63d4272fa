"""Problems that a model gets wrong, verified by greedy decoding: those that show wrong contexts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Width
from abc_nb.training.evaluation import exact_match, greedy

COUNTEREXAMPLES_SOUGHT = 64  # counterexamples that are looked for


@dataclass(frozen=True)
class Candidate:
    """A problem that the model may get wrong."""

    width: Width
    operands: list[Digits]  # (1, places) each
    zeros: bool = False  # whether it may need the zeros in front of it to be wrong


@dataclass(frozen=True)
class Counterexample:
    """A problem that the model gets wrong, in the form that `abc-nb compute` takes."""

    problem: str
    answer: str  # the model's, as a person writes it
    right: str
    token: int  # the first output token that is wrong, counted from the units = 0
    zeros: bool  # whether it may be wrong only with these zeros in front


def shortest_first(model: Transformer, sampler: Sampler, problems: Sequence[Candidate]) -> list[Counterexample]:
    """Those of some problems that the model gets wrong, the shortest first, at most COUNTEREXAMPLES_SOUGHT."""
    task, examples = sampler.task, dict[str, Counterexample]()
    queue = sorted(problems, key=lambda problem: (problem.zeros, len(task.typed(problem.operands, problem.zeros))))
    while queue and len(examples) < COUNTEREXAMPLES_SOUGHT:
        count = COUNTEREXAMPLES_SOUGHT - len(examples)
        for example in answered_wrong(model, sampler, queue[:count]):
            examples.setdefault(example.problem, example)
        queue = queue[count:]
    return list(examples.values())


def answered_wrong(model: Transformer, sampler: Sampler, problems: Sequence[Candidate]) -> list[Counterexample]:
    """Those that the model gets wrong, in their order; problems of one width are decoded together."""
    examples: dict[int, Counterexample] = {}
    for width in {problem.width for problem in problems}:
        rows = [row for row, problem in enumerate(problems) if problem.width == width]
        operands = [np.concatenate(digits) for digits in zip(*(problems[row].operands for row in rows), strict=True)]
        batch = sampler.batch(operands, width)
        source = batch.source.to(next(model.parameters()).device)
        written = greedy(model, source, batch.layout, sampler.task.token(SOS)).cpu()
        for row, output, target in zip(rows, written.tolist(), batch.target[:, 1:].tolist(), strict=True):
            first = next((step for step, token in enumerate(target) if output[step] != token), None)
            if first is not None:
                text = sampler.task.typed(problems[row].operands, problems[row].zeros)
                answer, right = (sampler.task.write(tokens, batch.layout) for tokens in (output, target))
                examples[row] = Counterexample(text, answer, right, first, problems[row].zeros)
    return [examples[row] for row in sorted(examples)]


def wrong_candidates(
    model: Transformer, sampler: Sampler, operands: Sequence[Digits], width: Width, zeros: bool = False
) -> list[Candidate]:
    """Those of some problems of one width that a teacher-forced pass gets wrong."""
    wrong = ~exact_match(model, sampler.batch(operands, width))
    rows = torch.nonzero(wrong)[:, 0].tolist()
    return [Candidate(width, [digits[row : row + 1] for digits in operands], zeros) for row in rows]
