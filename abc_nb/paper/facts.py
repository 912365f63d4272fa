"""The numbers that README and the report state, rendered from results."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from abc_nb.analysis import certified, repairs
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import percent
from abc_nb.experiments import ARITHMETIC
from abc_nb.paper.ledger import ledger
from abc_nb.runs.run import Run
from abc_nb.show import tables
from abc_nb.show.titles import of_models

ROWS = of_models(
    ["vanilla", "window-cyclic", "abc", "decoder-vanilla", "decoder-abs", "decoder-abc", "decoder-abc-twice"]
)
LENGTHS = (6, 60, 200)
HEAD = ("", *(f"{length} digits" for length in LENGTHS), "certified", "after repair")
IN_WORDS = {  # of one claim, and of several
    "holds": ("holds", "hold"),
    "holds with changes": ("holds with changes", "hold with changes"),
    "in part": ("holds in part", "hold in part"),
    "differs": ("does not hold", "do not hold"),
    "undecided": ("is undecided", "are undecided"),
    "not run": ("was not run", "were not run"),
    "not tested": ("cannot be tested here", "cannot be tested here"),
    "definition": ("is a definition", "are definitions"),
}


def runs_of(found: Results, model: str) -> list[Run]:
    """The runs of a model that are there, of the paper's four tasks."""
    return found.existing([f"{task}-{model}" for task in ARITHMETIC])


def worst_runs(found: Results) -> str:
    """By method the worst run at each length over tasks and seeds, in percent, and how many runs are certified.

    A table in Markdown. Certificates are counted of all runs, before repair and after it. Methods without a run are
    left out; without any the table is empty.
    """
    proven, rows = repairs.by_seed(found, certified.EVERY), []
    for model, title in ROWS.items():
        if not (runs := runs_of(found, model)):
            continue
        own = pd.concat([run.evaluation() for run in runs])
        worst = [own[own.length == length].accuracy.min() for length in LENGTHS]
        cells = ["–" if value != value else percent(100 * value) for value in worst]
        mine = proven[proven.model == model]
        cells += [f"{mine[when].sum()} of {len(runs)}" if len(mine) else "–" for when in ("before", "after")]
        rows.append((title, *cells))
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines) if rows else ""


def fresh_seeds(found: Results) -> str:
    """What ABS and ABC get right at the greatest length in seeds that were trained once at the end, in a sentence."""
    rows, parts = tables.fresh_seeds(found), []
    rows = rows[(rows.seeds != "0 to 4") & (rows.length == rows.length.max())]
    for model, own in rows.groupby("model", sort=False):
        name, worst = ROWS[str(model)], percent(own.worst.min())
        parts.append(
            f"{own.right.sum()} of {own.runs.sum()} {name} models are right on every problem, the worst on {worst}%"
        )
    return f"At {rows.length.max()} digits {'; '.join(parts)}."


def fresh_certificates(found: Results) -> str:
    """How many models of those seeds are certified, in a sentence; only seeds whose weights were kept were tried."""
    rows = certified.certificates(replace(found, seeds=tables.FRESH), certified.MODELS)
    tried = replace(found, seeds=sorted(rows.seed.unique().tolist()))
    parts = [
        f"{own.certified.sum()} of {len(runs_of(tried, str(model)))} {ROWS[str(model)]} models"
        for model, own in rows.groupby("model", sort=False)
    ]
    return (
        f"Of seeds {tried.seeds[0]} to {tried.seeds[-1]}, whose weights were kept, {' and '.join(parts)} are certified."
    )


def tally(profile: str) -> str:
    """How many claims of the papers have which verdict, as one sentence."""
    counts = ledger(profile).verdict.value_counts()
    parts = [
        f"{counts[name]} {many if counts[name] > 1 else one}"
        for name, (one, many) in IN_WORDS.items()
        if name in counts
    ]
    return f"Of {counts.sum()} claims in the paper's four versions {', '.join(parts)}."
