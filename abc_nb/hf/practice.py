"""Training a model of `transformers` on contexts until all are right: random ones first, then those it gets wrong.

Text is not trained on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.practice import Practised, until_certified
from abc_nb.hf.certificates import Attending, Certificate, certify_all, leads
from abc_nb.hf.contexts import Answers, Contexts, every_context, joined
from abc_nb.language.mixture import draw
from abc_nb.problems.sampling import TRAIN, generator
from abc_nb.problems.spans import END
from abc_nb.problems.tasks import TRAINED
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import LossOfStep, Progress, Report, fit
from abc_nb.training.recipe import OneCycle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BETAS, BATCH = (0.9, 0.98), 512  # AdamW's; contexts of a step
OTHERS = 2048  # tokens of the vocabulary, drawn anew for each step, that the right one is compared with
SMALL = 1.0  # a margin below it is narrow, and practised, too


class AnswersContexts:
    """All contexts of a model's answers, of which those known to be wrong or narrow are looked at first."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.known = list[Contexts]()  # wrong or narrow in some look; those that were so more often stand there again

    def look(self, enough: float, count: Callable[[int, int], None]) -> int:
        """Those that are wrong, as `certificates.practice.Trial` has it."""
        tried, total = 0, sum(len(contexts.right) for contexts in self.every)
        with evaluating(self.answers):
            wrong = sum(self.add(contexts) for contexts in self.known[:])
            if wrong >= enough:
                return wrong
            wrong = 0
            for contexts in self.every:
                wrong, tried = wrong + self.add(contexts), tried + len(contexts.right)
                count(tried, total)
                if wrong >= enough:
                    break
        return wrong

    @cached_property
    def every(self) -> list[Contexts]:
        bias = self.answers.bias
        return [contexts for pattern in bias.patterns for contexts, _ in every_context(bias, pattern)]

    def add(self, contexts: Contexts) -> int:
        """How many of some contexts are wrong; they and narrow ones are known from now on."""
        margins = leads(self.answers, contexts)
        poor = (~(margins > SMALL)).nonzero()[:, 0]
        if len(poor):
            self.known.append(contexts.part(poor))
        return int((~(margins > 0)).sum())

    def certificates(self) -> tuple[Certificate, ...]:
        return tuple(certify_all(self.answers))

    def losses(self, seed: int) -> LossOfStep:
        """The loss of contexts of random problems; every second step has as many known ones beside them."""
        answers, again = self.answers, joined(self.known) if self.known else None
        vocabulary, tokens = answers.vocabulary, answers.tokens

        def losses(step: int, rows: int) -> Iterator[Tensor]:
            rng = generator(seed, TRAIN, step)
            contexts = drawn(answers, rng, rows)
            if again is not None and step % 2:
                chosen = rng.choice(len(again.right), min(rows, len(again.right)), replace=False)
                contexts = joined([contexts, again.part(torch.from_numpy(chosen))])
            others = torch.from_numpy(rng.choice(vocabulary, min(OTHERS, vocabulary), replace=False)).to(tokens.device)
            some = torch.cat([tokens, others[~torch.isin(others, tokens)]])
            yield F.cross_entropy(answers(contexts, some), contexts.right.to(tokens.device))

        return losses


def train_until_certified(
    model: Answers | PreTrainedModel,
    steps: int,
    seed: int = 0,
    rounds: int = 9,
    rate: float = 1e-3,
    report: Report | None = None,
) -> Practised:
    """Train on contexts alone; round the weights to 8 bits, look at every context, and practise wrong or narrow ones.

    `model` is one of `transformers` under a bias of text, or a path. A round of practice has a third of the steps and a
    fifth of the learning rate, and there are at most so many `rounds`.
    """
    answers = model if isinstance(model, Answers) else Attending(model)
    trial, recipe = AnswersContexts(answers), OneCycle(steps, BATCH, rate, BETAS, weight_decay=0.0, clip=1.0)
    progress = fit(answers, trial.losses(seed), recipe, seed, report=report)
    slower = replace(recipe, steps=steps // 3, rate=rate / 5)

    def fit_round(progress: Progress) -> None:
        fit(answers, trial.losses(seed), slower, seed, progress=progress, report=report)

    return until_certified(answers, trial, fit_round, rounds, progress, report)


def drawn(answers: Answers, rng: np.random.Generator, count: int) -> Contexts:
    """The contexts of at least so many answers' tokens of random problems."""
    parts = list[Contexts]()
    while sum(len(part.right) for part in parts) < count:
        pattern = answers.bias.patterns[int(rng.integers(len(answers.bias.patterns)))]
        lengths = tuple(pattern.task.rule.factor if few else int(rng.integers(1, TRAINED + 1)) for few in pattern.few)
        operands = draw(pattern, lengths, rng)
        answer = pattern.answer(operands)
        ended = answer + END * (len(answer) < pattern.answer_places(lengths))
        parts.append(answers.contexts(pattern, lengths, pattern.problem(operands) + ended, 0, len(ended)))
    return joined(parts)
