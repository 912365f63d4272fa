"""Problems that a model gets wrong, verified by greedy decoding: those that show wrong contexts, or the first of many.

A model without a certificate has no list of wrong contexts, so it is asked random problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.drawing import hard_operands
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler, generator
from abc_nb.problems.tasks import Width
from abc_nb.training.evaluation import TEST_SEED, exact_match, greedy

LONGEST = 40  # places
MOST = 64  # counterexamples that are looked for
TRIED = 50  # wrong problems of one number of places that are decoded


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
    zeros: bool  # whether it is wrong only with these zeros in front, which `abc-nb compute` leaves out


class Shortest(NamedTuple):
    """A problem that a model gets wrong, as `abc-nb compute` takes it; three empty texts where a search found none."""

    problem: str = ""
    answer: str = ""  # the model's
    right: str = ""


def shortest_first(model: Transformer, sampler: Sampler, problems: Sequence[Candidate]) -> list[Counterexample]:
    """The shortest problems that the model gets wrong, at most MOST."""
    task, shown = sampler.task, dict[str, Counterexample]()
    waiting = sorted(problems, key=lambda problem: (problem.zeros, len(task.typed(problem.operands, problem.zeros))))
    while waiting and len(shown) < MOST:
        count = MOST - len(shown)
        for example in decoded(model, sampler, waiting[:count]):
            shown.setdefault(example.problem, example)
        waiting = waiting[count:]
    return list(shown.values())


def decoded(model: Transformer, sampler: Sampler, problems: Sequence[Candidate]) -> list[Counterexample]:
    """Those that the model gets wrong, in their order; problems of one width are decoded together."""
    examples: dict[int, Counterexample] = {}
    for width in {problem.width for problem in problems}:
        rows = [row for row, problem in enumerate(problems) if problem.width == width]
        operands = [np.concatenate(digits) for digits in zip(*(problems[row].operands for row in rows), strict=True)]
        batch = sampler.batch(operands, width)
        source = batch.source.to(next(model.parameters()).device)
        written = greedy(model, source, batch.layout, sampler.task.token(SOS)).cpu()
        for row, said, right in zip(rows, written.tolist(), batch.target[:, 1:].tolist(), strict=True):
            first = next((place for place, token in enumerate(right) if said[place] != token), None)
            if first is not None:
                text = sampler.task.typed(problems[row].operands, problems[row].zeros)
                answer, correct = (sampler.task.write(tokens, batch.layout) for tokens in (said, right))
                examples[row] = Counterexample(text, answer, correct, first, problems[row].zeros)
    return [examples[row] for row in sorted(examples)]


def wrong_among(
    model: Transformer, sampler: Sampler, operands: Sequence[Digits], width: Width, zeros: bool = False
) -> list[Candidate]:
    """Those of some problems of one width that a teacher-forced pass gets wrong."""
    wrong = ~exact_match(model, sampler.batch(operands, width))
    rows = torch.nonzero(wrong)[:, 0].tolist()
    return [Candidate(width, [digits[row : row + 1] for digits in operands], zeros) for row in rows]


def shortest_wrong(model: Transformer, sampler: Sampler, samples: int = 200, longest: int = LONGEST) -> Shortest:
    """The first wrong problem among `samples` of one place, of two, and so on to `longest`.

    Of those with equally many places it is the one with the fewest characters, then with the smallest digits. Problems
    are as wide as `abc-nb compute` writes them. Only the answer as a person writes it counts: zeros in front of it do
    not. Not all problems are tried, so a shorter one may exist.
    """
    task = sampler.task
    for places in range(1, longest + 1):
        width = task.width_for(places, sampler.regime)
        operands = task.widen(hard_operands(task, places, samples, generator(TEST_SEED, places)), width)
        problems = {task.typed(problem.operands): problem for problem in wrong_among(model, sampler, operands, width)}
        in_order = sorted(problems, key=lambda text: (len(text), text))[:TRIED]
        for example in decoded(model, sampler, [problems[text] for text in in_order]):
            if example.answer != example.right:
                return Shortest(example.problem, example.answer, example.right)
    return Shortest()
