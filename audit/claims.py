"""Claims of the paper and their verdicts, by one rule.

`data/claims.csv` has a row per claim: its criterion in words, its `rule`, what it is `at_most` where every run agrees,
its finding with places for the parts (see `Part`), and what would `decide` it. `data/counts.csv` has what it counts:
`rows` names studies or a measure, `models` and `tasks` choose from them by patterns (`!` leaves out), `label` groups
the runs; `among`, `undecided` and `agrees` are conditions on a run's columns. The part `runs` decides.

A run is undecided if it never learned its training task, or was never made though its group needs `SEEDS`.

- A claim about all runs holds if every run agrees, and in part if half of them do or all of one group.
- A claim that some model does a thing holds if one group does, with most of its runs, and in part if any run does.
- A claim that no model does a thing holds if no run does, and in part if no group does, with most of its runs.
- Otherwise the runs differ from the claim. It is undecided if its undecided runs would change the verdict by agreeing.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, cast

import pandas as pd

from abc_nb.analysis import statistics
from abc_nb.show import titles
from audit import DATA
from audit.measures import frame, measured
from audit.models import PAPER_BATCH
from audit.results import Results

VERDICTS = ("holds", "holds with changes", "in part", "differs", "undecided", "not tested", "definition", "not run")
ABOUT = ("all", "some", "none")  # of the runs: what a claim says
ON_A_GPU = (*PAPER_BATCH, "rope-512")  # models of which some seeds were not made
MOST, HALF = 0.8, 0.5  # four of five runs of a group; half of all runs
SEEDS = 5  # of every task and model
RUN = ["task", "base", "model", "seed"]  # columns that say which run a row is of
MORE = "more seeds, or trainings that go on until validation is at 99%."
REGIMES = {"padded-20": "padded to twenty digits"}  # where a verdict calls one otherwise than runs do


class Verdict(NamedTuple):
    """One line of the ledger."""

    id: str
    verdict: str  # one of `VERDICTS`
    finding: str  # one sentence
    runs: str = ""  # as in "19 of 20 runs agree, 5 undecided"; empty if no run decides the claim
    reading: str = ""  # which reading of the paper was tried
    regime: str = "tight"
    seeds: str = ""  # of each task and model, as in "5" or "1 to 5"
    size: str = ""  # of the models, where it is not the profile's


def known() -> dict[str, Any]:
    """The paper's claims by id, as named tuples of texts."""
    return {claim.id: claim for claim in rows_of("claims")}


def rows_of(table: str) -> list[Any]:
    return [*pd.read_csv(DATA / f"{table}.csv", dtype=str, keep_default_na=False).itertuples(index=False)]


def judge(results: Results, ids: Sequence[str]) -> list[Verdict]:
    """The verdicts on some claims, from the results that are there."""

    @cache
    def read(rows: str) -> pd.DataFrame:
        return measured(results, rows)

    claims, counts = known(), rows_of("counts")
    return [verdict(claims[id], parts_of([count for count in counts if count.id == id], read)) for id in ids]


def verdict(claim: Any, parts: dict[str, Part]) -> Verdict:
    """The verdict on a claim from its parts; its rule is one of `ABOUT`, or `algebra`, of which one run is enough."""
    runs = parts.get("runs", Part(nothing(frame([]))))
    counts = [n._replace(undecided=0) if claim.rule == "algebra" else n for n in runs.counts.values()]
    judgement = str(claim.rule) if claim.rule in VERDICTS else by_counts(counts, claim.at_most, claim.rule)
    finding = "None was trained." if judgement == "not run" else claim.finding.format_map(parts)
    if judgement in ("undecided", "not tested"):
        finding += f" To decide it: {claim.decide or MORE}"
    met, of, undecided = total(counts)
    agree = f"{met} of {of} runs agree" + (f", {undecided} undecided" if undecided else "")
    return Verdict(
        claim.id,
        judgement,
        finding,
        runs=agree if claim.rule in ABOUT and judgement != "not run" else "",
        reading=claim.reading,
        regime=" and ".join(REGIMES.get(name, name) for name in runs.runs.regime.unique()),
        seeds=statistics.ends(runs.seeds),
        size=claim.size,
    )


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
        decided([Count(n.met + agree * n.undecided, n.runs + n.undecided) for n in groups], at_most, about)
        for agree in (False, True)
    }
    return verdicts.pop() if len(verdicts) == 1 else "undecided"


def decided(groups: list[Count], at_most: str, about: str) -> str:
    """`by_counts` of groups without undecided runs."""
    whole = total(groups)
    if about == "some":
        holds, part = any(group.reaches(MOST) for group in groups), whole.met > 0
    elif about == "none":
        others = [Count(group.runs - group.met, group.runs) for group in groups]
        holds, part = whole.reaches(1), not any(other.reaches(MOST) for other in others)
    else:
        holds, part = whole.reaches(1), whole.reaches(HALF) or any(group.reaches(1) for group in groups)
    return at_most if holds else "in part" if part else "differs"


@dataclass(frozen=True)
class Values:
    """A number of each run. As text `.2f` gives its range in each group, `median .2f` or `sum d` one number."""

    numbers: pd.Series
    labels: pd.Series

    def __format__(self, form: str) -> str:
        how, _, form = form.rpartition(" ")
        ends = self.numbers.groupby(self.labels, sort=False).agg([how] if how else ["min", "max"])
        ends = ends.map((lambda end: format(int(end), form)) if form == "d" else (lambda end: format(end, form)))
        return "; ".join(f"{label} {statistics.ends(own)}".strip() for label, *own in ends.itertuples())


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
        """How many runs of each label agree; of `SEEDS` a task and model those not made are undecided, but on a GPU."""
        counts = {}
        for label, own in self.runs[self.runs.among].groupby("label", sort=False):
            made = own[~own.model.isin(ON_A_GPU)].groupby(RUN[:-1], dropna=False).size()
            undecided = int(own.undecided.sum()) + int((SEEDS - made).clip(lower=0).sum())
            decided = own[~own.undecided]
            counts[str(label)] = Count(int(decided.agrees.sum()), len(decided), undecided)
        return counts

    @property
    def seeds(self) -> list[int]:
        """How many seeds tasks and models have, every number once."""
        return sorted(set(self.runs.groupby(RUN[:-1], dropna=False).size()))

    def __getitem__(self, column: str) -> Values:
        runs = self.runs[self.runs.among]
        return Values(runs[column], runs.label)

    def __format__(self, which: str) -> str:
        if not which:
            return str(total(self.counts.values()))
        share = {"each": -1.0, "met": 1e-9, "most": MOST}[which]
        return "; ".join(f"{label} {n}" for label, n in self.counts.items() if share < 0 or n.reaches(share)) or "none"


def parts_of(counts: Iterable[Any], read: Callable[[str], pd.DataFrame]) -> dict[str, Part]:
    """The parts of a claim by name; runs of one name are put together."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for count in counts:
        runs = pd.concat([read(rows) for rows in count.rows.split(", ")]).drop_duplicates(RUN, ignore_index=True)
        parts.setdefault(count.part, []).append(chosen(runs, count))
    return {name: Part(pd.concat(own, ignore_index=True)) for name, own in parts.items()}


def chosen(runs: pd.DataFrame, count: Any) -> pd.DataFrame:
    """Those of the runs that a claim counts, with the columns `among`, `undecided`, `agrees`, `label`."""
    for column, patterns in (("task", count.tasks), ("model", count.models)):
        names = matching(patterns.split(), runs[column].unique())
        runs = runs[runs[column].isin(names)].sort_values(column, key=lambda own: own.map(names.index), kind="stable")
    if runs.empty:
        return nothing(runs)
    asking = {name: asked(runs, getattr(count, name)) for name in ("among", "agrees")}
    runs = runs.assign(**asking, undecided=asked(runs, count.undecided) if count.undecided else False)
    named = runs.assign(model=runs.model.map(titles.of_models(runs.model)), task=runs.task.map(titles.of_task))
    for field in reversed(re.findall(r"{(\w+)}", count.label)):  # groups stand in the order of the label's first field
        named = named.sort_values(field, key=lambda own: own.map(list(own.unique()).index), kind="stable")
    labels = [count.label.format_map(row) for row in named.to_dict("records")]
    return runs.loc[named.index].assign(label=labels)


def nothing(runs: pd.DataFrame) -> pd.DataFrame:
    """A frame without rows, with the columns of `chosen`."""
    return runs.assign(among=True, undecided=False, agrees=True, label="")


def asked(runs: pd.DataFrame, condition: str) -> pd.Series:
    """Which runs meet a condition on their columns; without one all do. A length that was not tested meets none."""
    if not condition:
        return pd.Series(True, index=runs.index)
    untested = set(re.findall(r"at_\d+", condition)) - set(runs)
    return cast(pd.Series, runs.assign(**dict.fromkeys(untested, float("nan"))).eval(condition, engine="python"))


def matching(patterns: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names that match a pattern and none that leaves out, in the order of the patterns; all without one."""
    out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    left = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in out)]
    return list(dict.fromkeys(name for pattern in wanted for name in left if fnmatch.fnmatch(name, pattern)))
