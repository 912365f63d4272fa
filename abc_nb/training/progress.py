"""The recipe of a training, and where a training stands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError

Validation = dict[str, float]  # step, seconds, loss and accuracy


@dataclass(frozen=True)
class TrainingConfig:
    """The recipe; what is learned stands in the experiment."""

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
        for each in fields(self):
            value, counted = getattr(self, each.name), each.type is int
            least = 0 if each.name in ("warmup", "again") else 1
            if not isinstance(value, str) and not (value >= least if counted else 0 < value < math.inf):
                wanted = f"{least} or more" if counted else "a positive number"
                raise InputError(f"a training cannot have {each.name}={value}: give {wanted}")

    def slower(self) -> "TrainingConfig":
        """The same at a fifth of the rate."""
        return replace(self, learning_rate=self.learning_rate / 5, matrix_learning_rate=self.matrix_learning_rate / 5)


class Schedule(NamedTuple):
    """The steps at which the learning rate begins to fall and reaches zero, where the training ends."""

    fall: int
    end: int

    def rate(self, step: int, warmup: int) -> float:
        """Relative learning rate of a step: a linear warm-up, a constant, and a linear fall to zero."""
        return min(1.0, (step + 1) / max(1, warmup), (self.end - step) / max(1, self.end - self.fall))


def schedule(history: Sequence[Validation], config: TrainingConfig) -> Schedule:
    """When the rate falls: once the task is learned, or after `hold` steps; ten times as many steps are the end."""
    learned = [int(row["step"]) for row in history if row["accuracy"] >= config.learned]
    fall = min([*learned, config.hold])
    return Schedule(fall, min(10 * fall, config.steps))


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    seconds: float = 0.0  # of training, over all resumptions
    history: list[Validation] = field(default_factory=list)  # one row a validation
