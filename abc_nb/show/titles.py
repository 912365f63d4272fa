"""Titles: what tables and figures call tasks and models. Frames carry names; titles are put in where they are shown."""

import itertools
from collections.abc import Iterable, Sequence

import pandas as pd

from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task
from abc_nb.specs.models import model_table


def model_title(name: str) -> str:
    """A model's title; the name of no model stays as it is."""
    return model_titles([name])[name]


def model_titles(names: Iterable[str]) -> dict[str, str]:
    """The titles of models that are shown together, by name; the name of no model stays as it is.

    Decoder-only models, and baselines trained at three widths, say so where the others are shown, too.
    """
    titles = {name: name for name in names}
    table = model_table(tables=True) | model_table()
    models = {name: table[name] for name in titles if name in table}
    two_kinds = len({model.kind for model in models.values()}) > 1
    for name, model in models.items():
        titles[name] = model.title + ", decoder-only" * (two_kinds and model.kind == "decoder-only")
    one_width_titles = {titles[name] for name, model in models.items() if not model.extends}
    for name, model in models.items():
        titles[name] += ", three widths" * (model.extends and titles[name] in one_width_titles)
    return titles


def task_title(name: str, base: int | None = None) -> str:
    """A task's title, with its base if that is not the usual one; the name of no task stays as it is."""
    if name not in REGISTRY:
        return name
    task = Task(name)
    return task.title + ("" if base in (None, task.base) else f", base {base}")


def length_unit(title: str) -> str:
    """What the lengths of a task count, by its title with or without a base."""
    units = (task.unit for task in map(Task, REGISTRY) if title.partition(", base")[0] == task.title)
    return next(units, "digits")


def with_titles(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with titles in place of the names in its columns task (with base, which goes) and model."""
    titled = frame.copy()
    if "task" in frame:
        bases = frame["base"] if "base" in frame else [None] * len(frame)
        titled["task"] = [task_title(task, base) for task, base in zip(frame["task"], bases, strict=True)]
    if "model" in frame:
        titled["model"] = frame["model"].map(model_titles(frame["model"]))
    return titled.drop(columns="base", errors="ignore")


def ranges_in_words(numbers: Sequence[int]) -> str:
    """`1, 2, 4 to 8`: numbers in rising order, three or more in a row by their ends."""
    groups = itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0])  # the same within a run
    runs = [[number for _, number in group] for _, group in groups]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
