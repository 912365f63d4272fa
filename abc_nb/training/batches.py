"""What a training is given in each step: fresh problems, and some that were answered wrong lately."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from abc_nb.problems.digits import Digits
from abc_nb.problems.sampling import AGAIN, Batch, Sampler, generator
from abc_nb.training.progress import TrainingConfig


class Batches:
    """Fresh problems, `config.again` of them replaced by problems that were answered wrong lately.

    A context that one problem in a hundred thousand shows is learned when it has been met once,
    instead of being met once.
    """

    def __init__(self, sampler: Sampler, config: TrainingConfig, seed: int) -> None:
        self.sampler, self.config, self.seed = sampler, config, seed
        self.missed: list[Digits] = []  # operands, (problems, places) each; a checkpoint keeps them

    def batch(self, step: int, size: int) -> Batch:
        """The problems of one step."""
        return self.sampler.training_batch(self.seed, step, size, self.again(step, size))

    def again(self, step: int, size: int) -> list[Digits]:
        """Problems to practise again, drawn from those missed lately; at most a quarter of the batch."""
        if not self.missed or not self.config.again:
            return []
        count = min(self.config.again, size // 4, len(self.missed[0]))
        rows = generator(self.seed, AGAIN, step).choice(len(self.missed[0]), count, replace=False)
        return [digits[rows] for digits in self.missed]

    def remember(self, batch: Batch, wrong: Tensor) -> None:
        """Keep the last problems that were answered wrong, as many as a batch holds; `wrong` is (batch,)."""
        if not self.sampler.pads or self.sampler.fixed is not None or not wrong.any():
            return
        new = [digits[:, : self.sampler.widths[0]] for digits in batch.operands(wrong, self.sampler.task)]
        old = self.missed or [digits[:0] for digits in new]
        self.missed = [np.concatenate(pair)[-self.config.batch :] for pair in zip(old, new, strict=True)]
