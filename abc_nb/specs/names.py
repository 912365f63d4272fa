"""The table of experiments: every name that people type, with what it stands for, one to one."""

import fnmatch
from collections.abc import Iterator

from abc_nb.common.errors import InputError
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task
from abc_nb.specs.experiment import LANGUAGE, Name
from abc_nb.specs.language import language_models
from abc_nb.specs.models import models_of

ARITHMETIC = ("successor", "addition", "n-by-1", "parity")  # the paper's four tasks
LISTS = ("listops-sm", "listops-max", "listops-min")


def every_name(any_base: bool = False, text: str = "") -> Iterator[Name]:
    """Every experiment, a task at a time, in its task's usual base or in each of them; language models last.

    Or those alone of tasks that a `text` begins with.
    """
    for task in (Task(name) for name in REGISTRY if not text or text.startswith(f"{name}-")):
        for name, model in models_of(task).items():
            if model.parent_base in (None, *task.bases):
                yield from (Name(task.name, name, base) for base in (task.bases if any_base else (0,)))
    yield from (Name(LANGUAGE, model) for model in language_models())


def parse(text: str) -> Name | None:
    """What a name stands for, or None where there is no such experiment."""
    return {str(name): name for name in every_name("-base" in text, text)}.get(text)


def matching(pattern: str) -> list[Name]:
    """The names of a task, or those that match a pattern with wildcards, or one in any base; InputError if none do."""
    names = [name for name in every_name() if name.task == pattern or fnmatch.fnmatch(str(name), pattern)]
    one = parse(pattern)
    if not names and one is None:
        raise InputError(f"no experiment matches {pattern!r}, a pattern as in 'addition-*': `abc-nb list` shows all")
    return names or [one for one in [one] if one]
