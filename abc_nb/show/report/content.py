"""What the report says of a profile, read from the files that hold it: two pages for a person, and a list of runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb import experiments
from abc_nb.analysis import claims
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.experiments import profiles
from abc_nb.runs import store
from abc_nb.show import captions, facts
from abc_nb.show.report import exhibits

HEADLINE = "figure-0-1-headline"
SHOWN_LENGTHS = (6, 10, 60)
ABOUT = (
    "Small Transformers learn arithmetic on numbers of six digits and fail beyond. A bias added to their attention, "
    "made by hand (ABS) or read out of a trained model (ABC), lets them go on to any length. This page reproduces "
    "Duan, Shi and Xu, *Attention Bias as an Inductive Bias: How to Teach Transformers Simple Arithmetic*."
)


@dataclass(frozen=True)
class Claim:
    """A line of the ledger."""

    id: str
    claim: str
    verdict: str
    runs: str  # as in "19 of 20 runs agree"
    finding: str
    notebook: str
    link: str  # to the notebook


@dataclass(frozen=True)
class Report:
    """Everything that is shown; `facts` are about the runs behind it."""

    profile: str
    purpose: str
    picture: bytes  # the headline's PNG; empty if there is none
    caption: str
    head: tuple[str, ...]  # of the table of worst runs
    rows: tuple[tuple[str, ...], ...]
    ledger: tuple[Claim, ...]
    differing: tuple[Claim, ...]  # those that did not come out as the paper says
    notebooks: tuple[tuple[str, str], ...]  # title and link
    facts: dict[str, str]
    runs: pd.DataFrame

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        found = {verdict: sum(claim.verdict == verdict for claim in self.ledger) for verdict in claims.VERDICTS}
        return {verdict: count for verdict, count in found.items() if count}

    @property
    def setting(self) -> str:
        """What the verdicts are about."""
        size = profiles.PROFILES[self.profile].size
        return (
            f"Models have {size.encoder_layers} encoder and {size.decoder_layers} decoder layers of embedding size "
            f"{size.width}. A run is one task and one seed. Finding, criterion and regime of each claim stand in "
            "claims.csv. Criteria were written with earlier results in view."
        )


def collect(found: Results) -> Report:
    """Read the profile's folder of figures and tables, and the runs that `found` stands for."""
    folder = paths.figures(found.profile)
    picture = folder / f"{HEADLINE}.png"
    runs, book = listed_runs(found), read_ledger(found.profile, folder)
    differing = set(claims.unlike_the_paper(found.profile).id)
    return Report(
        profile=found.profile,
        purpose=profiles.PROFILES[found.profile].purpose,
        picture=picture.read_bytes() if picture.exists() else b"",
        caption=captions.full(HEADLINE),
        head=facts.HEAD,
        rows=tuple(facts.worst_runs(found)),
        ledger=tuple(book),
        differing=tuple(claim for claim in book if claim.id in differing),
        notebooks=tuple((each.title, link(folder, each.notebook.stem)) for each in exhibits.chapters()),
        facts=facts_of(runs, found.origin),
        runs=run_table(runs),
    )


def read_ledger(profile: str, folder: Path) -> list[Claim]:
    known = ["id", "claim", "verdict", "runs", "finding", "notebook"]
    rows: list[list[str]] = claims.ledger(profile)[known].to_numpy().tolist()
    return [
        Claim(id, claim, verdict, runs, finding, notebook, link(folder, notebook))
        for id, claim, verdict, runs, finding, notebook in rows
    ]


def link(folder: Path, notebook: str) -> str:
    """The way from the report to a notebook; empty where there is none."""
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return Path(os.path.relpath(path, folder)).as_posix() if path.exists() else ""


# ---- runs -------------------------------------------------------------------------------------------


def listed_runs(found: Results) -> list[store.Run]:
    """The runs that notebooks read with these results; of those not made here, shipped ones."""
    origins = ("shipped",) if found.origin == "shipped" else store.ANYWHERE
    jobs = [(experiment, seed) for experiment in experiments.needed(found.profile, True) for seed in found.seeds]
    return [run for job in jobs if (run := store.find(*job, origins)) is not None]


def run_table(runs: Sequence[store.Run]) -> pd.DataFrame:
    """A row a run: what was trained, how long, how well, where and when."""
    return pd.DataFrame([run_row(run) for run in runs])


def run_row(run: store.Run) -> dict[str, object]:
    accuracy = run.evaluation().set_index("length").accuracy
    percent = {f"right at {n} (%)": f"{100 * accuracy[n]:.1f}" if n in accuracy else "" for n in SHOWN_LENGTHS}
    manifest = run.manifest
    row = {"experiment": run.experiment.name, "seed": run.seed, "steps": manifest["steps"], "seconds": seconds(run)}
    made = {"made": "shipped" if manifest["shipped"] else "here"}
    return row | percent | made | {key: manifest[key] for key in ("device", "date")}


def seconds(run: store.Run) -> int:
    return round(sum(run.manifest["seconds"].values()))


def facts_of(runs: Sequence[store.Run], origin: str) -> dict[str, str]:
    """What the results should be read with, out of the runs' manifests."""
    if not runs:
        return {"Runs": f"none were found (results: {origin}), so devices and versions are not known"}

    def distinct(read: Callable[[store.Run], Any]) -> str:
        return "; ".join(str(value) for value in sorted({read(run) for run in runs}))

    dates = sorted({run.manifest["date"] for run in runs})
    return {
        "Runs": f"{len(runs)}, of which {sum(run.manifest['shipped'] for run in runs)} came with the project",
        "Time": f"{sum(map(seconds, runs)):,} seconds of training and evaluation, one run after another",
        "Device": distinct(lambda run: run.manifest["device"]),
        "Versions": distinct(lambda run: ", ".join(f"{name} {n}" for name, n in run.manifest["versions"].items())),
        "Dates": " to ".join(dict.fromkeys([dates[0], dates[-1]])),
    }
