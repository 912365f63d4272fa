"""Practice: training goes on with contexts that are wrong, in rounds, until a certificate finds none.

Between two rounds there is a *search*: contexts are tried as a certificate tries them, until as many wrong ones are
known as a round can use. A search that finds none has tried all, so it is the proof. The first search and the last one
go through all contexts in any case, to count what is wrong.

The problems that are practised are as in training: numbers up to 2^20 at training widths, or lists of training lengths.
No longer number is trained on, or looked at to decide anything. They are chosen for their contexts, so numbers kept for
validation can be among them. A wrong context of which no such problem is found, as any of a table, is practised by
itself: the loss is taken of the logits that the model computes from the context, without a problem around it.

Searches are at weights that are rounded to 8 bits, so that what is certified takes a quarter of the space; to 5 in a
model without norms, so that its sums need not round. Practice changes the weights before rounding, by the gradients at
the rounded ones: else small changes would be lost in each rounding, and the last wrong contexts would stay wrong.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.certificates.certify import Certificate, Result, SampledContexts, certificate_of, contexts_of, results_of
from abc_nb.certificates.contexts import Block, Context, Contexts, Shape, Site
from abc_nb.certificates.counterexamples import Candidate
from abc_nb.certificates.rounding import Unbounded
from abc_nb.certificates.states import States
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import LARGEST_OF_5_BITS, LARGEST_WEIGHT, round_weights
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.digits import is_below
from abc_nb.problems.sampling import AGAIN, Batch, Sampler, generator
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import LossOfStep, Progress, Report, fit
from abc_nb.training.problems import ProblemLosses, loss_of, losses_in_parts, phases
from abc_nb.training.recipe import Recipe, TrainingConfig, Validation

CONTEXTS_A_STEP = 300_000  # of practice, at most: a model with more is neither rounded nor practised
WRONG_LIMIT = 2_000  # wrong contexts, after which a search between rounds stops
EXAMPLES = 100  # wrong contexts of a shape that a round practises
QUICK = 4  # rounds, after which training is slower: else the last wrong contexts come and go
PRACTISED_AT_ONCE = 64  # contexts without a problem that a step practises, all of one shape
ContextsByShape = dict[Shape, dict[bytes, Context]]  # those of a shape by their tokens


# ---- the rounds, of any kind of model


class Trial(Protocol):
    """All contexts of a model: they are tried, and those that are wrong are practised."""

    def search(self, wrong_limit: float, count: Callable[[int, int], object]) -> int:
        """Try contexts until `wrong_limit` are wrong, keep those to practise, and return how many are wrong.

        `count` is told how many contexts were tried, of how many.
        """

    def certificates(self) -> tuple[Any, ...]:
        """What the last search proves, which tried all contexts."""

    def losses_of_round(self) -> LossOfStep:
        """The losses of a round's steps, for what the last search found."""


@dataclass(frozen=True)
class PracticeResult:
    """What practice did to a model."""

    certificates: tuple[Any, ...]  # those of the model's kind, as `Certificate`
    wrong: list[int]  # contexts: all before practice; then those that the search after each round came to
    progress: Progress  # over all rounds, with the seconds of searches
    alone: int = 0  # contexts that were practised without a problem

    @property
    def rounds(self) -> int:
        return len(self.wrong) - 1

    @property
    def facts(self) -> dict[str, Any]:
        """Plain data for the record of a run with one certificate."""
        (certificate,) = self.certificates
        facts = {"rounds": self.rounds, "contexts": certificate.contexts, "wrong_before": self.wrong[0]}
        return facts | {"wrong_after": certificate.wrong, "alone": self.alone}


def until_certified(
    model: nn.Module,
    trial: Trial,
    recipes: Sequence[Recipe],
    seed: int,
    progress: Progress,
    report: Report | None = None,
    validate: Callable[[], Validation] = dict,
    largest: int = LARGEST_WEIGHT,
) -> PracticeResult:
    """Round the weights, and train on what is wrong, at most a round for each recipe, until all certificates hold.

    `progress` is that before the first round, which the rounds go on counting.
    """
    start, wrong = time.perf_counter() - progress.seconds, list[int]()

    def count(tried: int, contexts: int) -> None:
        progress.tried, progress.contexts, progress.seconds = tried, contexts, time.perf_counter() - start
        if report is not None:
            report(progress)

    while True:
        with rounded(model, largest):
            last = len(wrong) == len(recipes)
            wrong.append(trial.search(WRONG_LIMIT if wrong and not last else math.inf, count))
            certificates = trial.certificates() if last or not wrong[-1] else ()
        if last or (certificates and all(certificate.certified for certificate in certificates)):
            round_weights(model, largest)
            progress.seconds = time.perf_counter() - start
            return PracticeResult(certificates, wrong, progress)
        progress.round, progress.tried, progress.seconds = len(wrong), progress.contexts, time.perf_counter() - start
        losses = as_rounded(model, trial.losses_of_round(), largest)
        fit(model, losses, recipes[len(wrong) - 1], seed, validate, progress, report)


def recipes_of_rounds(recipe: Recipe, rounds: int) -> list[Recipe]:
    """The recipe of each round: after the first ones training is slower."""
    return [recipe if number < QUICK else recipe.slower() for number in range(rounds)]


# ---- the contexts of this package's models


class AllContexts:
    """All contexts of a model of this package, of one or more kinds, and those that the last search found poor."""

    def __init__(self, model: Transformer, kinds: Sequence[Contexts]) -> None:
        self.model, self.kinds = model, kinds
        self.results: list[tuple[list[Result], float]] = []  # of each kind in the last search, and when it began
        self.poor: ContextsByShape = {}  # wrong or narrow

    def search(self, wrong_limit: float, count: Callable[[int, int], object]) -> int:
        tried, total = 0, sum(sum(contexts.counts.values()) for contexts in self.kinds)

        def add(contexts: int) -> None:
            nonlocal tried
            tried += contexts
            count(tried, total)

        self.results = []
        for contexts in self.kinds:
            start = time.perf_counter()
            self.results.append((results_of(self.model, contexts, wrong_limit, add), start))
        results = [result for results, _ in self.results for result in results]
        self.poor = {result.shape: poor_of(result) for result in results if result.wrong_examples or result.narrow}
        return sum(result.wrong for result in results)

    def certificates(self) -> tuple[Certificate, ...]:
        results = zip(self.kinds, self.results, strict=True)
        return tuple(certificate_of(self.model, contexts, *of_kind) for contexts, of_kind in results)


def poor_of(result: Result) -> dict[bytes, Context]:
    """The contexts of a shape to practise, by their tokens: some that are wrong, and the narrow ones."""
    return {context[0].tobytes(): context for context in (*result.wrong_examples[:EXAMPLES], *result.narrow)}


def loss_of_contexts(model: Transformer, shape: Shape, block: Block) -> Tensor:
    """Cross-entropy of the right tokens of contexts of one shape, from the model's own layers."""
    logits = States(Unbounded(model), shape.leaves).take(block.values).logits(shape.root)
    return F.cross_entropy(logits, torch.from_numpy(block.right).to(logits.device))


# ---- practice with a sampler's problems


class ProblemPractice(AllContexts):
    """Practice with problems of training that hold poor contexts, those of all rounds so far, lest they are forgotten.

    Every second batch is as in training; the others have the width of a problem to practise, and hold such.
    """

    def __init__(self, model: Transformer, contexts: SampledContexts, recipe: TrainingConfig, seed: int) -> None:
        super().__init__(model, [contexts])
        self.contexts, self.sampler, self.recipe, self.seed = contexts, contexts.sampler, recipe, seed
        self.problems: list[Candidate] = []
        self.alone: ContextsByShape = {}  # contexts of which no such problem is known

    def losses_of_round(self) -> LossOfStep:
        self.add(self.poor)
        return self.losses

    def add(self, poor: ContextsByShape) -> None:
        """Find one training problem for each context; those without one stand alone."""
        sites = self.contexts.training_sites(poor)
        for shape, contexts in poor.items():
            for tokens, context in contexts.items():
                problem = self.problem(shape, context, sites[shape])
                if problem is not None:
                    self.problems.append(problem)
                else:
                    self.alone.setdefault(shape, {})[tokens] = context

    def problem(self, shape: Shape, context: Context, sites: Iterable[Site]) -> Candidate | None:
        """A problem that training can have and that holds a context, at one of the sites where its shape stands."""
        for site in sites:
            operands = self.contexts.problem(shape, context, site)
            if operands is not None and possible_in_training(self.sampler, operands):
                return Candidate(site[0], operands)
        return None

    def losses(self, step: int, rows: int) -> Iterator[Tensor]:
        """The loss of a step's batch, and that of contexts that stand alone where there are any."""
        for loss, _ in losses_in_parts(self.model, self.batch(step, rows), phases(self.model, self.seed, step, rows)):
            yield loss
        if self.alone:
            yield self.loss_alone(step)

    def batch(self, step: int, rows: int) -> Batch:
        if step % 2 or not self.problems:
            return self.sampler.training_batch(self.seed, step, rows)
        rng = generator(self.seed, AGAIN, step)
        width = self.problems[int(rng.integers(len(self.problems)))].width
        problems = [problem.operands for problem in self.problems if problem.width == width]
        indices = rng.choice(len(problems), min(self.recipe.again, rows // 4))  # few problems stand there many times
        again = [np.concatenate(digits) for digits in zip(*(problems[index] for index in indices), strict=True)]
        return self.sampler.training_batch(self.seed, step, rows, again, width)

    def loss_alone(self, step: int) -> Tensor:
        """Cross-entropy of the right tokens of some contexts of one shape."""
        rng, shapes = generator(self.seed, AGAIN, step), [*self.alone]
        shape = shapes[int(rng.integers(len(shapes)))]
        block = Block.of(self.alone[shape].values())
        indices = rng.choice(len(block), min(PRACTISED_AT_ONCE, len(block)), replace=False)
        return loss_of_contexts(self.model, shape, block.part(indices))


def contexts_to_practise(
    model: Transformer | ModelConfig, sampler: Sampler, recipe: TrainingConfig, rounds: int
) -> SampledContexts:
    """All contexts of a model; InputError where there are more than are tried in so many rounds."""
    contexts = contexts_of(model, sampler)
    count, limit = sum(contexts.counts.values()), CONTEXTS_A_STEP * recipe.steps * max(1, rounds)
    if count > limit:
        raise InputError(f"no practice: there are {count:,} contexts, and at most {limit:,} are tried")
    return contexts


def practise(
    model: Transformer,
    sampler: Sampler,
    recipe: TrainingConfig,
    seed: int,
    rounds: int,
    report: Report | None = None,
    contexts: SampledContexts | None = None,
) -> PracticeResult:
    """Train a model on until it is certified, at most so many rounds; of a certified one weights are rounded, no more.

    `recipe` is that of one of the first rounds; later ones have a lower rate. Of every second batch, `recipe.again`
    problems hold wrong contexts. `contexts` are the model's, if they are listed already. InputError for a model that
    can have no certificate.
    """
    contexts = contexts or contexts_to_practise(model, sampler, recipe, rounds)
    practice, problems = ProblemPractice(model, contexts, recipe, seed), ProblemLosses(model, sampler, recipe, seed)
    largest = LARGEST_OF_5_BITS if model.config.norm == "none" else LARGEST_WEIGHT

    def validate() -> Validation:
        with rounded(model, largest):
            return problems.validate()

    round_weights(model, largest)
    progress, recipes = Progress(history=[first_row(problems)]), recipes_of_rounds(recipe, rounds)
    result = until_certified(model, practice, recipes, seed, progress, report, validate, largest)
    return replace(result, alone=sum(map(len, practice.alone.values())))


@contextmanager
def rounded(model: nn.Module, largest: int) -> Iterator[None]:
    """With rounded weights, and then those before: gradients at the first change the second ("straight through").

    Else a training would not know what rounding to a few bits does (Courbariaux et al. 2015, section 2.3).
    """
    saved = [weights.detach().clone() for weights in model.parameters()]
    round_weights(model, largest)
    try:
        yield
    finally:
        with torch.no_grad():
            for weights, before in zip(model.parameters(), saved, strict=True):
                weights.copy_(before)


def as_rounded(model: nn.Module, losses: LossOfStep, largest: int) -> LossOfStep:
    """The losses with rounded weights."""

    def of_step(step: int, rows: int) -> Iterator[Tensor]:
        with rounded(model, largest):
            yield from losses(step, rows)

    return of_step


def first_row(problems: ProblemLosses) -> Validation:
    """The first row of the history: the model before practice, with its loss on held-out problems."""
    with evaluating(problems.model) as device:
        losses = [loss_of(problems.model, batch.to(device))[0] for batch in problems.held_out]
    loss = float(f"{torch.stack(losses).mean().item():.5g}")
    return {"step": 0, "seconds": 0.0, "loss": loss} | problems.validate()


def possible_in_training(sampler: Sampler, operands: Sequence[np.ndarray]) -> bool:
    """Whether training can have numbers as large; lists are as large as their width."""
    limit, base = sampler.task.training_limit + 1, sampler.task.base
    return not sampler.pads or all(bool(is_below(digits, limit, base)[0]) for digits in operands)
