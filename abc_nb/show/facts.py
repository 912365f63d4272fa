"""The numbers that README states, rendered from the shipped results."""

from __future__ import annotations

from abc_nb.analysis import certified, claims
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import percent
from abc_nb.experiments import ARITHMETIC

ROWS = {
    "vanilla": "Vanilla",
    "window-cyclic": "ABS",
    "abc": "ABC",
    "decoder-vanilla": "Vanilla, decoder-only",
    "decoder-abs": "ABS, decoder-only",
    "decoder-abc": "ABC, decoder-only",
}
LENGTHS = (6, 60, 200)


def table(found: Results) -> str:
    """README's table in Markdown: the worst run at each length over tasks and seeds, and how many are certified."""
    rows = found.rows("baselines", "scaffolds", "abc", "decoder-only")
    proven = certified.certificates(found)
    lines = ["| | 6 digits | 60 digits | 200 digits | every length |", "| --- | --- | --- | --- | --- |"]
    for model, title in ROWS.items():
        own = rows[(rows.model == model) & rows.task.isin(ARITHMETIC)]
        worst = [own[own.length == length].accuracy.min() for length in LENGTHS]
        cells = ["–" if value != value else percent(100 * value) for value in worst]
        mine = proven[proven.model == model]
        cells.append(f"{int(mine.certified.sum())} of {len(mine)} certified" if len(mine) else "–")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tally(profile: str) -> str:
    """How many claims of the papers have which verdict, as one sentence."""
    counts = claims.ledger(profile).verdict.value_counts()
    found = [f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS if verdict in counts]
    return f"Of the papers' {counts.sum()} claims: {', '.join(found)}."
