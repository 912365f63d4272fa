"""The search for the shortest wrong problem of a model without a certificate, which has no list of wrong contexts."""

from typing import NamedTuple

import numpy as np

from abc_nb.certificates.counterexamples import answered_wrong, wrong_candidates
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits, varied_digits
from abc_nb.problems.drawing import larger_first
from abc_nb.problems.sampling import Sampler, generator
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import TEST_SEED

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
    task = sampler.task
    for places in range(1, longest + 1):
        width = task.width_for(places, sampler.regime)
        operands = task.widen(hard_operands(task, places, samples, generator(TEST_SEED, places)), width)
        problems = {
            task.typed(problem.operands): problem for problem in wrong_candidates(model, sampler, operands, width)
        }
        shortest = sorted(problems, key=lambda text: (len(text), text))[:TRIED]
        for example in answered_wrong(model, sampler, [problems[text] for text in shortest]):
            if example.answer != example.right:
                return Shortest(example.problem, example.answer, example.right)
    return Shortest()


def hard_operands(task: Task, places: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """Operands of at most so many places, in which long carries and repeated digits come up.

    The first number has exactly so many digits; a second one as many in half of the problems, else fewer.
    """
    rule, base = task.rule, task.base
    if rule.notation != "number" or rule.stacked:
        items = rule.inputs[0].alphabet[rule.inputs[0].alphabet < task.base]  # no operators of lists in lists
        return [items[varied_digits(len(items), count, places, rng)]]
    first = varied_digits(base, count, places, rng)
    first[:, -1] = np.maximum(first[:, -1], places > 1)
    if len(rule.inputs) == 1:
        return [first]
    second = varied_digits(base, count, rule.short_digits or places, rng)
    if rule.short_digits:
        return [first, second]
    lengths = rng.integers(1, places + 1, count)[:, None]
    second[(np.arange(places) >= lengths) & (rng.random((count, 1)) < 0.5)] = 0
    return larger_first(task, [first, second])
