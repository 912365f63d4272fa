"""Claims of the paper and their verdicts: each is a row that says which runs are counted, and at which bar.

`data/claims.csv` has a row a claim, `data/counts.csv` what it counts. There `rows` names studies or a measure, `models`
and `tasks` choose from them by patterns (`!` leaves out), and `label` groups the runs. `among`, `undecided` and
`agrees` are conditions on a run's columns. The part `runs` decides; a finding tells other parts, too.
"""

from __future__ import annotations

import csv
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.paper.counts import ABOUT, RUN, VERDICTS, Judgement, Part, by_counts
from abc_nb.paper.measures import frame, measured
from abc_nb.show import titles

MORE = "more seeds, or trainings that go on until validation is at 99%."
REGIMES = {"padded-20": "padded to twenty digits"}  # where a verdict calls one otherwise than runs do


@dataclass(frozen=True)
class Verdict:
    """One line of the ledger."""

    id: str
    verdict: Judgement
    finding: str  # one sentence
    runs: str = ""  # as in "19 of 20 runs agree, 5 undecided"; empty if no run decides the claim
    reading: str = ""  # which reading of the paper was tried
    regime: str = "tight"
    seeds: str = ""  # of each task and model, as in "5" or "1 to 5"
    size: str = ""  # of the models, where it is not the profile's


@dataclass(frozen=True)
class Counted:
    """Runs that a claim counts, a row of `data/counts.csv`."""

    id: str
    part: str
    rows: str
    models: str
    tasks: str
    among: str
    undecided: str
    agrees: str
    label: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and how it is judged, a row of `data/claims.csv`."""

    id: str
    source: str  # where the paper has it
    topic: str
    claim: str
    criterion: str  # what is counted, in words
    rule: str  # see `by_rule`
    at_most: Judgement  # what it is where every run agrees
    finding: str  # one sentence, with places for the parts: see `Part`
    decide: str  # what would decide it, shown as long as nothing does
    reading: str
    size: str
    notebook: str  # that judges it


def known() -> dict[str, Claim]:
    """The paper's claims by id."""
    with (paths.DATA / "claims.csv").open(newline="", encoding="utf-8") as lines:
        return {row["id"]: Claim(**row) for row in csv.DictReader(lines)}  # type: ignore[arg-type]


def counted() -> list[Counted]:
    """The runs that claims count."""
    with (paths.DATA / "counts.csv").open(newline="", encoding="utf-8") as lines:
        return [Counted(**row) for row in csv.DictReader(lines)]


def of_notebook(notebook: str) -> list[str]:
    """The claims that a notebook judges."""
    return [claim.id for claim in known().values() if claim.notebook == notebook]


def judge(results: Results, ids: Sequence[str]) -> list[Verdict]:
    """The verdicts on some claims, from the results that are there."""

    @cache
    def read(rows: str) -> pd.DataFrame:
        return measured(results, rows)

    claims, counts = known(), counted()
    return [verdict(claims[id], parts_of([count for count in counts if count.id == id], read)) for id in ids]


def verdict(claim: Claim, parts: dict[str, Part]) -> Verdict:
    """The verdict on a claim from its parts."""
    runs = parts.get("runs", Part(nothing(frame([]))))
    judgement, finding = by_rule(claim, runs), "None was trained."
    if judgement != "not run":
        finding = claim.finding.format_map(parts)
    if judgement in ("undecided", "not tested"):
        finding += f" To decide it: {claim.decide or MORE}"
    decides = claim.rule in ABOUT and judgement != "not run"
    return Verdict(
        claim.id,
        judgement,
        finding,
        runs=runs.total.sentence if decides else "",
        reading=claim.reading,
        regime=" and ".join(REGIMES.get(name, name) for name in runs.runs.regime.unique()),
        seeds=" to ".join(str(number) for number in dict.fromkeys([*runs.seeds[:1], *runs.seeds[-1:]])),
        size=claim.size,
    )


def by_rule(claim: Claim, runs: Part) -> Judgement:
    """What a claim's rule says of its runs.

    `all`, `some` and `none` are those of `by_counts`; of `algebra` one run is enough; any other rule is the verdict.
    """
    if claim.rule in VERDICTS:
        return claim.rule
    if claim.rule == "algebra":
        return by_counts([replace(count, undecided=0) for count in runs.counts.values()], claim.at_most)
    return by_counts(runs.counts.values(), claim.at_most, claim.rule)


def parts_of(counts: Sequence[Counted], read: Callable[[str], pd.DataFrame]) -> dict[str, Part]:
    """The parts of a claim by name; runs of one name are put together."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for count in counts:
        runs = pd.concat([read(rows) for rows in count.rows.split(", ")]).drop_duplicates(RUN, ignore_index=True)
        parts.setdefault(count.part, []).append(chosen(runs, count))
    return {name: Part(pd.concat(own, ignore_index=True)) for name, own in parts.items()}


def chosen(runs: pd.DataFrame, count: Counted) -> pd.DataFrame:
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
