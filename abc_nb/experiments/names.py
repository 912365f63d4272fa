"""What identifies an experiment: a task, a model and a base, written TASK-MODEL or TASK-MODEL-baseB."""

from __future__ import annotations

import re
from dataclasses import dataclass

from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import OPERATIONS, Task

CLASSIFIER = "parity-classifier"  # Parity without a scratchpad, by the plain model
TASKS = tuple(name for name in OPERATIONS if name != "parity-classification")
ALIASES = {"abs": "window-cyclic"}  # models that have a second name


@dataclass(frozen=True)
class Name:
    """An experiment's identity. Raises InputError for an unknown task or a base that the task cannot have."""

    task: str
    model: str
    base: int

    def __post_init__(self) -> None:
        Task(self.task, self.base)

    def __str__(self) -> str:
        if self.task == "parity-classification":
            return CLASSIFIER
        usual = self.base == Task(self.task).base
        return f"{self.task}-{self.model}" + ("" if usual else f"-base{self.base}")


def parse(text: str, base: int | None = None) -> Name | None:
    """The name that a text stands for, or None if no task is in it; whether the model exists is not asked here.

    The base can be given or be part of the text. Raises InputError for two different bases, or what is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no experiment: give a name, as in 'addition-vanilla'")
    if text == CLASSIFIER:
        return Name("parity-classification", "vanilla", 2 if base is None else base)
    if base == 0:  # which stands for the usual one inside this package
        raise InputError("base 0 is not supported: choose a base from 2 to 16")
    task = next((task for task in TASKS if text.startswith(task + "-")), None)
    if task is None:
        return None
    model = text[len(task) + 1 :]
    if found := re.fullmatch(r"(.+)-base([2-9]|1[0-6])", model):
        model, own = found[1], int(found[2])
        if base not in (None, own):
            raise InputError(f"{text!r} has base {own}, not {base}: leave one of the two out")
        base = own
    written = Task(task) if base is None else Task(task, base)
    return Name(task, model if written.trace else ALIASES.get(model, model), written.base)
