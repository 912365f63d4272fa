"""Claims of the paper, the runs that they count, and the one rule of their verdicts.

`data/claims.csv` has a row per claim: its criterion in words, what would `decide` it, what it is `about` (one of
`ABOUT`, or `algebra`, of which one run is enough), the verdict `at_most` where every run agrees, or else the `verdict`
itself, and its finding, in which `Part` says what stands in braces. `data/counts.csv` says which runs are counted for
each part that a finding names, a row as `count` reads it, of which those of one part add up; `runs` decide the claim.

A run is undecided if it never learned its training task (and could have), or was never made though its group needs
`SEEDS`. Where lines make it impossible to learn a task (C19, C37), or ten times as many steps did not suffice (C19), it
is decided though it did not. In C32 models that know of a digit its place alone are left out of N x 1, where the
factor's place is that of the units.

- A claim about all runs holds if every run agrees, and in part if half of them do or all of one group.
- A claim that some model does a thing holds if one group does, with most of its runs, and in part if any run does.
- A claim that no model does a thing holds if no run does, and in part if no group does, with most of its runs.
- Otherwise the runs differ from the claim. It is undecided if its undecided runs would change the verdict by agreeing.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import pandas as pd

from abc_nb.show import titles
from audit import DATA, statistics
from audit.measures import frame, measured
from audit.models import PAPER_BATCH
from audit.results import Results

VERDICTS = ("holds", "holds with changes", "in part", "differs", "undecided", "definition", "not run")
ABOUT = ("all", "some", "none")  # of the runs: what a claim says
ON_A_GPU = (*PAPER_BATCH, "rope-512")  # models of which some seeds were not made
MOST, HALF = 0.8, 0.5  # four of five runs of a group; half of all runs
SEEDS = 5  # of every task and model
RUN = ["task", "base", "model", "seed"]  # columns that say which run a row is of
ADVICE = "more seeds, or trainings that go on until validation is at 99%."  # what would decide an undecided claim
REGIMES = {"padded-20": "padded to twenty digits"}  # what a verdict calls a regime, where it is not the runs' name


class Verdict(NamedTuple):
    """One line of the ledger."""

    id: str
    verdict: str  # one of `VERDICTS`
    finding: str  # one sentence
    runs: str = ""  # as in "19 of 20 runs agree, 5 undecided"; empty if no run decides the claim
    reading: str = ""  # which reading of the paper was tried
    regime: str = "tight"
    seeds: str = ""  # of each task and model, and which, as in "1 to 5: 0 to 4"
    size: str = ""  # of the models, where it is not the profile's


def paper_claims() -> dict[str, Any]:
    """The paper's claims by id, as named tuples of texts."""
    return {claim.id: claim for claim in data_rows("claims")}


def data_rows(name: str) -> list[Any]:
    """The rows of a file of the audit's data, as named tuples of texts."""
    return [*pd.read_csv(DATA / f"{name}.csv", dtype=str, keep_default_na=False).itertuples(index=False)]


class Count(NamedTuple):
    """How many runs agree with a claim, of those that decide it, and how many decide nothing."""

    met: int
    runs: int
    undecided: int = 0

    def __str__(self) -> str:
        return f"{self.met} of {self.runs}" + (f" ({self.undecided} undecided)" if self.undecided else "")

    def reaches(self, share: float) -> bool:
        """Whether this share of the runs agrees."""
        return self.met >= share * self.runs > 0


def total(counts: Iterable[Count]) -> Count:
    return Count(*map(sum, zip(Count(0, 0), *counts, strict=True)))


def by_counts(groups: Sequence[Count], at_most: str = "holds", about: str = "all") -> str:
    """The verdict on a claim `about` all, some or none of the groups; `at_most` where every run agrees."""
    if not any(group.runs + group.undecided for group in groups):
        return "not run"
    verdicts = {
        by_decided_counts([Count(n.met + agree * n.undecided, n.runs + n.undecided) for n in groups], at_most, about)
        for agree in (False, True)
    }
    return verdicts.pop() if len(verdicts) == 1 else "undecided"


def by_decided_counts(groups: list[Count], at_most: str, about: str) -> str:
    """`by_counts` of groups without undecided runs."""
    whole = total(groups)
    if about == "some":
        holds, in_part = any(group.reaches(MOST) for group in groups), whole.met > 0
    elif about == "none":
        opposite = [Count(group.runs - group.met, group.runs) for group in groups]
        holds, in_part = whole.reaches(1), not any(group.reaches(MOST) for group in opposite)
    else:
        holds, in_part = whole.reaches(1), whole.reaches(HALF) or any(group.reaches(1) for group in groups)
    return at_most if holds else "in part" if in_part else "differs"


@dataclass(frozen=True)
class Values:
    """A number of each run. As text `.2f` gives its range in each group, `median .2f` or `sum d` one number."""

    numbers: pd.Series
    labels: pd.Series

    def __format__(self, form: str) -> str:
        statistic, _, form = form.rpartition(" ")
        ends = self.numbers.groupby(self.labels, sort=False).agg([statistic] if statistic else ["min", "max"])
        ends = ends.map((lambda end: format(int(end), form)) if form == "d" else (lambda end: format(end, form)))
        return "; ".join(f"{label} {statistics.ends(texts)}".strip() for label, *texts in ends.itertuples())


@dataclass(frozen=True)
class Part:
    """Runs that a claim counts, one a row: `RUN`, numbers, the group (label), and whether it is among those, whether
    it is undecided and whether it agrees.

    In a finding `{part}` is how many of all agree, `{part:each}` tells every group, `{part:met}` those of which some
    run agrees, `{part:most}` those of which most do, and `{part[column]:.2f}` a number of the runs; `{part.whole.met}`
    is the first of the two numbers that `{part}` has.
    """

    runs: pd.DataFrame

    def __add__(self, other: Part) -> Part:
        return Part(pd.concat([self.runs, other.runs], ignore_index=True))

    @cached_property
    def counts(self) -> dict[str, Count]:
        """How many runs of each label agree.

        Of `SEEDS` runs of a task and model, those that were not made are undecided, but for models `ON_A_GPU`.
        """
        counts = {}
        for label, group in self.runs[self.runs.among].groupby("label", sort=False):
            seeds = group[~group.model.isin(ON_A_GPU)].groupby(RUN[:-1], dropna=False).size()
            undecided = int(group.undecided.sum()) + int((SEEDS - seeds).clip(lower=0).sum())
            decided = group[~group.undecided]
            counts[str(label)] = Count(int(decided.agrees.sum()), len(decided), undecided)
        return counts

    @property
    def whole(self) -> Count:
        """How many of all runs agree."""
        return total(self.counts.values())

    @property
    def seeds(self) -> str:
        """How many seeds each task and model has, and which there are: `5: 0 to 4`."""
        if self.runs.empty:
            return ""
        counts = sorted(set(self.runs.groupby(RUN[:-1], dropna=False).size()))
        return f"{statistics.ends(counts)}: {titles.ranges_in_words(sorted(set(self.runs.seed)))}"

    def __getitem__(self, column: str) -> Values:
        runs = self.runs[self.runs.among]
        return Values(runs[column] if column in runs else pd.Series(dtype=float), runs.label)

    def __format__(self, which: str) -> str:
        if not which:
            return str(self.whole)
        share = {"each": -1.0, "met": 1e-9, "most": MOST}[which]
        return "; ".join(f"{label} {n}" for label, n in self.counts.items() if share < 0 or n.reaches(share)) or "none"


def meets(runs: pd.DataFrame, condition: str) -> pd.Series:
    """Which runs meet a condition on their columns, as `at_60 >= 99`; a length that was not tested meets none."""
    untested = {name: float("nan") for name in re.findall(r"at_\d+", condition) if name not in runs}
    met: Any = runs.assign(**untested).eval(condition, engine="python")
    return met


def count(runs: pd.DataFrame, row: Any) -> Part:
    """The runs of some models and tasks, given by patterns (`!` leaves out), as a row of `data/counts.csv` counts them.

    Its `label` groups them, as in `{regime}, {task}`. Of those `among` a claim's runs, some are `undecided`, and of the
    others it asks which ones `agree`. These three are conditions as `meets` has them; an empty one is met by all runs
    in `among`, and by none in `undecided`.
    """
    for column, patterns in (("task", row.tasks), ("model", row.models)):
        names = matching(patterns.split(), runs[column].unique())
        runs = runs[runs[column].isin(names)]
        runs = runs.sort_values(column, key=lambda values: values.map(names.index), kind="stable")
    if runs.empty:
        return Part(runs.assign(among=True, undecided=False, agrees=True, label=""))
    runs = runs.assign(
        among=meets(runs, row.among) if row.among else True,
        agrees=meets(runs, row.agrees),
        undecided=meets(runs, row.undecided) if row.undecided else False,
    )
    titled = runs.assign(model=runs.model.map(titles.model_titles(runs.model)), task=runs.task.map(titles.task_title))
    for field in reversed(re.findall(r"{(\w+)}", row.label)):  # groups stand in the order of the label's first field
        titled = titled.sort_values(field, key=lambda values: values.map(list(values.unique()).index), kind="stable")
    labels = [row.label.format_map(fields) for fields in titled.to_dict("records")]
    return Part(runs.loc[titled.index].assign(label=labels).reset_index(drop=True))


def matching(patterns: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names that match a pattern and none that leaves out, in the order of the patterns; all without one."""
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    names = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in excluded)]
    return list(dict.fromkeys(name for pattern in included for name in fnmatch.filter(names, pattern)))


def parts(id: str, read: Callable[..., pd.DataFrame]) -> dict[str, Part]:
    """What the finding of a claim names; `read` gives the rows of studies or measures."""
    by_name: dict[str, Part] = {}
    for row in data_rows("counts"):
        if row.claim == id:
            part = count(read(*row.rows.split("; ")), row)
            by_name[row.part] = by_name[row.part] + part if row.part in by_name else part
    return by_name


NO_RUNS = Part(frame([]).assign(among=True, undecided=False, agrees=True, label=""))


def verdict_on(claim: Any, by_name: Mapping[str, Part]) -> Verdict:
    """The verdict on one of `paper_claims`, from the `parts` that its finding names."""
    runs = by_name.get("runs", NO_RUNS)
    counts = [n._replace(undecided=0) if claim.about == "algebra" else n for n in runs.counts.values()]
    verdict = claim.verdict or by_counts(counts, claim.at_most, claim.about)
    finding = "None was trained." if verdict == "not run" else claim.finding.format(**by_name)
    if verdict == "undecided":
        finding += f" To decide it: {claim.decide or ADVICE}"
    agreement = ""
    if claim.about in ABOUT and verdict != "not run":
        whole = total(counts)
        agreement = f"{whole.met} of {whole.runs} runs agree" + f", {whole.undecided} undecided" * (whole.undecided > 0)
    regimes = " and ".join(REGIMES.get(name, name) for name in runs.runs.regime.unique())
    return Verdict(claim.id, verdict, finding, agreement, claim.reading, regimes, runs.seeds, claim.size)


def judge(results: Results, ids: Sequence[str]) -> list[Verdict]:
    """The verdicts on some claims, from the results that are there."""
    measured_once = cache(partial(measured, results))

    def read(*sources: str) -> pd.DataFrame:
        """The rows of some studies or measures, a run once."""
        return pd.concat([measured_once(source) for source in sources]).drop_duplicates(RUN, ignore_index=True)

    claims = paper_claims()
    return [verdict_on(claims[id], parts(id, read)) for id in ids]
