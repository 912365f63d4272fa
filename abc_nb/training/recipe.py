"""Recipes: how long a training is, how many samples a step has, and which optimisers run at which rate.

`TrainingConfig` is that of this package's models, and `OneCycle` a usual one for models of `transformers`. A recipe is
given the `history` so far, one row for each validation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

from torch import nn
from torch.optim import AdamW, Optimizer

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.training.optimizers import muon_and_adamw

Validation = dict[str, float]  # step, seconds and loss, and what the training's own validation adds, as accuracy


class Schedule(NamedTuple):
    """The steps at which the learning rate begins to fall and reaches zero, where the training ends."""

    fall: int
    end: int

    def rate(self, step: int, warmup: int) -> float:
        """Relative learning rate of a step: a linear warm-up, a constant, and a linear fall to zero."""
        return min(1.0, (step + 1) / max(1, warmup), (self.end - step) / max(1, self.end - self.fall))


@dataclass(frozen=True)
class TrainingConfig:
    """The recipe of this package's models; the task is that of the experiment."""

    steps: int = 1600  # at most
    batch: int = 64
    held_batch: int = 256  # while the rate is held: a small batch shows little of a task before it is being learned
    optimizer: Literal["muon", "adamw"] = "muon"  # muon: on the layers' matrices, AdamW on the rest
    learning_rate: float = 5e-3  # AdamW's
    matrix_learning_rate: float = 1e-2  # Muon's
    warmup: int = 50  # steps of linear warm-up
    again: int = 16  # problems of a batch that repeat earlier ones which were answered wrong
    hold: int = 800  # steps at the full rate, at most
    learned: float = 0.5  # validation accuracy that ends them earlier; above 1: none does
    clip: float = 1.0  # largest gradient norm
    validate_every: int = 50  # steps
    validation: int = 1024  # problems from numbers never trained on

    def __post_init__(self) -> None:
        check_fields(self)
        for field in fields(self):
            value, is_integer = getattr(self, field.name), field.type is int
            least = 0 if field.name in ("warmup", "again") else 1
            if not isinstance(value, str | bool) and not (value >= least if is_integer else 0 < value < math.inf):
                possible = f"{least} or more" if is_integer else "a positive number"
                raise InputError(f"a training cannot have {field.name}={value}: give {possible}")

    def slower(self) -> "TrainingConfig":
        """The same at a fifth of the rate."""
        return replace(self, learning_rate=self.learning_rate / 5, matrix_learning_rate=self.matrix_learning_rate / 5)

    def schedule(self, history: Sequence[Validation]) -> Schedule:
        """The rate falls once the task is learned, or after `hold` steps, and is zero at ten times that step."""
        learned_at = [int(row["step"]) for row in history if row.get("accuracy", 0.0) >= self.learned]
        fall = min([*learned_at, self.hold])
        return Schedule(fall, min(10 * fall, self.steps))

    def optimizers(self, model: nn.Module) -> list[Optimizer]:
        return muon_and_adamw(model, self.learning_rate, self.matrix_learning_rate if self.optimizer == "muon" else 0)

    def end(self, history: Sequence[Validation]) -> int:
        """How many steps the training has, as far as is known."""
        return self.schedule(history).end

    def rows(self, step: int, history: Sequence[Validation]) -> int:
        """How many samples a step has."""
        return self.held_batch if step < self.schedule(history).fall else self.batch

    def set_rates(self, optimizers: Sequence[Optimizer], step: int, history: Sequence[Validation]) -> None:
        """Set the learning rates of a step."""
        relative = self.schedule(history).rate(step, self.warmup)
        for optimizer, rate in zip(optimizers, (self.learning_rate, self.matrix_learning_rate), strict=False):
            optimizer.param_groups[0]["lr"] = rate * relative


@dataclass(frozen=True)
class OneCycle:
    """AdamW under a one-cycle learning rate (Smith and Topin 2018), as `torch.optim.lr_scheduler.OneCycleLR` has it."""

    steps: int
    batch: int
    rate: float  # at its highest
    betas: tuple[float, float] = (0.9, 0.999)  # the first one goes from 0.95 to 0.85 and back
    weight_decay: float = 0.01
    clip: float = math.inf
    validate_every: int = 1  # the history has the loss of every step

    def __post_init__(self) -> None:
        check_fields(self, steps=1, batch=1, rate=0, weight_decay=0, clip=0, validate_every=1)

    def slower(self) -> "OneCycle":
        """The same at a fifth of the rate."""
        return replace(self, rate=self.rate / 5)

    def optimizers(self, model: nn.Module) -> list[Optimizer]:
        return [AdamW(model.parameters(), self.rate, self.betas, weight_decay=self.weight_decay)]

    def end(self, history: Sequence[Validation]) -> int:
        return self.steps

    def rows(self, step: int, history: Sequence[Validation]) -> int:
        return self.batch

    def set_rates(self, optimizers: Sequence[Optimizer], step: int, history: Sequence[Validation]) -> None:
        """Up from a 25th of the rate in three tenths of the steps, and down to next to nothing in the others."""
        first, last = self.rate / 25, self.rate / 25 / 1e4
        peak, end = 0.3 * self.steps - 1, self.steps - 1
        rising = step <= peak
        share = step / peak if rising else (step - peak) / (end - peak)
        for optimizer in optimizers:
            group = optimizer.param_groups[0]
            group["lr"] = between(first, self.rate, share) if rising else between(self.rate, last, share)
            beta = between(0.95, 0.85, share) if rising else between(0.85, 0.95, share)
            group["betas"] = (beta, *group["betas"][1:])


def between(start: float, end: float, share: float) -> float:
    """A number on the way from `start` to `end` along half a cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


Recipe = TrainingConfig | OneCycle
