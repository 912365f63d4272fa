"""The numbers that README and the report state, rendered from results."""

from __future__ import annotations

import pandas as pd

from abc_nb.analysis import certified, claims, repairs
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import percent
from abc_nb.experiments import ARITHMETIC
from abc_nb.show import tables
from abc_nb.show.titles import of_models

ROWS = of_models(["vanilla", "window-cyclic", "abc", "decoder-vanilla", "decoder-abs", "decoder-abc"])
LENGTHS = (6, 60, 200)
HEAD = ("", *(f"{length} digits" for length in LENGTHS), "certified", "after repair")


def worst_runs(found: Results) -> list[tuple[str, ...]]:
    """By method the worst run at each length over tasks and seeds, in percent, and how many runs are certified.

    Those are counted of all runs, before repair and after it. Methods without a run are left out.
    """
    proven, rows = repairs.by_seed(found, certified.EVERY), []
    for model, title in ROWS.items():
        runs = found.existing([f"{task}-{model}" for task in ARITHMETIC])
        if not runs:
            continue
        own = pd.concat([run.evaluation() for run in runs])
        worst = [own[own.length == length].accuracy.min() for length in LENGTHS]
        cells = ["–" if value != value else percent(100 * value) for value in worst]
        mine = proven[proven.model == model]
        cells += [f"{mine[when].sum()} of {len(runs)}" if len(mine) else "–" for when in ("before", "after")]
        rows.append((title, *cells))
    return rows


def fresh_seeds(found: Results) -> str:
    """What the worst runs of ABS and ABC get right in seeds that were trained once at the end, as one sentence."""
    rows, parts = tables.fresh_seeds(found), []
    for model, own in rows[rows.seeds != "0 to 4"].groupby("model", sort=False):
        sixty, longest = (percent(own[own.length == length].worst.min()) for length in (60, 200))
        runs = own[own.length == 60].runs.sum()
        parts.append(f"the worst of {runs} {ROWS[str(model)]} models is right on {sixty}% and {longest}%")
    return f"At 60 and at 200 digits {' and '.join(parts)}."


def table(found: Results) -> str:
    """`worst_runs` in Markdown, as README has it."""
    lines = [HEAD, ("---",) * len(HEAD), *worst_runs(found)]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


IN_WORDS = {
    "holds": "{} hold",
    "holds with changes": "{} hold with changes",
    "in part": "{} hold in part",
    "differs": "{} do not hold",
    "undecided": "{} are undecided",
    "not run": "{} were not run",
    "not tested": "{} cannot be tested here",
    "definition": "{} is a definition",
}


def tally(profile: str) -> str:
    """How many claims of the papers have which verdict, as one sentence."""
    counts = claims.ledger(profile).verdict.value_counts()
    found = [words.format(counts[verdict]) for verdict, words in IN_WORDS.items() if verdict in counts]
    return f"Of {counts.sum()} claims in the paper's four versions {', '.join(found)}."
