"""Counting runs: the one rule by which they decide a claim, and how a finding tells the counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import pandas as pd

Judgement = Literal[
    "holds", "holds with changes", "in part", "differs", "undecided", "not tested", "definition", "not run"
]
VERDICTS: tuple[Judgement, ...] = get_args(Judgement)
MOST = 0.8  # of the runs: from here on a claim that not every run meets holds in part
SEEDS = 5  # of every task and model; fewer decide nothing
RUN = ["task", "base", "model", "seed"]  # columns that say which run a row is of


@dataclass(frozen=True)
class Count:
    """How many runs agree with a claim, of those that decide it."""

    met: int
    runs: int

    def __add__(self, other: Count) -> Count:
        return Count(self.met + other.met, self.runs + other.runs)

    def __str__(self) -> str:
        return f"{self.met} of {self.runs}"

    @property
    def all(self) -> bool:
        return self.met == self.runs > 0

    @property
    def most(self) -> bool:
        """Whether four runs in five meet it."""
        return self.met >= MOST * self.runs > 0


def total(counts: Iterable[Count]) -> Count:
    return sum(counts, Count(0, 0))


def by_counts(counts: Iterable[Count], at_most: Judgement = "holds", some: bool = False) -> Judgement:
    """The verdict on a claim from how many runs of each group agree with it: the one rule for all claims.

    All runs: `at_most`. Every run of a group, or most of all runs: in part. Fewer: differs. No runs: not run.
    Of a claim that says that there is `some` group: most runs of one: `at_most`. Any run at all: in part.
    """
    groups = list(counts)
    everything = total(groups)
    if not everything.runs:
        return "not run"
    if everything.all or (some and any(count.most for count in groups)):
        return at_most
    in_part = everything.met > 0 if some else everything.most or any(count.all for count in groups)
    return "in part" if in_part else "differs"


@dataclass(frozen=True)
class Values:
    """A number of each run. As text `.2f` gives its range in each group, `median .2f` and `max .2f` one number."""

    numbers: pd.Series
    labels: pd.Series

    def __format__(self, form: str) -> str:
        how, _, form = form.rpartition(" ")
        ends = self.numbers.groupby(self.labels, sort=False).agg([how] if how else ["min", "max"])
        ends = ends.map((lambda end: format(int(end), form)) if form == "d" else (lambda end: format(end, form)))
        return "; ".join(f"{label} {' to '.join(dict.fromkeys(own))}".strip() for label, *own in ends.itertuples())


@dataclass(frozen=True)
class Part:
    """Runs that a claim counts, one a row: `RUN`, numbers, the group (label), and whether it is among those and agrees.

    In a finding `{part}` is how many of all agree, `{part:each}` tells every group, `{part:met}` those of which some
    run agrees, `{part:most}` those of which most do, and `{part[column]:.2f}` a number of the runs.
    """

    runs: pd.DataFrame

    @cached_property
    def counts(self) -> dict[str, Count]:
        """How many runs of each label agree."""
        groups = self.runs[self.runs.among].groupby("label", sort=False).agrees
        return {str(label): Count(int(agrees.sum()), len(agrees)) for label, agrees in groups}

    @property
    def total(self) -> Count:
        return total(self.counts.values())

    @property
    def seeds(self) -> list[int]:
        """How many seeds tasks and models have, every number once."""
        return sorted(set(self.runs.groupby(RUN[:-1], dropna=False).size()))

    def __getitem__(self, column: str) -> Values:
        runs = self.runs[self.runs.among]
        return Values(runs[column], runs.label)

    def __format__(self, which: str) -> str:
        if not which:
            return str(self.total)
        wanted = {"each": lambda count: True, "met": lambda count: count.met > 0, "most": lambda count: count.most}
        listed = [f"{label} {count}" for label, count in self.counts.items() if wanted[which](count)]
        return "; ".join(listed) or "none"
