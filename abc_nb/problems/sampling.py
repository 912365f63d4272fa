"""Samples: training batches, validation and test sets (v4 appendix B).

Each training step follows from (seed, step), so that a resumed run sees what an uninterrupted one would have seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems import drawing
from abc_nb.problems.digits import Digits, number_range
from abc_nb.problems.layouts import Arrangement, Layout
from abc_nb.problems.tasks import NUMBERS, PADDED, Regime, Task, Width, single_width, width_pair

TRAIN, VALIDATION, TEST, SPLIT, PHASE, CALIBRATION, AGAIN = range(7)  # what a generator is for: part of its seed


@dataclass(frozen=True)
class Batch:
    """Tokens of problems that share one layout."""

    source: Tensor  # (batch, source_length)
    target: Tensor  # (batch, target_length + 1): SOS, the output digits, EOS
    layout: Layout

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(self.source.to(device), self.target.to(device), self.layout)

    def split(self, rows: int) -> "list[Batch]":
        """The problems in order, so many at a time."""
        parts = zip(self.source.split(rows), self.target.split(rows), strict=True)
        return [Batch(source, target, self.layout) for source, target in parts]

    def operands(self, rows: Tensor, task: Task) -> list[Digits]:
        """The digits of some problems' operands, least significant first; a digit that fills every place is one."""
        return task.operands(self.source[rows].cpu().numpy(), self.layout)


def generator(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng((seed, *purpose))


@lru_cache(maxsize=8)
def split_numbers(seed: int, limit: int = NUMBERS) -> tuple[np.ndarray, np.ndarray]:
    """A random permutation of [0, 2^20], split 7:1 into training and validation numbers; those up to `limit`."""
    numbers = generator(seed, SPLIT).permutation(NUMBERS + 1)
    cut = len(numbers) * 7 // 8
    training, validation = (part[part <= limit] for part in (numbers[:cut], numbers[cut:]))
    return training, validation


@dataclass(frozen=True)
class Sampler:
    """Training and validation problems of a task, as the model sees them."""

    RETIRED = (("fixed", None),)  # fields of older records

    task: Task
    arrangement: Arrangement = "natural"
    regime: Regime = "tight"  # how many columns operands take: see `Task.width_for`
    width_count: int = 1  # consecutive training widths, tight regime

    def __post_init__(self) -> None:
        check_fields(self, width_count=1)
        if self.regime == "unpadded" and self.arrangement != "as-written" and self.task.grows:
            raise InputError("results can need a place more, and unpadded problems have it as-written alone")

    @property
    def widths(self) -> tuple[Width, ...]:
        """Widths seen in training."""
        return self.task.training_widths(self.regime, self.width_count)

    @property
    def widest(self) -> Width:
        return max(self.widths, key=width_pair)

    def numbers(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation numbers whose results fit the narrowest training width."""
        return split_numbers(seed, self.task.training_limit)

    @property
    def pads(self) -> bool:
        """Whether zeros stand in front of numbers, so that the same problem can be given at any width."""
        return self.regime != "unpadded" and self.task.pads

    def training_batch(
        self, seed: int, step: int, size: int, again: Sequence[Digits] = (), width: Width | None = None
    ) -> Batch:
        """Batch number `step`, of one of the training widths or of a given one; `again` are operands to put into it."""
        rng = generator(seed, TRAIN, step)
        width = width or self.widths[rng.integers(len(self.widths))]
        operands = self.draw(self.numbers(seed)[0], size - (len(again[0]) if again else 0), width, rng)
        if again:
            parts = zip(operands, self.task.widen(again, width), strict=True)
            operands = [np.concatenate(part) for part in parts]
        return self.batch(operands, width)

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """The operands of so many problems, from numbers of `pool`: of unpadded ones, those that fill the width."""
        if self.regime == "unpadded" and self.task.pads:
            low, high = number_range(single_width(width), self.task.base)
            pool = pool[(pool >= low) & (pool < high)]
            if not len(pool):
                raise InputError(f"no number of {width} digits in base {self.task.base} is left: take another regime")
        return drawing.training_operands(self.task, pool, count, width, rng)

    def batch(self, operands: Sequence[Digits], width: Width) -> Batch:
        layout = self.task.layout(width, self.arrangement)
        source, target = self.task.source(operands, layout), self.task.target(operands, layout)
        return Batch(torch.from_numpy(source), torch.from_numpy(target), layout)

    def calibration_batch(self, seed: int, size: int = 1000, padding: bool = False) -> Batch:
        """Training problems of the largest width, to average attention over (v4 appendix D, step 1).

        Columns of padded problems that hold zeros alone are left out, unless `padding` keeps them, as in the paper.
        """
        operands = self.draw(self.numbers(seed)[0], size, self.widest, generator(seed, CALIBRATION))
        batch = self.batch(operands, self.widest)
        if padding or self.regime not in PADDED or batch.layout.row_length:
            return batch
        filled = self.task.training_width
        layout = replace(batch.layout, target_length=min(filled, batch.layout.target_length), filled=filled)
        return Batch(batch.source, batch.target[:, : layout.target_length + 1], layout)

    def validation_batches(self, seed: int, size: int) -> list[Batch]:
        """`size` problems in all, at each training width in turn: of numbers never trained on, or random lists."""
        rng, pool = generator(seed, VALIDATION), self.numbers(seed)[1]
        share = -(-size // len(self.widths))
        return [self.batch(self.draw(pool, share, width, rng), width) for width in self.widths]

    def layout(self, length: int) -> Layout:
        """Where the tokens of problems of `length` digits stand."""
        return self.task.layout(self.task.width(length, self.regime), self.arrangement)

    def test_batch(self, length: Width, samples: int, seed: int) -> Batch:
        """The test set of `length`-digit operands; of two lengths for factors that lead to a table."""
        width = length if isinstance(length, tuple) else self.task.width(length, self.regime)
        size = width if isinstance(width, tuple) else (single_width(length),)
        operands = drawing.operands_of_length(self.task, length, samples, width, generator(seed, TEST, *size))
        return self.batch(operands, width)

    def typed_batch(self, text: str) -> Batch:
        """A typed problem as a batch of one, as wide as it is written: zeros in front count."""
        operands = self.task.read(text)
        width = self.task.width_of(operands, self.regime)
        return self.batch(self.task.widen(operands, width), width)
