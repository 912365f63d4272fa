"""What identifies an experiment: a task, a model and a base, written TASK-MODEL or TASK-MODEL-baseB."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from abc_nb.common.errors import InputError
from abc_nb.problems.tables import Tables
from abc_nb.problems.tasks import REGISTRY, Task

CLASSIFIER = "parity-classifier"  # Parity without a scratchpad, by the plain model
TASKS = tuple(name for name in REGISTRY if name != "parity-classification")
ALIASES = {"abs": "window-cyclic"}  # models that have a second name


@dataclass(frozen=True)
class Name:
    """An experiment's identity. Raises InputError for an unknown task or a base that the task cannot have."""

    task: str
    model: str
    base: int = 0  # 0: the task's usual one

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", Task(self.task, self.base).base)

    def __str__(self) -> str:
        if self.task == "parity-classification":
            return CLASSIFIER
        usual = self.base == Task(self.task).base
        return f"{self.task}-{self.model}" + ("" if usual else f"-base{self.base}")


def parse(text: str | Name, base: int | None = None) -> Name | None:
    """The name that a text stands for, or None if no task is in it; whether the model exists is not asked here.

    The base can be given or be part of the text. Raises InputError for two different bases, or what is no text.
    A `Name` is what it is: only what people type, or what a file says, is parsed.
    """
    if isinstance(text, Name):
        return replace(text, base=one_base(text, text.base, base))
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no experiment: give a name, as in 'addition-vanilla'")
    if text == CLASSIFIER:
        return Name("parity-classification", "vanilla", 0 if base is None else base)
    if base == 0:  # which stands for the usual one inside this package
        raise InputError("base 0 is not supported: choose a base from 2 to 16")
    task = next((task for task in TASKS if text.startswith(task + "-")), None)
    if task is None:
        return None
    model = text[len(task) + 1 :]
    if found := re.fullmatch(r"(.+)-base([2-9]|1[0-6])", model):
        model, base = found[1], one_base(text, int(found[2]), base)
    written = Task(task, 0 if base is None else base)
    return Name(task, model if isinstance(written, Tables) else ALIASES.get(model, model), written.base)


def one_base(name: str | Name, own: int, given: int | None) -> int:
    """The base in a name, unless another one is given, which is an error."""
    if given not in (None, own):
        raise InputError(f"{str(name)!r} has base {own}, not {given}: leave one of the two out")
    return own
