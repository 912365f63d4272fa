"""Results of many runs as tidy frames: what tables, figures and claims are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import pandas as pd

from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.runs.store import ANYWHERE, Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import ARITHMETIC, train_command
from abc_nb.specs.recipes import PROFILES
from abc_nb.specs.spec import spec

AnyName = TypeVar("AnyName", str, Name)


def one_of(choices: Collection[str]) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in [*choices], f"choose one of {', '.join(choices)}"


def whole_number(low: int, high: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and low <= value <= high, f"give a whole number from {low} to {high}"


def are_seeds(value: Any) -> bool:
    whole_numbers = isinstance(value, Sequence) and all(type(seed) is int and seed >= 0 for seed in value)
    return whole_numbers and 0 < len(value) == len({*value})


PARAMETERS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of notebooks: what they can be, and what to give
    "profile": one_of(PROFILES),
    "results": one_of([*ANYWHERE, "any"]),
    "seeds": (are_seeds, "give a list of different whole numbers, as in [0, 1]"),
    "task": one_of(ARITHMETIC),
    "digits": whole_number(1, 1000),
    "zeros": whole_number(0, 100),
    "base": whole_number(2, 16),
    "seed": whole_number(0, 2**31 - 1),
    "window": whole_number(0, 8),
    "steps": whole_number(1, 10**6),
    "share": (lambda value: type(value) in (int, float) and 0 < value <= 1, "give a number above 0, at most 1"),
    "train": (lambda value: type(value) is bool, "give True or False"),
    "text": (lambda value: isinstance(value, str) and bool(value.strip()), "give a text, as in 'they are 12+34='"),
}


def check_parameters(**parameters: Any) -> None:
    """InputError for a value that one of `PARAMETERS` cannot have; others pass."""
    for name in parameters.keys() & PARAMETERS:
        is_possible, advice = PARAMETERS[name]
        if not is_possible(parameters[name]):
            raise InputError(f"{name} {parameters[name]!r} is not possible: {advice}")


@dataclass(frozen=True)
class Results:
    """The runs of a profile: those shipped with the project, those made here ("runs"), or either ("any")."""

    profile: str
    origin: str
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        check_parameters(profile=self.profile, results=self.origin, seeds=self.seeds)

    @property
    def first(self) -> Self:
        """Those of the first seed alone."""
        return replace(self, seeds=self.seeds[:1])

    def or_shipped(self) -> Self:
        """The same, and shipped runs where none were made here: for what takes many runs."""
        return replace(self, origin="any")

    def runs(self, names: Sequence[str | Name]) -> list[Run]:
        """The finished runs of these experiments; InputError where one has none or, made here, lacks a seed."""
        runs = []
        for name in names:
            existing = self.existing_runs([name])
            missing = [seed for seed in self.seeds if seed not in {run.seed for run in existing}]
            if missing and (self.origin == "runs" or not existing):
                raise InputError(self.lacks(name, missing[0]))
            runs += existing
        return runs

    def first_run(self, name: str | Name) -> Run:
        """The first seed's run of an experiment; InputError if it is missing."""
        return self.first.runs([name])[0]

    def lacks(self, name: str | Name, seed: int) -> str:
        """One sentence on a run that is not there."""
        experiment = spec(name, self.profile)
        origin = {"runs": "made here", "shipped": "shipped", "any": "made here or shipped"}[self.origin]
        advice = f"run `{train_command(experiment, seed)}` and take results 'runs'"
        if seeds := store.seeds(experiment):
            advice += f", or take the seeds that are there ({', '.join(map(str, seeds))})"
        if self.origin != "runs":
            advice += store.advice_if_incomplete()
        return f"no results of {name}, seed {seed}, were {origin}: {advice}"

    def existing_runs(self, names: Sequence[str | Name]) -> list[Run]:
        """Those runs of the experiments that are there."""
        origins = ANYWHERE if self.origin == "any" else (self.origin,)
        experiments = [spec(name, self.profile) for name in names]
        runs = [store.find(experiment, seed, origins) for experiment in experiments for seed in self.seeds]
        return [run for run in runs if run]

    def with_results(self, names: Sequence[AnyName]) -> list[AnyName]:
        """Those of the experiments that have a result."""
        return [name for name in names if self.existing_runs([name])]

    def evaluation(self, names: Sequence[str | Name]) -> pd.DataFrame:
        """Evaluation rows with task, model, base, and the run's last validation accuracy (a fraction)."""
        if not names:
            raise InputError("none of the experiments that are wanted here has a result: see `abc-nb list`")
        frames = [run.evaluation().assign(validation=run.validation, **identity(run)) for run in self.runs(names)]
        return pd.concat(frames, ignore_index=True)


def identity(run: Run) -> dict[str, str | int]:
    """The columns that say whose a row is: task, model and base, as in an experiment's name, and seed."""
    name = run.spec.identity
    return {"task": name.task, "model": name.model, "base": name.base, "seed": run.seed}
