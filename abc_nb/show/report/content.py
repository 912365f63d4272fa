"""What the report shows of a profile: figures, tables, ledger and runs, read from the files that hold them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abc_nb import experiments
from abc_nb.analysis import claims
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.experiments import profiles
from abc_nb.runs import store
from abc_nb.show import captions
from abc_nb.show.report import comparison, exhibits
from abc_nb.show.report.comparison import Comparison, Plain

HEADLINE = "figure-25-beyond"
SHOWN_LENGTHS = (6, 10, 60)


@dataclass(frozen=True)
class Item:
    """A figure (its PNG) or a table, with its caption in Markdown."""

    name: str
    caption: str
    png: bytes = b""
    table: Comparison | Plain | None = None


@dataclass(frozen=True)
class Section:
    """What a notebook made, and what it would have made but is not there."""

    title: str
    intro: str
    anchor: str
    link: str  # to the notebook
    items: tuple[Item, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A line of the ledger, with the way to its notebook."""

    id: str
    claim: str
    verdict: str
    criterion: str
    finding: str
    runs: str  # as in "19 of 20": how many met the criterion
    reading: str
    notebook: str
    link: str  # to the notebook


ABOUT = (
    "Small Transformers learn arithmetic on numbers of six digits; a bias added to their attention, made by hand (ABS) "
    "or read out of a trained model (ABC), lets them go on to any length. This page reproduces Duan, Shi and Xu, "
    "*Attention Bias as an Inductive Bias: How to Teach Transformers Simple Arithmetic*, and puts the paper's numbers "
    "beside ours."
)
WORDS = (
    "*Vanilla* is a small Transformer with sines and cosines of the index. `+ w=1` has a window: each step sees the "
    "digits of its place and a neighbour on either side, the operands' digits standing side by side. `+ T=3` (ABS) "
    "takes the index modulo 3, too. *ABC* has a bias read out of Vanilla's attention, that index, and 300 steps of "
    "retraining at most. *Tight* problems are as wide as their result can need, *padded* ones always have room for "
    "sixty digits, as the paper's have."
)


@dataclass(frozen=True)
class Report:
    """Everything that is shown; `facts` and `runs` are about the runs behind it."""

    profile: str
    purpose: str
    headline: Item | None
    sections: tuple[Section, ...]
    ledger: tuple[Claim, ...]
    facts: dict[str, str]
    runs: Plain

    @property
    def counts(self) -> dict[str, int]:
        return {verdict: sum(claim.verdict == verdict for claim in self.ledger) for verdict in claims.VERDICTS}

    @property
    def about(self) -> tuple[str, str]:
        """What it reproduces, and what its words mean."""
        return ABOUT, WORDS

    @property
    def setting(self) -> str:
        """What the verdicts are about, and how the ledger is read."""
        size = profiles.PROFILES[self.profile].size
        return (
            f"They are about the models of the profile {self.profile}: {size.encoder_layers} encoder and "
            f"{size.decoder_layers} decoder layers of embedding size {size.width}. A run is one task and one seed. "
            "The criterion of each claim stands in claims.csv; criteria were written with earlier results in view."
        )


def collect(found: Results) -> Report:
    """Read the profile's folder of figures and tables, and the runs that `found` stands for."""
    folder = paths.figures(found.profile)
    sections = read_sections(folder)
    items = {item.name: item for section in sections for item in section.items}
    runs = listed_runs(found)
    return Report(
        profile=found.profile,
        purpose=profiles.PROFILES[found.profile].purpose,
        headline=items.get(HEADLINE),
        sections=tuple(sections),
        ledger=tuple(read_ledger(found.profile, folder)),
        facts=facts(runs, found.origin),
        runs=run_table(runs),
    )


# ---- figures, tables, claims ------------------------------------------------------------------------


def read_sections(folder: Path) -> list[Section]:
    """A section a notebook, and one for files that no notebook saves."""
    files = {path.stem: path for path in sorted(folder.glob("*.csv")) if path.stem != "claims"}
    files |= {path.stem: path for path in sorted(folder.glob("figure-*.png"))}
    sections = []
    for chapter in exhibits.chapters():
        missing = tuple(each.name for each in chapter.exhibits if each.name not in files)
        items = tuple(read_item(files.pop(each.name), each.caption) for each in chapter.exhibits if each.name in files)
        stem = chapter.notebook.stem
        sections.append(Section(chapter.title, chapter.intro, stem, link(folder, stem), items, missing))
    if files:
        known = captions.known()
        rest = tuple(read_item(path, known.get(name, "")) for name, path in files.items())
        sections.append(Section("Not from a notebook", "", "others", "", rest, ()))
    return sections


def read_item(path: Path, caption: str) -> Item:
    """Read a PNG or a CSV; where there is no caption its name stands in."""
    caption = caption or f"`{path.stem}`"
    if path.suffix == ".csv":
        return Item(path.stem, caption, table=comparison.read(path))
    return Item(path.stem, caption, png=path.read_bytes())


def read_ledger(profile: str, folder: Path) -> list[Claim]:
    return [
        Claim(
            id=row["id"],
            claim=row["claim"],
            verdict=row["verdict"],
            criterion=row["criterion"],
            finding=row["finding"],
            runs=row["runs"],
            reading=", ".join(filter(None, [row["reading"], row["regime"]])),
            notebook=row["notebook"],
            link=link(folder, row["notebook"]),
        )
        for row in claims.ledger(profile).to_dict("records")
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


def run_table(runs: Sequence[store.Run]) -> Plain:
    """A line a run: what was trained, how long, how well, where and when."""
    head = ("experiment", "seed", "steps", "seconds", *(f"right at {n} (%)" for n in SHOWN_LENGTHS))
    rows = tuple(run_row(run) for run in runs)
    return Plain((*head, "made", "device", "date"), rows, (False, *[True] * (len(head) - 1), False, False, False))


def run_row(run: store.Run) -> tuple[str, ...]:
    accuracy = run.evaluation().set_index("length").accuracy
    percent = [f"{100 * accuracy[length]:.1f}" if length in accuracy else "" for length in SHOWN_LENGTHS]
    manifest = run.manifest
    numbers = (str(run.seed), str(manifest["steps"]), str(round(seconds(run))))
    made = "shipped" if manifest["shipped"] else "here"
    return run.experiment.name, *numbers, *percent, made, manifest["device"], manifest["date"]


def seconds(run: store.Run) -> float:
    return float(sum(run.manifest["seconds"].values()))


def facts(runs: Sequence[store.Run], origin: str) -> dict[str, str]:
    """What the results should be read with, out of the runs' manifests."""
    if not runs:
        return {"Runs": f"none were found (results: {origin}), so devices and versions are not known"}

    def distinct(read: Callable[[store.Run], Any], between: str = "; ") -> str:
        return between.join(str(value) for value in sorted({read(run) for run in runs}))

    dates = sorted({run.manifest["date"] for run in runs})
    return {
        "Regimes": distinct(lambda run: run.experiment.sampler.regime),
        "Seeds": distinct(lambda run: run.seed, ", "),
        "Runs": f"{len(runs)}, of which {sum(run.manifest['shipped'] for run in runs)} came with the project",
        "Time": f"{sum(map(seconds, runs)):,.0f} seconds of training and evaluation, one run after another",
        "Device": distinct(lambda run: run.manifest["device"]),
        "Threads a run": distinct(lambda run: run.manifest["threads"]),
        "Versions": distinct(lambda run: ", ".join(f"{name} {n}" for name, n in run.manifest["versions"].items())),
        "Dates": " to ".join(dict.fromkeys([dates[0], dates[-1]])),
    }
