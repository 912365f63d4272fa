"""Repair: training goes on with problems that hold wrong contexts, in rounds, until a certificate finds none.

The problems are those of `practice`: numbers up to 2^20, as in training before. No longer number is trained on, or
looked at to decide anything. They are chosen for their contexts, so numbers kept for validation can be among them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abc_nb.certificates.certify import Certificate, certificate_of, try_model
from abc_nb.certificates.practice_problems import Practice, practice
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits, is_below
from abc_nb.problems.sampling import AGAIN, Batch, Sampler, generator
from abc_nb.problems.tables import Tables
from abc_nb.problems.tasks import NUMBERS
from abc_nb.training.batches import Batches
from abc_nb.training.checkpoints import load_checkpoint, save_checkpoint
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import Progress, Schedule, TrainingConfig
from abc_nb.training.trainer import Trainer, loss_of


class Practised(Batches):
    """In each batch some problems that hold wrong contexts; which ones stays the same for a round."""

    def batch(self, step: int, size: int) -> Batch:
        """Of tables, every second batch is as in training, and the others have the size of a problem to practise."""
        if not isinstance(self.sampler.task, Tables):
            return super().batch(step, size)
        if step % 2:
            return self.sampler.training_batch(self.seed, step, size)
        *operands, sizes = self.missed
        rng = generator(self.seed, AGAIN, step)
        width = sizes[rng.integers(len(sizes))]
        rows = rng.choice(np.flatnonzero((sizes == width).all(1)), min(self.config.again, size // 4))
        again = [digits[rows, :places] for digits, places in zip(operands, width, strict=True)]
        return self.sampler.training_batch(self.seed, step, size, again, tuple(width.tolist()))

    def again(self, step: int, size: int) -> list[Digits]:
        """Problems that hold wrong contexts, some of them several times; at most a quarter of the batch."""
        count = min(self.config.again, size // 4)
        rows = generator(self.seed, AGAIN, step).choice(len(self.missed[0]), count)
        return [digits[rows] for digits in self.missed]

    def remember(self, batch: Batch, wrong: torch.Tensor) -> None:
        """What is practised stays the same for a round."""


class Repair(Trainer):
    """Trains a model on until it is certified, at most so many rounds; a certified model is left as it is.

    `config` counts the steps of all rounds, and the held steps of one; each round's rate falls to zero. Of each
    batch, `config.again` problems hold wrong contexts. The seconds of its progress include those of certificates.
    """

    def __init__(self, model: Transformer, sampler: Sampler, config: TrainingConfig, seed: int, rounds: int) -> None:
        super().__init__(model, sampler, config, seed, Practised(sampler, config, seed))
        if not 1 <= rounds <= config.steps:
            raise InputError(f"{rounds} rounds in {config.steps} steps are not possible: each takes a step at least")
        self.length = config.steps // rounds
        self.unfinished: Path | None = None  # where a killed certificate goes on
        self.before: Certificate | None = None
        self.found: Certificate | None = None
        self.practice = Practice([], 0)

    def run(self, checkpoint: Path | None = None, report: Callable[[Progress], None] | None = None) -> Progress:
        """Rounds of training, each followed by a certificate; a killed round goes on from `checkpoint`."""
        self.unfinished = checkpoint and checkpoint.with_name("contexts.unfinished")
        self.before = self.examine()
        self.validate_first()
        if checkpoint is not None and checkpoint.exists():
            load_checkpoint(checkpoint, self)
        in_a_round = self.progress.step % self.length > 0
        if self.progress.step and not in_a_round:
            self.examine()
        while in_a_round or self.goes_on():
            if not in_a_round:
                self.batches.missed = self.practice.operands
                if checkpoint is not None:
                    save_checkpoint(checkpoint, self)
            self.train_a_round(checkpoint, report)
            in_a_round = False
            self.examine()
        return self.progress

    def goes_on(self) -> bool:
        """Whether there is something to practise and a round left for it."""
        assert self.found is not None
        left = self.progress.step + self.length <= self.config.steps
        return left and not self.found.certified and bool(self.practice.operands)

    def examine(self) -> Certificate:
        """Certify the model as it is, and find what to practise."""
        start = time.perf_counter()
        results = try_model(self.model, self.sampler, path=self.unfinished)
        self.found = certificate_of(self.model, self.sampler, results)
        self.practice = practice(self.model, self.sampler, results) if self.found.wrong else Practice([], 0)
        for digits in self.practice.operands:  # sizes are small numbers, too
            assert is_below(digits, NUMBERS + 1, self.sampler.task.base).all()
        self.progress.seconds += time.perf_counter() - start
        return self.found

    def train_a_round(self, checkpoint: Path | None, report: Callable[[Progress], None] | None) -> None:
        first = self.progress.step // self.length * self.length
        self.train(checkpoint, report, Schedule(first + self.config.hold, first + self.length))

    def validate_first(self) -> None:
        """The first row of the history: the model that the repair begins with."""
        batches = self.sampler.validation_batches(self.seed, self.config.validation)
        batches = [batch.to(self.device) for batch in batches]
        with evaluating(self.model):
            loss = torch.stack([loss_of(self.model, batch)[0] for batch in batches]).mean()
        self.validate(batches, loss)

    @property
    def facts(self) -> dict[str, Any]:
        """What the repair did: rounds, wrong contexts before and after, and how many no training problem shows."""
        assert self.before is not None and self.found is not None
        return {
            "rounds": -(-self.progress.step // self.length),
            "contexts": self.found.contexts,
            "wrong_before": self.before.wrong,
            "wrong_after": self.found.wrong,
            "left": self.practice.left,
            "named": [example.problem for example in self.found.counterexamples],
            "certified": self.found.certified,
        }
