"""Certifying a model of `transformers`, and training it on contexts until it is certified.

Contexts are those of `certificates.text`, so a certificate holds for numbers of any lengths, and for any text around
them, since answers see none of it. Each is tried against the whole vocabulary. What rounding can change is not bounded
here, as it is for this package's own layers: the narrowest contexts are computed again in float64, and the certificate
says how far float32 is from that. Text is not trained on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.bias.base import CLOSED
from abc_nb.certificates.contexts import Block, Shape
from abc_nb.certificates.practice import PracticeResult, recipes_of_rounds, until_certified
from abc_nb.certificates.text import SpanContexts
from abc_nb.hf.answers import AnswerBlock, Answers, Attending, concatenated
from abc_nb.language.mixture import draw_any
from abc_nb.problems.sampling import TRAIN, generator
from abc_nb.problems.tasks import TRAINED
from abc_nb.problems.text import END
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import LossOfStep, Report, fit
from abc_nb.training.recipe import OneCycle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONTEXTS_A_PASS = 1024  # contexts of a pass
NARROW = 64  # contexts that are computed again in float64
WRONG_SOUGHT = 8  # wrong contexts of each shape of which problems are sought
BETAS, BATCH = (0.9, 0.98), 512  # AdamW's; contexts of a step
OTHERS = 2048  # tokens of the vocabulary, drawn anew for each step, that the right one is compared with
NARROW_IN_TEXT = 1.0  # a margin below it is narrow, and practised, too


@dataclass(frozen=True)
class AnswersCertificate:
    """What trying every context of a pattern gave.

    It says less than `certificates.certify.Certificate`: of rounding it has no bound.
    """

    form: str
    contexts: int
    wrong: int
    margin: float  # the smallest: the right token's logit minus that of the best other token of the vocabulary
    rounding: float  # how far float32 is from float64 at most, in the narrowest contexts
    problem: str  # the shortest that is wrong, if one is

    @property
    def certified(self) -> bool:
        """Whether every context is right, by more than rounding was seen to change."""
        return self.wrong == 0 and self.margin > self.rounding

    def __str__(self) -> str:
        if self.wrong:
            wrong = f"{self.wrong:,} of {self.contexts:,} contexts are wrong"
            return f"{self.form} is not certified: {wrong}: {self.problem}"
        if not self.certified:
            return f"{self.form} is not certified: rounding can change the smallest margin, {self.margin:.0e}"
        return (
            f"{self.form} for numbers of any lengths, in any text: in each of {self.contexts:,} contexts the right "
            f"token leads by a margin of {self.margin:.2f} or more. Where margins are smallest, float32 and float64 "
            f"differ by {self.rounding:.0e}; elsewhere rounding is not bounded."
        )


def certify(model: PreTrainedModel) -> list[AnswersCertificate]:
    """A certificate of each pattern of the bias of text that is on a model: the answers it writes, in any text.

    InputError for a model whose answers depend on anything but their problems.
    """
    trial = AllAnswers(Attending(model))
    with tqdm(total=len(trial.margins), delay=3, leave=False, unit=" contexts", unit_scale=True) as bar:
        trial.search(math.inf, lambda tried, _: bar.update(tried - bar.n))
    return [*trial.certificates()]


def train_until_certified(
    model: Answers | PreTrainedModel,
    steps: int,
    seed: int = 0,
    rounds: int = 9,
    rate: float = 1e-3,
    report: Report | None = None,
    batch: int = BATCH,
) -> PracticeResult:
    """Train on contexts alone; round the weights to 8 bits, look at every context, and practise wrong or narrow ones.

    `model` is one of `transformers` under a bias of text, or a path. A step has at least `batch` contexts of random
    problems. A round of practice has a third of the steps, and there are at most so many `rounds`. After the first ones
    the learning rate is a fifth.
    """
    answers = model if isinstance(model, Answers) else Attending(model)
    trial, recipe = AllAnswers(answers, seed), OneCycle(steps, batch, rate, BETAS, weight_decay=0.0, clip=1.0)
    progress = fit(answers, trial.losses_of_round(), recipe, seed, report=report)
    recipes = recipes_of_rounds(replace(recipe, steps=max(1, steps // 3)), rounds)
    return until_certified(answers, trial, recipes, seed, progress, report)


class AllAnswers:
    """All contexts of a model's answers, and the weight with which each is practised.

    A search adds 1 to those that are wrong or narrow, and counts twice as much as the one before it. Before the first
    search all weigh the same.
    """

    def __init__(self, answers: Answers, seed: int = 0) -> None:
        self.answers, self.seed = answers, seed
        self.kinds = [SpanContexts(answers.bias.lines_of(pattern), 1, pattern) for pattern in answers.bias.patterns]
        self.blocks = [[(shape, block) for shape in kind.shapes for block in kind.blocks(shape)] for kind in self.kinds]
        self.contexts = concatenated([answers.contexts_of(*block) for blocks in self.blocks for block in blocks])
        self.weights = torch.full((len(self.contexts.right),), 1e-3, dtype=torch.float64)
        self.margins = torch.empty(len(self.contexts.right))  # those that the last search tried; the others are NaN

    def search(self, wrong_limit: float, count: Callable[[int, int], object]) -> int:
        """As `certificates.practice.Trial` has it; contexts that were poor in any search are tried first."""
        wrong, tried, order = 0, 0, (-self.weights).argsort(stable=True)
        self.weights /= 2
        self.margins.fill_(math.nan)
        with evaluating(self.answers):
            for indices in order.split(CONTEXTS_A_PASS):
                margins = self.margins[indices] = margins_of(self.answers, self.contexts.part(indices))
                self.weights[indices] += ~(margins > NARROW_IN_TEXT)
                wrong, tried = wrong + int((~(margins > 0)).sum()), tried + len(indices)
                count(tried, len(order))
                if wrong >= wrong_limit:
                    break
        return wrong

    def certificates(self) -> tuple[AnswersCertificate, ...]:
        """A certificate of each pattern, from the last search."""
        certificates, first = list[AnswersCertificate](), 0
        sizes = [sum(len(block) for _, block in blocks) for blocks in self.blocks]
        with evaluating(self.answers):
            exact = copy.deepcopy(self.answers).double()
            for kind, blocks, margins in zip(self.kinds, self.blocks, self.margins.split(sizes), strict=True):
                narrow = margins.argsort()[:NARROW]
                errors = (margins_of(exact, self.contexts.part(first + narrow)) - margins[narrow]).abs()
                problem, wrong = wrong_problem(kind, blocks, margins), int((~(margins > 0)).sum())
                smallest, rounding = float(margins.min()), float(errors.max())
                form, count = kind.pattern.form, len(margins)
                certificates.append(AnswersCertificate(form, count, wrong, smallest, rounding, problem))
                first += count
        return tuple(certificates)

    def losses_of_round(self) -> LossOfStep:
        """The loss of contexts of random problems; every second step has as many drawn by their weights beside them."""
        vocabulary, tokens = self.answers.vocabulary, self.answers.tokens
        probabilities = (self.weights / self.weights.sum()).numpy()

        def losses(step: int, rows: int) -> Iterator[Tensor]:
            rng = generator(self.seed, TRAIN, step)
            contexts = random_contexts(self.answers, rng, rows)
            if step % 2:
                indices = torch.from_numpy(rng.choice(len(probabilities), rows, p=probabilities))
                contexts = concatenated([contexts, self.contexts.part(indices)])
            others = torch.from_numpy(rng.choice(vocabulary, min(OTHERS, vocabulary), replace=False)).to(tokens.device)
            compared = torch.cat([tokens, others[~torch.isin(others, tokens)]])
            yield F.cross_entropy(self.answers(contexts, compared), contexts.right.to(tokens.device))

        return losses


def wrong_problem(kind: SpanContexts, blocks: list[tuple[Shape, Block]], margins: Tensor) -> str:
    """The shortest problem found that holds a context whose margin is not positive; empty if there is none."""
    wrong = []
    for (shape, block), margin in zip(blocks, margins.split([len(block) for _, block in blocks]), strict=True):
        wrong += [(shape, block[row]) for row in (~(margin > 0)).nonzero()[:WRONG_SOUGHT, 0].tolist()]
    return next((kind.pattern.problem(operands) for operands in kind.problems(wrong)), "")


def margins_of(answers: Answers, contexts: AnswerBlock) -> Tensor:
    """By how much the right token of each context leads, (N,)."""
    logits, right = answers(contexts), answers.tokens[contexts.right][:, None]
    return (logits.gather(1, right) - logits.scatter(1, right, CLOSED).amax(1, keepdim=True))[:, 0].cpu()


def random_contexts(answers: Answers, rng: np.random.Generator, count: int) -> AnswerBlock:
    """The contexts of at least so many answers' tokens of random problems."""
    parts = list[AnswerBlock]()
    while sum(len(part.right) for part in parts) < count:
        pattern, operands = draw_any(answers.bias.patterns, TRAINED, rng)
        lengths, answer = tuple(map(len, operands)), pattern.answer(operands)
        answer += END * (len(answer) < pattern.answer_places(lengths))
        parts.append(answers.contexts(pattern, lengths, pattern.problem(operands) + answer, 0, len(answer)))
    return concatenated(parts)
