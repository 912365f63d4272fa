"""The ledger of claims: what the papers say, what a run here says, and the verdict.

A judge (in `judges/`) is a function of the results; notebooks record what it returns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pandas as pd
from filelock import FileLock

from abc_nb import paths
from abc_nb.errors import InputError
from abc_nb.files import write_text
from abc_nb.tables import over_seeds

VERDICTS = ("holds", "differs", "not run", "definition")


@dataclass(frozen=True)
class Verdict:
    """One line of the ledger."""

    id: str
    verdict: Literal["holds", "differs", "not run", "definition"]
    figure: str  # what was measured, in words and numbers
    interval: str = ""  # 95% interval of the number that decides


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
            row = asdict(verdict) | {"notebook": notebook}
            book.loc[verdict.id, list(row)[1:]] = list(row.values())[1:]
        write_text(path, book.reset_index().to_csv(index=False))
    return book.loc[[verdict.id for verdict in verdicts]].reset_index()


def ledger(profile: str) -> pd.DataFrame:
    """Every claim with its verdict so far: id, topic, claim, verdict, figure, interval, notebook."""
    claims = paper_claims()[["id", "topic", "claim"]].assign(verdict="not run", figure="", interval="", notebook="")
    path = paths.figures(profile) / "claims.csv"
    if not path.exists():
        return claims
    known = pd.read_csv(path, dtype=str, keep_default_na=False).set_index("id")
    columns = ["verdict", "figure", "interval", "notebook"]
    claims = claims.set_index("id")
    claims.update(known.loc[known.index.isin(claims.index), columns])
    return claims.reset_index()


class Scores:
    """Accuracy in percent over seeds, by task, model and length."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = {(row["task"], row["model"], row["length"]): row for row in over_seeds(rows).to_dict("records")}
        self.tasks, self.models = list(dict.fromkeys(rows.task)), list(dict.fromkeys(rows.model))

    def median(self, task: str, model: str, length: int) -> float:
        return float(self.rows[task, model, length]["ours"])

    def interval(self, task: str, model: str, length: int) -> str:
        row = self.rows[task, model, length]
        return f"[{row['ci_low']:.2f}, {row['ci_high']:.2f}]"

    def text(self, task: str, model: str, lengths: tuple[int, ...]) -> str:
        numbers = ", ".join(f"{self.median(task, model, length):.1f}" for length in lengths)
        return f"{task} {numbers} at {', '.join(map(str, lengths))} digits"


def verdict(id: str, holds: bool, figure: str, interval: str = "") -> Verdict:
    return Verdict(id, "holds" if holds else "differs", figure, interval)
