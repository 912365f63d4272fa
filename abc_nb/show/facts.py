"""The numbers that README and the report state, rendered from results."""

from __future__ import annotations

import pandas as pd

from abc_nb.analysis import certified, claims
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import percent
from abc_nb.experiments import ARITHMETIC

ROWS = {
    "vanilla": "Vanilla",
    "window-cyclic": "ABS",
    "abc": "ABC",
    "decoder-vanilla": "Vanilla, decoder-only",
    "decoder-abs": "ABS, one key a head, decoder-only",
    "decoder-abc": "ABC, decoder-only",
}
LENGTHS = (6, 60, 200)
HEAD = ("", *(f"{length} digits" for length in LENGTHS), "every length")


def worst_runs(found: Results) -> list[tuple[str, ...]]:
    """By method the worst run at each length over tasks and seeds, in percent, and how many runs are certified.

    Methods without a run are left out.
    """
    proven, rows = certified.certificates(found), []
    for model, title in ROWS.items():
        runs = found.existing([f"{task}-{model}" for task in ARITHMETIC])
        if not runs:
            continue
        own, mine = pd.concat([run.evaluation() for run in runs]), proven[proven.model == model]
        worst = [own[own.length == length].accuracy.min() for length in LENGTHS]
        cells = ["–" if value != value else percent(100 * value) for value in worst]
        cells.append(f"{int(mine.certified.sum())} of {len(mine)} certified" if len(mine) else "–")
        rows.append((title, *cells))
    return rows


def table(found: Results) -> str:
    """`worst_runs` in Markdown, as README has it."""
    lines = [HEAD, ("---",) * len(HEAD), *worst_runs(found)]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def tally(profile: str) -> str:
    """How many claims of the papers have which verdict, as one sentence."""
    counts = claims.ledger(profile).verdict.value_counts()
    found = [f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS if verdict in counts]
    return f"Of the papers' {counts.sum()} claims: {', '.join(found)}."
