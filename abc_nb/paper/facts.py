"""The numbers that README and the report state, rendered from results."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import percent
from abc_nb.paper.ledger import ledger, tally
from abc_nb.show.titles import of_models
from abc_nb.specs.studies import ARITHMETIC

ROWS = of_models(["vanilla", "abs", "abc", "decoder-vanilla", "decoder-abs", "decoder-abc", "decoder-abc-twice"])
LENGTHS = (6, 60, 200)
HEAD = ("", *(f"{length} digits" for length in LENGTHS), "certified")
README = ("vanilla", "abs", "abc")  # the methods that README has


def worst_runs(results: Results, models: Sequence[str] = tuple(ROWS)) -> str:
    """By method the worst run at each length over tasks and seeds, in percent, and how many runs are certified.

    A table in Markdown. Methods without a run are left out; without any the table is empty.
    """
    proven, rows = certified.practice(results), [HEAD]
    for model in models:
        if not (runs := results.existing([f"{task}-{model}" for task in ARITHMETIC])):
            continue
        own = pd.concat([run.evaluation() for run in runs])
        worst = [own[own.length == length].accuracy.min() for length in LENGTHS]
        cells = ["–" if value != value else percent(100 * value) for value in worst]
        mine = proven[proven.model == model]
        cells.append(f"{mine.after.sum()} of {len(mine)}" if len(mine) else "–")
        rows.append((ROWS[model], *cells))
    return grid(rows) if len(rows) > 1 else ""


def proven(results: Results, models: Sequence[str] = ("abs", "abc")) -> str:
    """How many runs of some methods are certified, as a part of a sentence."""
    frame = certified.practice(results, models)
    parts = [(ROWS[model], frame[frame.model == model].after) for model in models]
    return ", ".join(f"{title} {after.sum()} of {len(after)}" for title, after in parts)


def verdicts(profile: str) -> str:
    """How many claims of the papers have which verdict, in one sentence."""
    book = ledger(profile)
    return f"Of {len(book)} claims of the paper's four versions: {tally(book)}."


def grid(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its head first; cells are as they are to be written."""
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)
