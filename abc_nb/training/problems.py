"""Learning a sampler's problems: fresh ones in each step, and among them some that were answered wrong lately."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.sampling import AGAIN, PHASE, Batch, Sampler, generator
from abc_nb.training.evaluation import exact_match
from abc_nb.training.fit import Progress, Report, Training
from abc_nb.training.recipe import TrainingConfig, Validation

PART = 2**20  # embedded numbers of a batch (tokens times width) that go through the model at once


class ProblemLosses:
    """The loss of a training on a sampler's problems, and its validation; what is rare is met again."""

    def __init__(self, model: Transformer, sampler: Sampler, recipe: TrainingConfig, seed: int) -> None:
        self.model, self.sampler, self.recipe, self.seed = model, sampler, recipe, seed
        self.missed: list[Digits] = []  # operands, (problems, places) each, of problems that were answered wrong

    def losses(self, step: int, rows: int) -> Iterator[Tensor]:
        """The parts of the mean loss of so many problems."""
        batch = self.sampler.training_batch(self.seed, step, rows, self.again(step, rows))
        wrong = list[Tensor]()
        for loss, wrong_in_part in losses_in_parts(self.model, batch, phases(self.model, self.seed, step, rows)):
            yield loss
            wrong.append(wrong_in_part)
        self.remember(batch, torch.cat(wrong))

    def again(self, step: int, rows: int) -> list[Digits]:
        """Problems to practise again, drawn from those missed lately; at most a quarter of the batch."""
        if not self.missed or not self.recipe.again:
            return []
        count = min(self.recipe.again, rows // 4, len(self.missed[0]))
        indices = generator(self.seed, AGAIN, step).choice(len(self.missed[0]), count, replace=False)
        return [digits[indices] for digits in self.missed]

    def remember(self, batch: Batch, wrong: Tensor) -> None:
        """Keep the last problems that were answered wrong, as many as a batch holds; `wrong` is (batch,)."""
        if not self.sampler.pads or not wrong.any():
            return
        new = [digits[:, : self.sampler.widths[0]] for digits in batch.operands(wrong.cpu(), self.sampler.task)]
        before = self.missed or [digits[:0] for digits in new]
        self.missed[:] = [np.concatenate(pair)[-self.recipe.batch :] for pair in zip(before, new, strict=True)]

    @cached_property
    def held_out(self) -> list[Batch]:
        """Problems of numbers that are never trained on."""
        return self.sampler.validation_batches(self.seed, self.recipe.validation)

    def validate(self) -> Validation:
        """The share of held-out problems that are answered right."""
        correct = torch.cat([exact_match(self.model, batch) for batch in self.held_out])
        return {"accuracy": correct.float().mean().item()}


def training_on(model: Transformer, sampler: Sampler, recipe: TrainingConfig, seed: int) -> Training:
    """The training of a model on a sampler's problems, before its first step."""
    problems = ProblemLosses(model, sampler, recipe, seed)
    return Training(model, problems.losses, recipe, seed, problems.validate, problems.missed)


def train(
    model: Transformer,
    sampler: Sampler,
    recipe: TrainingConfig,
    seed: int,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> Progress:
    """Train a model on a sampler's problems to the end, or go on from a checkpoint."""
    return training_on(model, sampler, recipe, seed).run(checkpoint, report)


def losses_in_parts(model: Transformer, batch: Batch, phase: Tensor | int) -> Iterator[tuple[Tensor, Tensor]]:
    """Losses of parts of a batch, which add up to its mean, and which problems of the part have a wrong token.

    On a CPU a large batch goes through the model in parts: what a part needs stays in the cache.
    """
    batch = batch.to(model.head.weight.device)
    tokens = batch.layout.source_length + batch.layout.target_length
    rows = len(batch.source) if batch.source.is_cuda else max(1, PART // (tokens * model.config.width))
    for number, part in enumerate(batch.split(rows)):
        part_phase = phase if isinstance(phase, int) else phase[number * rows : (number + 1) * rows]
        loss, wrong = loss_of(model, part, part_phase)
        yield loss * (len(part.source) / len(batch.source)), wrong


def loss_of(model: Transformer, batch: Batch, phase: Tensor | int = 0) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of the output tokens, teacher-forced, and which problems have a wrong one (batch,)."""
    logits, targets = model(batch.source, batch.target[:, :-1], batch.layout, phase=phase), batch.target[:, 1:]
    wrong = (logits.argmax(-1) != targets).any(1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), wrong


def phases(model: Transformer, seed: int, step: int, rows: int) -> Tensor | int:
    """Where positions start to count, for each sample of a step: (rows, 1), or 0 if they all start at zero.

    Six-digit numbers fill a cyclic index of period three only twice. Starting anywhere in it shows every residue
    next to every neighbour; otherwise some would meet only beyond the training length.
    """
    count = model.config.position.phases()
    if count == 1:
        return 0
    starts = generator(seed, PHASE, step).integers(count, size=(rows, 1))
    return torch.from_numpy(starts).to(model.head.weight.device)
