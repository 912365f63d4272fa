"""What identifies an experiment: a name that people type, and a digest of all that a run of it depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from abc_nb.common import paths
from abc_nb.common.config import digest
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task

LABELS = ("identity", "profile", "changes", "tests")  # fields of specs that do not change a run's weights
LANGUAGE = "language"  # the task of language models, which learn several forms of problems in a text


@dataclass(frozen=True)
class Name:
    """A task, a model and a base; written, as people type it, `addition-abc` or `addition-abc-base4`.

    Raises InputError for an unknown task or a base that the task cannot have.
    """

    task: str
    model: str
    base: int = 0  # 0: the task's usual one

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", usual_base(self.task) if self.base == 0 else self.base)
        if self.task != LANGUAGE:
            Task(self.task, self.base)

    def __str__(self) -> str:
        return f"{self.task}-{self.model}" + ("" if self.base == usual_base(self.task) else f"-base{self.base}")


def usual_base(task: str) -> int:
    """The base that a name does not mention."""
    return 10 if task == LANGUAGE else Task(task).base


class Experiment:
    """What every kind of spec has: an identity, and the plain data of all that a run depends on but its seed."""

    identity: Name
    profile: str
    changes: tuple[str, ...]  # of what the name says, as in training.steps=3200
    parent: Any  # an experiment of the same kind whose attention or weights it begins with, or None
    training: Any  # the recipe
    tests: tuple[tuple[int, int], ...]  # (length, samples) of its evaluation; more can be made later

    @property
    def title(self) -> str:
        """What it is, in words."""
        raise NotImplementedError

    def evaluate(self, model: Any, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """Rows of accuracy: a row for each (length, samples), or several."""
        raise NotImplementedError

    @property
    def data(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def regime(self) -> str:
        """What stands around the numbers of its problems."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """As people type it: `addition-vanilla`, with its changes."""
        return " ".join([str(self.identity), *(f"--set {change}" for change in self.changes)])

    @cached_property
    def digest(self) -> str:
        """A short name that changes whenever a field does; of what that takes, see `common.config`."""
        return digest(self.data)

    def key(self, seed: int) -> str:
        """The name of its run: readable, and ending in the digest."""
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"a seed of {seed!r} is not possible: give a whole number from 0 on")
        return f"{self.identity}-{self.profile}-seed{seed}-{self.digest}"


def train_command(experiment: Experiment | str | Name, seed: int = 0, profile: str = "quick") -> str:
    """What to type to train an experiment."""
    if isinstance(experiment, Experiment):
        return train_command(experiment.name, seed, experiment.profile)
    return (
        f"abc-nb train {experiment}" + f" --profile {profile}" * (profile != "quick") + f" --seed {seed}" * (seed != 0)
    )


def how_to_train(experiment: Experiment, seed: int) -> str:
    """The advice where a run is not there; an installed package cannot train."""
    return f"run `{train_command(experiment, seed)}` first" + " in the project's checkout" * (not paths.CHECKOUT)
