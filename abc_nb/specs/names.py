"""The table of experiments: every name that people type, with what it stands for, one to one."""

import fnmatch
from collections.abc import Iterator

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.problems.catalogue import PROGRAM, REGISTRY
from abc_nb.problems.tasks import Task
from abc_nb.specs.experiment import LANGUAGE, BaseSpec, Name
from abc_nb.specs.language import language_models
from abc_nb.specs.models import models_of

ARITHMETIC = ("successor", "addition", "n-by-1", "parity")  # the paper's four tasks
LISTS = ("listops-sm", "listops-max", "listops-min")


def every_name(any_base: bool = False, text: str = "") -> Iterator[Name]:
    """Every experiment, a task at a time, in its task's usual base or in each of them; language models last.

    With a `text`, only the tasks are considered with whose names it begins.
    """
    task_names = [name for name, family in REGISTRY.items() if family.program]
    for task in (Task(name) for name in task_names if not text or text.startswith(f"{name}-")):
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
    if not names and (name := parse(pattern)):
        names = [name]
    if not names:
        raise InputError(f"no experiment matches {pattern!r}, a pattern as in 'addition-*': `abc-nb list` shows all")
    return names


# ---- how an experiment is trained


def train_command(experiment: BaseSpec | Name, seed: int = 0, profile: str = "quick") -> str:
    """What to type to train an experiment."""
    if isinstance(experiment, BaseSpec):
        name, identity, profile = experiment.name, experiment.identity, experiment.profile
    else:
        name, identity = str(experiment), experiment
    options = f" --profile {profile}" * (profile != "quick") + f" --seed {seed}" * (seed != 0)
    return f"{program_of(identity)} train {name}{options}"


def program_of(identity: Name) -> str:
    """The program that can train an experiment: that of its model, or else of its task."""
    if identity.task == LANGUAGE:
        return PROGRAM
    model = models_of(Task(identity.task)).get(identity.model)
    return model.program if model and model.program != PROGRAM else REGISTRY[identity.task].program


def how_to_train(experiment: BaseSpec, seed: int) -> str:
    """The advice where a run is not there; an installed package cannot train."""
    return f"run `{train_command(experiment, seed)}` first" + " in the project's checkout" * (not paths.CHECKOUT)
