"""What identifies an experiment: a task, a model and a base. Its rendering, as `addition-abc`, is never taken apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import REGISTRY, Task
from abc_nb.specs.models import models_of


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
            return "parity-classifier"  # Parity without a scratchpad, by the plain model
        usual = self.base == Task(self.task).base
        return f"{self.task}-{self.model}" + ("" if usual else f"-base{self.base}")


@cache
def renderings(task: str, base: int) -> dict[str, Name]:
    """The names of one task in a base, by the texts that people type."""
    names = [Name(task, model, base) for model in models_of(Task(task, base))]
    return {str(name): name for name in reversed(names)}  # the plain model is the first, and the one classifier


def look_up(text: str) -> Name | None:
    """The name that is rendered so, or None; those in the usual bases are looked at first."""
    usual = [(task, Task(task).base) for task in REGISTRY]
    others = ((task, base) for task in REGISTRY for base in Task(task).bases)
    return next((names[text] for task, base in chain(usual, others) if text in (names := renderings(task, base))), None)


def parse(text: str | Name, base: int | None = None) -> Name | None:
    """The name that a text stands for, or None if there is none.

    The base can be given or be part of the text. Raises InputError for two different bases, or what is no text.
    """
    if not isinstance(text, str | Name):
        raise InputError(f"{text!r} is no experiment: give a name, as in 'addition-vanilla'")
    name = text if isinstance(text, Name) else look_up(text)
    if name is None or base in (None, name.base):
        return name
    if name.base != Task(name.task).base or isinstance(text, Name):
        raise InputError(f"{str(text)!r} has base {name.base}, not {base}: leave one of the two out")
    return replace(name, base=-1 if base == 0 else base)  # 0 would stand for the usual one
