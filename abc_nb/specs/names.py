"""What identifies an experiment: a task, a model and a base; written, as people type it, `addition-abc`."""

import fnmatch
from dataclasses import dataclass

from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import REGISTRY, Task
from abc_nb.specs.models import models_of

ARITHMETIC = ("successor", "addition", "n-by-1", "parity")  # the paper's four tasks
LISTS = ("listops-sm", "listops-max", "listops-min")


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


CLASSIFIER = Name("parity-classification", "vanilla")


def parse(text: str) -> Name | None:
    """The name that is written so, or None; where the names of two tasks are its beginning, the longer one counts."""
    for task in sorted(REGISTRY, key=len, reverse=True):
        model = text.removeprefix(f"{task}-").partition("-base")[0]
        if model in models_of(Task(task)):
            for base in Task(task).bases:
                if str(name := Name(task, model, base)) == text:
                    return name
    return CLASSIFIER if text == str(CLASSIFIER) else None


def every_name() -> list[Name]:
    """Every experiment, a task at a time, each in its task's usual base."""
    found = [CLASSIFIER]
    for task in map(Task, [name for name in REGISTRY if name != CLASSIFIER.task]):
        possible = {None, *task.bases}  # bases of a parent
        found += [Name(task.name, name) for name, model in models_of(task).items() if model.parent_base in possible]
    return found


def matching(pattern: str) -> list[Name]:
    """The names of a task, or those that match a pattern with wildcards, or one in any base; InputError if none do."""
    found = [name for name in every_name() if name.task == pattern or fnmatch.fnmatch(str(name), pattern)]
    one = parse(pattern)
    if not found and one is None:
        raise InputError(f"no experiment matches {pattern!r}, a pattern as in 'addition-*': `abc-nb list` shows all")
    return found or [one for one in [one] if one]
