"""Practice: training goes on with problems that hold wrong contexts, in rounds, until a certificate finds none.

The problems are as in training: numbers up to 2^20 at training widths, or tables of training sizes. No longer number
is trained on, or looked at to decide anything. They are chosen for their contexts, so numbers kept for validation can
be among them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_nb.certificates.certify import Certificate, certificate_of, contexts_of
from abc_nb.certificates.contexts import Candidate, Contexts
from abc_nb.certificates.tried import Tried, try_all
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import is_below
from abc_nb.problems.sampling import AGAIN, Batch, Sampler, generator
from abc_nb.training.batches import Batches
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import Progress, TrainingConfig
from abc_nb.training.trainer import Report, Trainer, loss_of

EXAMPLES = 100  # wrong contexts of one shape that are practised in a round


@dataclass(frozen=True)
class Practised:
    """What practice did to a model."""

    certificates: tuple[Certificate, ...]  # of the model before practice, and after each round
    left: int  # wrong contexts at the beginning of the last round of which no training problem was found
    progress: Progress  # over all rounds; its history begins with the model before practice

    @property
    def certified(self) -> bool:
        return self.certificates[-1].certified

    @property
    def facts(self) -> dict[str, Any]:
        """As plain data, for the manifest of a run."""
        before, after = self.certificates[0], self.certificates[-1]
        return {
            "rounds": len(self.certificates) - 1,
            "contexts": after.contexts,
            "wrong_before": before.wrong,
            "wrong_after": after.wrong,
            "left": self.left,
            "named": [example.problem for example in after.counterexamples],
            "certified": after.certified,
        }


def practise(
    model: Transformer,
    sampler: Sampler,
    config: TrainingConfig,
    seed: int,
    rounds: int,
    report: Report | None = None,
) -> Practised:
    """Train a model on until it is certified, at most so many rounds; a certified model is left as it is.

    `config` is the training of one round. Of every second batch, `config.again` problems hold wrong contexts.
    The seconds of progress include those of certificates. InputError for a model that can have no certificate.
    """
    start, contexts = time.perf_counter(), contexts_of(model, sampler)
    progress = Progress(history=[first_row(Trainer(model, sampler, config, seed))])
    results, left = try_all(contexts), 0
    certificates = [certificate_of(contexts, results)]
    while len(certificates) <= rounds and not certificates[-1].certified:
        problems = problems_to_practise(contexts, results)
        progress.seconds = time.perf_counter() - start
        left = certificates[-1].wrong - len(problems)
        if not problems:
            break
        batches = PractiseBatches(sampler, config, seed, problems, progress.step)
        train_a_round(Trainer(model, sampler, config, seed, batches), progress, report)
        results = try_all(contexts)
        certificates.append(certificate_of(contexts, results))
    progress.seconds = time.perf_counter() - start
    return Practised(tuple(certificates), left if certificates[-1].wrong else 0, progress)


def first_row(trainer: Trainer) -> dict[str, float]:
    """The first row of the history: the model before practice."""
    batches = trainer.sampler.validation_batches(trainer.seed, trainer.config.validation)
    batches = [batch.to(trainer.device) for batch in batches]
    with evaluating(trainer.model):
        loss = torch.stack([loss_of(trainer.model, batch)[0] for batch in batches]).mean()
    trainer.validate(batches, loss)
    return trainer.progress.history[0]


def train_a_round(trainer: Trainer, progress: Progress, report: Report | None) -> None:
    """One training, added to the progress of those before it."""
    first, seconds, history = progress.step, progress.seconds, [*progress.history]

    def add(own: Progress) -> None:
        rows = [row | {"step": first + row["step"], "seconds": seconds + row["seconds"]} for row in own.history]
        progress.step, progress.seconds, progress.history = first + own.step, seconds + own.seconds, [*history, *rows]
        if report is not None:
            report(progress)

    trainer.run(report=add)


class PractiseBatches(Batches):
    """Every second batch is as in training; the others have the width of a problem to practise, and hold such."""

    def __init__(
        self, sampler: Sampler, config: TrainingConfig, seed: int, problems: Sequence[Candidate], first: int
    ) -> None:
        """`first`: how many steps the rounds before took."""
        super().__init__(sampler, config, seed)
        self.problems, self.first = problems, first

    def batch(self, step: int, size: int) -> Batch:
        step += self.first
        if step % 2:
            return self.sampler.training_batch(self.seed, step, size)
        rng = generator(self.seed, AGAIN, step)
        width = self.problems[int(rng.integers(len(self.problems)))].width
        alike = [each.operands for each in self.problems if each.width == width]
        rows = rng.choice(len(alike), min(self.config.again, size // 4))
        again = [np.concatenate(digits) for digits in zip(*(alike[row] for row in rows), strict=True)]
        return self.sampler.training_batch(self.seed, step, size, again, width)

    def remember(self, batch: Batch, wrong: Tensor) -> None:
        """What is practised stays the same for a round."""


def problems_to_practise(contexts: Contexts, results: Sequence[Tried]) -> list[Candidate]:
    """One training problem for each wrong context that is kept, where one is found."""
    wrong = [each for each in results if each.wrong]
    sites = contexts.in_training([each.shape for each in wrong])
    found = []
    for each in wrong:
        for context in each.examples[:EXAMPLES]:
            problems = ((site[0], contexts.problem(each.shape, context, site)) for site in sites[each.shape])
            fitting = (Candidate(width, own) for width, own in problems if own is not None and fits(contexts, own))
            found += [problem for problem in [next(fitting, None)] if problem is not None]
    return found


def fits(contexts: Contexts, operands: Sequence[np.ndarray]) -> bool:
    """Whether training can have numbers as large; lists and tables are as large as their width."""
    limit, base = contexts.task.training_limit + 1, contexts.task.base
    return not contexts.sampler.pads or all(bool(is_below(each, limit, base)[0]) for each in operands)
