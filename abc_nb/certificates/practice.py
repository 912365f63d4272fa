"""Practice: training goes on with problems that hold wrong contexts, in rounds, until a certificate finds none.

The problems are as in training: numbers up to 2^20 at training widths, or tables of training sizes. No longer number
is trained on, or looked at to decide anything. They are chosen for their contexts, so numbers kept for validation can
be among them. A wrong context of which no such problem is found is practised by itself: the loss is taken of the logits
that the model computes from the context, without a problem around it.

Weights are rounded to 8 bits before each certificate, so that what is certified takes a quarter of the space.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.certify import Attempt, Certificate, Result, SampledContexts, attempt, contexts_of
from abc_nb.certificates.contexts import Context, Contexts, Shape
from abc_nb.certificates.counterexamples import Candidate
from abc_nb.certificates.rounding import Exact
from abc_nb.certificates.states import States
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import is_below
from abc_nb.problems.sampling import AGAIN, Batch, Sampler, generator
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import Progress, TrainingConfig
from abc_nb.training.trainer import Batches, Report, Trainer, loss_of

MOST = 300_000  # contexts for each step that practice may take: a model with more is neither rounded nor practised
EXAMPLES = 100  # wrong contexts of one shape that are practised in a round
SMALL = 0.5  # a margin below it is practised, too: what is practised beside it could turn it wrong
QUICK = 4  # rounds, after which training is slower: else the last wrong contexts come and go
AT_ONCE = 64  # contexts without a problem that a step practises, all of one shape

Alone = dict[Shape, dict[bytes, Context]]  # contexts that are practised without a problem


def put(alone: Alone, shape: Shape, contexts: Iterable[Context]) -> None:
    alone.setdefault(shape, {}).update((context[0].tobytes(), context) for context in contexts)


class ToPractise(Batches):
    """What practice has collected in its rounds: the contexts of earlier rounds stay in it, lest they are forgotten.

    Every second batch is as in training; the others have the width of a problem to practise, and hold such.
    """

    def __init__(self, sampler: Sampler, config: TrainingConfig, seed: int) -> None:
        super().__init__(sampler, config, seed)
        self.problems: list[Candidate] = []
        self.alone: Alone = {}
        self.first = 0  # steps that the rounds before took

    def add(self, contexts: SampledContexts, results: Sequence[Result]) -> None:
        """Find one training problem for each context that is wrong or nearly so; those without one stand alone."""
        narrow = [each for each in results if each.margin < SMALL]
        sites = contexts.in_training([each.shape for each in narrow])
        for each in narrow:
            for context in poor(each):
                for site in sites[each.shape]:
                    operands = contexts.problem(each.shape, context, site)
                    if operands is not None and fits(self.sampler, operands):
                        self.problems.append(Candidate(site[0], operands))
                        break
                else:
                    put(self.alone, each.shape, [context])

    def batch(self, step: int, size: int) -> Batch:
        step += self.first
        if step % 2 or not self.problems:
            return self.sampler.training_batch(self.seed, step, size)
        rng = generator(self.seed, AGAIN, step)
        width = self.problems[int(rng.integers(len(self.problems)))].width
        alike = [each.operands for each in self.problems if each.width == width]
        rows = rng.choice(len(alike), min(self.config.again, size // 4))  # few problems stand there many times
        again = [np.concatenate(digits) for digits in zip(*(alike[row] for row in rows), strict=True)]
        return self.sampler.training_batch(self.seed, step, size, again, width)

    def remember(self, batch: Batch, wrong: Tensor) -> None:
        """What is practised stays the same for a round."""

    def loss(self, model: Transformer, step: int) -> Tensor:
        """Cross-entropy of the right tokens of some contexts of one shape, from the model's own layers."""
        rng, shapes = generator(self.seed, AGAIN, self.first + step), [*self.alone]
        shape = shapes[int(rng.integers(len(shapes)))]
        every = [*self.alone[shape].values()]
        some = [every[row] for row in rng.choice(len(every), min(AT_ONCE, len(every)), replace=False)]
        return loss_of_contexts(model, shape, np.stack([values for values, _ in some]), [right for _, right in some])


class PractiseTrainer(Trainer):
    """Trains one round: the loss of each batch, and that of contexts that stand alone where there are any."""

    batches: ToPractise

    def gradients(self, batch: Batch, phase: Tensor | int) -> tuple[Tensor, Tensor]:
        found = super().gradients(batch, phase)
        if self.batches.alone:
            self.batches.loss(self.model, self.progress.step).backward()
        return found


def poor(result: Result) -> list[Context]:
    """The contexts of a shape that are wrong or nearly so, as far as they are kept."""
    return [*result.examples[:EXAMPLES], *(context for margin, context in result.narrow if 0 < margin < SMALL)]


def loss_of_contexts(model: Transformer, shape: Shape, values: np.ndarray, right: Sequence[int] | np.ndarray) -> Tensor:
    """Cross-entropy of the right tokens of contexts of one shape, (contexts, atoms), from the model's own layers."""
    logits = States(Exact(model), shape.atoms).take(values).logits(shape.root)
    return F.cross_entropy(logits, torch.tensor(right, device=logits.device))


@dataclass(frozen=True)
class Practised:
    """What practice did to a model."""

    certificates: list[tuple[Certificate, ...]]  # before practice, and after each round
    progress: Progress  # over all rounds, with the seconds of certificates
    alone: int = 0  # contexts that were practised without a problem

    @property
    def facts(self) -> dict[str, Any]:
        """As plain data, for the record of a run with one certificate."""
        (first,), (last,) = self.certificates[0], self.certificates[-1]
        return {
            "rounds": len(self.certificates) - 1,
            "contexts": last.contexts,
            "wrong_before": first.wrong,
            "wrong_after": last.wrong,
            "alone": self.alone,
        }


def practise(
    model: Transformer,
    sampler: Sampler,
    config: TrainingConfig,
    seed: int,
    rounds: int,
    report: Report | None = None,
) -> Practised:
    """Train a model on until it is certified, at most so many rounds; of a certified one weights are rounded, no more.

    `config` is the training of one of the first rounds; later ones have a lower rate. Of every second batch,
    `config.again` problems hold wrong contexts. InputError for a model that can have no certificate.
    """
    contexts, practice = contexts_of(model, sampler), ToPractise(sampler, config, seed)
    count, most = sum(contexts.counts.values()), MOST * config.steps * rounds
    if count > most:
        raise InputError(f"no practice: there are {count:,} contexts, and at most {most:,} are tried")
    round_weights(model)

    def trainer(attempts: Sequence[Attempt], step: int) -> Trainer:
        practice.add(contexts, attempts[0].results)
        practice.first = step
        own = config if step < QUICK * config.steps else config.slower()
        return PractiseTrainer(model, sampler, own, seed, practice)

    history = [first_row(Trainer(model, sampler, config, seed))]
    found = in_rounds(model, [contexts], rounds, trainer, report, history)
    return replace(found, alone=sum(map(len, practice.alone.values())))


def first_row(trainer: Trainer) -> dict[str, float]:
    """The first row of the history: the model before practice."""
    batches = trainer.sampler.validation_batches(trainer.seed, trainer.config.validation)
    batches = [batch.to(trainer.device) for batch in batches]
    with evaluating(trainer.model):
        loss = torch.stack([loss_of(trainer.model, batch)[0] for batch in batches]).mean()
    trainer.validate(batches, loss)
    return trainer.progress.history[0]


def in_rounds(
    model: Transformer,
    contexts: Sequence[Contexts],
    rounds: int,
    trainer: Callable[[Sequence[Attempt], int], Trainer],
    report: Report | None = None,
    history: Sequence[dict[str, float]] = (),
) -> Practised:
    """Certify a rounded model, before practice and after each round, at most so many, until all are certified.

    `trainer` makes the training of a round from what trying the contexts gave, and the steps so far. `history` is that
    before the first round.
    """
    start, found, progress = time.perf_counter(), list[tuple[Certificate, ...]](), Progress(history=[*history])
    while True:
        attempts = [attempt(model, each) for each in contexts]
        found.append(tuple(each.certificate for each in attempts))
        progress.seconds = time.perf_counter() - start
        if len(found) > rounds or all(each.certified for each in found[-1]):
            return Practised(found, progress)
        trainer(attempts, progress.step).run(report=partial(add, progress, replace(progress), report))
        round_weights(model)


def add(progress: Progress, before: Progress, report: Report | None, own: Progress) -> None:
    """Add what one training has done to the progress `before` it."""
    steps, seconds = before.step, before.seconds
    rows = [row | {"step": steps + row["step"], "seconds": seconds + row["seconds"]} for row in own.history]
    progress.step, progress.seconds = steps + own.step, seconds + own.seconds
    progress.history = [*before.history, *rows]
    if report is not None:
        report(progress)


def fits(sampler: Sampler, operands: Sequence[np.ndarray]) -> bool:
    """Whether training can have numbers as large; lists and tables are as large as their width."""
    limit, base = sampler.task.training_limit + 1, sampler.task.base
    return not sampler.pads or all(bool(is_below(each, limit, base)[0]) for each in operands)
