"""The ledger of claims: what the paper says, the criterion, what was found here, and the verdict.

A judge (in `judges/`) is a function of the results; notebooks record what it returns. Criteria stand in
`data/criteria.csv`; they were written with the results of earlier runs in view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import pandas as pd
from filelock import FileLock

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.experiments.catalogue import MODELS
from abc_nb.experiments.profiles import PROFILES
from abc_nb.problems.tasks import OPERATIONS

Judgement = Literal[
    "holds", "holds with changes", "in part", "differs", "undecided", "not tested", "definition", "not run"
]
VERDICTS: tuple[Judgement, ...] = get_args(Judgement)
HEADLINES = ("C09", "C11", "C12", "C16", "C19", "C20", "C33")  # what ABS, ABC and Algorithm 1 do, as the paper has it
MOST = 0.8  # of the runs: from here on a claim that not every run meets holds in part
COLUMNS = ["verdict", "finding", "runs", "seeds", "reading", "regime", "size", "notebook"]


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
    def others(self) -> Count:
        """How many do not."""
        return Count(self.runs - self.met, self.runs)

    @property
    def agreeing(self) -> str:
        """The count as the ledger has it; empty without runs."""
        return f"{self} runs agree" if self.runs else ""

    @property
    def all(self) -> bool:
        return self.met == self.runs > 0

    @property
    def most(self) -> bool:
        """Whether four runs in five meet it."""
        return self.met >= MOST * self.runs > 0


@dataclass(frozen=True)
class Verdict:
    """One line of the ledger."""

    id: str
    verdict: Judgement
    finding: str  # one sentence
    runs: str = ""  # as in "19 of 20 runs agree": with the claim, of those that decide it; empty if none does
    reading: str = ""  # which reading of the paper was tried
    regime: str = "tight"
    seeds: str = ""  # of each task and model, as in "5" or "1 to 5"
    size: str = ""  # of the models, where it is not the profile's


def total(counts: Iterable[Count]) -> Count:
    return sum(counts, Count(0, 0))


def seeds_of(counts: Iterable[Count]) -> str:
    """How many seeds each of these counts has, where each is of one task and model."""
    numbers = sorted({count.runs for count in counts if count.runs})
    return "" if not numbers else f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def by_counts(counts: Mapping[str, Count], at_most: Judgement = "holds") -> Judgement:
    """The verdict from how many runs of each task or regime meet the criterion.

    All runs: `at_most`. Every run of some task, or most of all runs: in part. Fewer: differs. No runs: not run.
    """
    everything = total(counts.values())
    if everything.runs == 0:
        return "not run"
    if everything.all:
        return at_most
    return "in part" if everything.most or any(count.all for count in counts.values()) else "differs"


class Scores:
    """Accuracy in percent of single runs, by task, model, seed and length, with their validation.

    `rows` are evaluation rows with the columns task, model, seed, length, accuracy and validation (fractions).
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        keys = ["task", "model", "seed"]
        if "base" in rows:
            keys.insert(1, "base")
        self.percent = 100 * rows.pivot_table(index=keys, columns="length", values="accuracy")
        self.validation = 100 * rows.groupby(keys).validation.first()

    def of(self, task: str, model: str) -> pd.DataFrame:
        """One row a run (of every base), one column a length; empty if none was made."""
        index = self.percent.index
        return self.percent[(index.get_level_values("task") == task) & (index.get_level_values("model") == model)]

    def interpolating(self, task: str, model: str) -> pd.DataFrame:
        """The same for the runs that are right on 99% or more in validation."""
        found = self.of(task, model)
        return found[self.validation.loc[found.index] >= 99]

    def at_bar(self, task: str, model: str, length: int = 60, bar: float = 99.0) -> Count:
        """How many runs are right on `bar` percent or more at a length."""
        accuracy = self.of(task, model).get(length, pd.Series(dtype=float))
        return Count(int((accuracy >= bar).sum()), len(accuracy))

    def worst(self, task: str, model: str, length: int = 60) -> float:
        """The accuracy of the worst run; not a number if there is none."""
        return float(self.of(task, model).get(length, pd.Series(dtype=float)).min())


def paper_claims() -> pd.DataFrame:
    """The paper's claims, each with the criterion that decides it."""
    criteria = pd.read_csv(paths.DATA / "criteria.csv")
    return pd.read_csv(paths.DATA / "paper_claims.csv").merge(criteria, on="id", validate="one_to_one")


def record(verdicts: list[Verdict], notebook: str, profile: str) -> pd.DataFrame:
    """Put verdicts into the profile's ledger, replacing earlier ones; returns claim, verdict and finding of each."""
    path = paths.figures(profile) / "claims.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".claims.lock"):
        book = ledger(profile).set_index("id")
        for verdict in verdicts:
            if verdict.id not in book.index or verdict.verdict not in VERDICTS:
                raise InputError(f"no claim {verdict.id} with verdict {verdict.verdict!r}: see paper_claims.csv")
            row = asdict(verdict) | {"notebook": notebook, "size": verdict.size or usual_size(profile)}
            row |= {"finding": in_titles(verdict.finding)}
            book.loc[verdict.id, COLUMNS] = [row[column] for column in COLUMNS]
        write_text(path, book.reset_index().to_csv(index=False))
    return book.loc[[verdict.id for verdict in verdicts], ["claim", "verdict", "runs", "finding"]].reset_index()


def unlike_the_paper(profile: str) -> pd.DataFrame:
    """The claims that did not come out as the paper says: id, claim, verdict, runs, finding, notebook.

    Those whose verdict is "differs" by runs, and headlines of the paper that hold in part only or are undecided.
    """
    book = ledger(profile)
    by_runs = (book.verdict == "differs") & (book.runs != "")
    headline = book.id.isin(HEADLINES) & book.verdict.isin(["differs", "in part", "undecided"])
    return book[by_runs | headline].reset_index(drop=True)


def usual_size(profile: str) -> str:
    """The size of a profile's models, in words."""
    size = PROFILES[profile].size
    return f"{size.encoder_layers} encoder and {size.decoder_layers} decoder layers, embedding size {size.width}"


def in_titles(text: str) -> str:
    """A finding with the titles of tasks and models in place of their names."""
    titles = {name: model.title for name, model in MODELS.items() if "-" in name}
    titles |= {name: operation.title for name, operation in OPERATIONS.items()}
    return re.sub(r"[a-z][a-z0-9.-]*[a-z0-9]", lambda found: titles.get(found[0], found[0]), text)


def ledger(profile: str) -> pd.DataFrame:
    """Every claim with its verdict so far: id, topic, claim, criterion, and what `Verdict` has."""
    claims = paper_claims()[["id", "topic", "claim", "criterion"]]
    claims = claims.assign(**dict.fromkeys(COLUMNS, "")).assign(verdict="not run")
    path = paths.figures(profile) / "claims.csv"
    if not path.exists():
        return claims
    try:
        known = pd.read_csv(path, dtype=str, keep_default_na=False).set_index("id")
        known = known[["verdict"]].join(known.reindex(columns=COLUMNS[1:], fill_value=""))  # an older one lacks some
    except (ValueError, KeyError) as error:  # empty, no table, no text, or another table
        raise InputError(f"{path} is not a ledger of claims: remove it and run the notebooks again") from error
    claims = claims.set_index("id")
    claims.update(known.loc[known.index.isin(claims.index), COLUMNS])
    return claims.reset_index()
