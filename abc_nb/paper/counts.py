"""The one rule by which runs decide a claim, and how a finding tells the counts.

Counted are runs, in groups: of a task, a model, a size or a regime. A run agrees with the claim, does not agree, or is
undecided: it never learned the task that it was trained on, or it was never made though its group needs `SEEDS`.

- A claim about all runs holds if every run agrees, and in part if half of them do or all of one group.
- A claim that some model does a thing holds if one group does, with most of its runs, and in part if any run does.
- A claim that no model does a thing holds if no run does, and in part if no group does, with most of its runs.
- Otherwise the runs differ from the claim.
- A claim is undecided if its undecided runs would change the verdict by agreeing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import pandas as pd

from abc_nb.specs.models import PAPER_BATCH

Judgement = Literal[
    "holds", "holds with changes", "in part", "differs", "undecided", "not tested", "definition", "not run"
]
VERDICTS: tuple[Judgement, ...] = get_args(Judgement)
ABOUT = ("all", "some", "none")  # of the runs: what a claim says
MOST, HALF = 0.8, 0.5  # four of five runs of a group; half of all runs
SEEDS = 5  # of every task and model
RUN = ["task", "base", "model", "seed"]  # columns that say which run a row is of


@dataclass(frozen=True)
class Count:
    """How many runs agree with a claim, of those that decide it, and how many decide nothing."""

    met: int
    runs: int
    undecided: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.met + other.met, self.runs + other.runs, self.undecided + other.undecided)

    def __str__(self) -> str:
        return f"{self.met} of {self.runs}" + (f" ({self.undecided} undecided)" if self.undecided else "")

    @property
    def sentence(self) -> str:
        """For the ledger."""
        return f"{self.met} of {self.runs} runs agree" + (f", {self.undecided} undecided" if self.undecided else "")

    def decided(self, agree: bool) -> Count:
        """What it would be if the undecided runs all agreed, or none."""
        return Count(self.met + agree * self.undecided, self.runs + self.undecided)

    def reaches(self, share: float) -> bool:
        """Whether this share of the runs agrees."""
        return self.met >= share * self.runs > 0


def total(counts: Iterable[Count]) -> Count:
    return sum(counts, Count(0, 0))


def by_counts(counts: Iterable[Count], at_most: Judgement = "holds", about: str = "all") -> Judgement:
    """The verdict on a claim `about` all, some or none of the groups; `at_most` where every run agrees."""
    groups = list(counts)
    if not total(groups).runs + total(groups).undecided:
        return "not run"
    without, with_them = (
        decided([group.decided(agree) for group in groups], at_most, about) for agree in (False, True)
    )
    return without if without == with_them else "undecided"


def decided(groups: list[Count], at_most: Judgement, about: str) -> Judgement:
    """`by_counts` of groups without undecided runs."""
    everything = total(groups)
    if about == "some":
        all_of_it, part = any(group.reaches(MOST) for group in groups), everything.met > 0
    elif about == "none":
        others = [Count(group.runs - group.met, group.runs) for group in groups]
        all_of_it, part = everything.reaches(1), not any(other.reaches(MOST) for other in others)
    else:
        all_of_it, part = everything.reaches(1), everything.reaches(HALF) or any(group.reaches(1) for group in groups)
    return at_most if all_of_it else "in part" if part else "differs"


@dataclass(frozen=True)
class Values:
    """A number of each run. As text `.2f` gives its range in each group, `median .2f` or `sum d` one number."""

    numbers: pd.Series
    labels: pd.Series

    def __format__(self, form: str) -> str:
        how, _, form = form.rpartition(" ")
        ends = self.numbers.groupby(self.labels, sort=False).agg([how] if how else ["min", "max"])
        ends = ends.map((lambda end: format(int(end), form)) if form == "d" else (lambda end: format(end, form)))
        return "; ".join(f"{label} {' to '.join(dict.fromkeys(own))}".strip() for label, *own in ends.itertuples())


@dataclass(frozen=True)
class Part:
    """Runs that a claim counts, one a row: `RUN`, numbers, the group (label), and whether it is among those, whether
    it is undecided and whether it agrees.

    In a finding `{part}` is how many of all agree, `{part:each}` tells every group, `{part:met}` those of which some
    run agrees, `{part:most}` those of which most do, and `{part[column]:.2f}` a number of the runs.
    """

    runs: pd.DataFrame

    @cached_property
    def counts(self) -> dict[str, Count]:
        """How many runs of each label agree."""
        counts = {}
        for label, own in self.runs[self.runs.among].groupby("label", sort=False):
            known = own[~own.undecided]
            counts[str(label)] = Count(int(known.agrees.sum()), len(known), len(own) - len(known) + missing(own))
        return counts

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
        share = {"each": -1.0, "met": 1e-9, "most": MOST}[which]
        return "; ".join(f"{label} {n}" for label, n in self.counts.items() if share < 0 or n.reaches(share)) or "none"


def missing(runs: pd.DataFrame) -> int:
    """How many runs of these tasks and models were not made, of `SEEDS` each.

    Of models that need a GPU as many seeds count as were trained.
    """
    runs = runs[~runs.model.isin(PAPER_BATCH)]
    return sum(max(0, SEEDS - made) for made in runs.groupby(RUN[:-1], dropna=False).size())
