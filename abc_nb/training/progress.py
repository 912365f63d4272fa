"""The recipe of a training, and where a training stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError


@dataclass(frozen=True)
class TrainingConfig:
    """The recipe; what is learned stands in the experiment.

    A task whose every digit depends on two shows little of itself in a small batch; once it is being
    learned, many small steps do more than few large ones.
    """

    steps: int = 1600  # at most
    batch: int = 64
    held_batch: int = 256  # while the rate is held
    optimizer: Literal["muon", "adamw"] = "muon"  # muon: on the layers' matrices, AdamW on the rest
    learning_rate: float = 5e-3  # AdamW's
    matrix_learning_rate: float = 1e-2  # Muon's
    warmup: int = 50  # steps of linear warm-up
    again: int = 16  # problems of a batch that repeat earlier ones which were answered wrong
    hold: int = 800  # steps at the full rate, at most
    learned: float = 0.5  # validation accuracy that ends them earlier
    clip: float = 1.0  # largest gradient norm
    validate_every: int = 50  # steps
    validation: int = 1024  # problems from numbers never trained on

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.steps, self.hold, self.batch, self.held_batch, self.validate_every) < 1:
            raise InputError(
                "a training needs at least one step, one held step and one problem a batch, and a step to validate at"
            )


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    seconds: float = 0.0  # of training, over all resumptions
    history: list[dict[str, float]] = field(default_factory=list)  # one row a validation

    def fall(self, config: TrainingConfig) -> tuple[int, int]:
        """The steps at which the rate begins to fall and reaches zero; the training ends there.

        It begins when validation shows that the task is being learned, or at the end of `hold`; the
        whole training takes at most ten times as long as it took to get there.
        """
        learned = (int(row["step"]) for row in self.history if row["accuracy"] >= config.learned)
        start = min(next(learned, config.hold), config.hold)
        return start, min(10 * start, config.steps)

    def finished(self, config: TrainingConfig) -> bool:
        return self.step >= self.fall(config)[1]
