"""The ledger of claims: what the papers say, what a run here says, and the verdict.

A judge (in `judges/`) is a function of the results; notebooks record what it returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd
from filelock import FileLock

from abc_nb.analysis.statistics import over_seeds, percent
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.problems.tasks import unit_of

Judgement = Literal["holds", "differs", "not run", "definition"]
VERDICTS: tuple[Judgement, ...] = get_args(Judgement)


@dataclass(frozen=True)
class Verdict:
    """One line of the ledger."""

    id: str
    verdict: Judgement
    figure: str  # what was measured, in words and numbers
    interval: str = ""  # 95% interval of the number that decides
    seeds: int = 1  # that it was measured on


class Evidence(NamedTuple):
    """What stands behind the number that decides."""

    interval: str = ""
    seeds: int = 1


def paper_claims() -> pd.DataFrame:
    return pd.read_csv(paths.DATA / "paper_claims.csv")


def record(verdicts: list[Verdict], notebook: str, profile: str) -> pd.DataFrame:
    """Put verdicts into the profile's ledger, replacing earlier ones; returns their rows with the claims."""
    path = paths.figures(profile) / "claims.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".claims.lock"):
        book = ledger(profile).set_index("id")
        for verdict in verdicts:
            if verdict.id not in book.index or verdict.verdict not in VERDICTS:
                raise InputError(f"no claim {verdict.id} with verdict {verdict.verdict!r}: see paper_claims.csv")
            row = asdict(verdict) | {"seeds": str(verdict.seeds), "notebook": notebook}
            book.loc[verdict.id, list(row)[1:]] = list(row.values())[1:]
        write_text(path, book.reset_index().to_csv(index=False))
    return book.loc[[verdict.id for verdict in verdicts]].reset_index()


def ledger(profile: str) -> pd.DataFrame:
    """Every claim with its verdict so far: id, topic, claim, verdict, figure, interval, seeds, notebook."""
    columns = ["verdict", "figure", "interval", "seeds", "notebook"]
    claims = paper_claims()[["id", "topic", "claim"]].assign(**dict.fromkeys(columns, "")).assign(verdict="not run")
    path = paths.figures(profile) / "claims.csv"
    if not path.exists():
        return claims
    try:
        known = pd.read_csv(path, dtype=str, keep_default_na=False).set_index("id")[columns]
    except (ValueError, KeyError) as error:  # empty, no table, no text, or another table
        raise InputError(f"{path} is not a ledger of claims: remove it and run the notebooks again") from error
    claims = claims.set_index("id")
    claims.update(known.loc[known.index.isin(claims.index), columns])
    return claims.reset_index()


def evidence(row: Mapping[Hashable, Any] | pd.Series) -> Evidence:
    """Of a row of `over_seeds`."""
    return Evidence(f"[{row['ci_low']:.2f}, {row['ci_high']:.2f}]", int(row["seeds"]))


class Scores:
    """Accuracy in percent over seeds, by task, model and length."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = {(row["task"], row["model"], row["length"]): row for row in over_seeds(rows).to_dict("records")}
        self.tasks, self.models = list(dict.fromkeys(rows.task)), list(dict.fromkeys(rows.model))

    def median(self, task: str, model: str, length: int) -> float:
        return float(self.rows[task, model, length]["ours"])

    def has(self, task: str, model: str) -> bool:
        return any(place[:2] == (task, model) for place in self.rows)

    def lowest(self, tasks: Sequence[str], models: Sequence[str], lengths: Sequence[int]) -> tuple[str, str, int]:
        """The task, model and length with the lowest median; of several the one that is known least well."""
        return min(
            itertools.product(tasks, models, lengths),
            key=lambda place: (self.median(*place), self.rows[place]["ci_low"]),
        )

    def highest(self, tasks: Sequence[str], models: Sequence[str], lengths: Sequence[int]) -> tuple[str, str, int]:
        """The task, model and length with the highest median; of several the one that is known least well."""
        return max(
            itertools.product(tasks, models, lengths),
            key=lambda place: (self.median(*place), self.rows[place]["ci_high"]),
        )

    def worst(self, tasks: Sequence[str], models: Sequence[str], length: int) -> float:
        """The accuracy of the worst seed of all."""
        return min(float(self.rows[task, model, length]["worst"]) for task in tasks for model in models)

    def evidence(self, task: str, model: str, length: int) -> Evidence:
        return evidence(self.rows[task, model, length])

    def text(self, task: str, model: str, lengths: tuple[int, ...]) -> str:
        numbers = ", ".join(percent(self.median(task, model, length)) for length in lengths)
        return f"{task} {numbers} at {', '.join(map(str, lengths))} {unit_of(task)}"


def verdict(id: str, holds: bool, figure: str, evidence: Evidence = Evidence()) -> Verdict:  # noqa: B008 (a constant)
    return Verdict(id, "holds" if holds else "differs", figure, *evidence)
