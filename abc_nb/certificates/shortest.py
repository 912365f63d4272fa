"""The shortest problem that a model without a certificate gets wrong, as far as a search finds one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from abc_nb.certificates.contexts import Candidate
from abc_nb.certificates.counterexamples import Counterexample, decoded
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler, generator
from abc_nb.problems.tasks import single
from abc_nb.training.evaluation import TEST_SEED, exact_match

LONGEST = 40  # places
TRIED = 50  # wrong problems of one number of places that are decoded


class Shortest(NamedTuple):
    """A problem that a model gets wrong, as `abc-nb compute` takes it; three empty texts where a search found none."""

    problem: str = ""
    answer: str = ""  # the model's
    right: str = ""


def shortest_wrong(model: Transformer, sampler: Sampler, samples: int = 200, longest: int = LONGEST) -> Shortest:
    """The first wrong problem among `samples` of one place, of two, and so on to `longest`.

    Of those with equally many places it is the one with the fewest characters, then with the smallest digits. Problems
    are as wide as `abc-nb compute` writes them. Only the answer as a person writes it counts: zeros in front of it do
    not. Not all problems are tried, so a shorter one may exist.
    """
    for places in range(1, longest + 1):
        for each in wrong_problems(model, sampler, places, samples):
            if each.answer != each.right:
                return Shortest(each.problem, each.answer, each.right)
    return Shortest()


def wrong_problems(model: Transformer, sampler: Sampler, places: int, samples: int) -> list[Counterexample]:
    """Of `samples` problems of so many places the shortest ones whose tokens are not all right, at most TRIED."""
    task, width = sampler.task, single(sampler.task.width_for(places, sampler.regime))
    operands = task.widen(task.hard_operands(places, samples, generator(TEST_SEED, places)), width)
    wrong = np.flatnonzero(~exact_match(model, sampler.batch(operands, width)).cpu().numpy())
    alone = ([digits[row : row + 1] for digits in operands] for row in wrong)
    problems = {task.typed(each): each for each in alone}
    in_order = sorted(problems, key=lambda text: (len(text), text))[:TRIED]
    return decoded(model, sampler, [Candidate(width, problems[text]) for text in in_order])
