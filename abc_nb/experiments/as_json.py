"""An experiment as one line of JSON, for the process that trains it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args, get_type_hints

from abc_nb.common.config import from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment


def written(experiment: Experiment) -> str:
    """The experiment as JSON; InputError if it holds a value of a class that the package does not define."""
    text = json.dumps(to_data(experiment))
    try:
        same = read(text) == experiment
    except InputError:
        same = False
    if not same:
        raise InputError(
            f"{experiment.name} has settings of classes that abc_nb does not define, "
            "which no other process can restore: sweep it with in_turn=True"
        )
    return text


def read(text: str) -> Experiment:
    """The experiment that `written` was given; InputError for anything else."""
    found = from_data(json.loads(text), parts())
    if not isinstance(found, Experiment):
        raise InputError("this is not the configuration of an experiment")
    return found


@cache
def parts() -> set[type]:
    """The classes that an experiment can hold: those of its fields and of theirs, and all that derive from them."""
    found: set[type] = set()
    waiting: list[Any] = [Experiment]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, type) or not each.__module__.startswith("abc_nb."):
            waiting += get_args(each)  # of `Bias | None` or `tuple[Line, ...]`; none of `int`
        elif each not in found:
            found.add(each)
            waiting += [*each.__subclasses__(), *get_type_hints(each).values()]
    return found
