"""Judges of claims C09-C13: attention bias scaffolding.

Tight problems decide, of which there is every task; padded ones, as the paper's are, are told.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.claims import Scores, Verdict, evidence, verdict
from abc_nb.analysis.judges.failure import interpolates_only
from abc_nb.analysis.statistics import BAR, percent
from abc_nb.experiments.profiles import TABLE

FULL = 99.9  # percent that still reads as the paper's "100%", in the median seed
UNARY, BINARY = ("Successor", "Parity"), ("Addition", "N x 1")


def told(
    tasks: Sequence[str], model: str, lengths: tuple[int, ...], scores: Scores, padded: Scores, more: str = ""
) -> str:
    """A model's accuracy on each task: on tight problems, with more to say of them, and on padded ones if there are."""
    there = [padded.text(task, model, lengths) for task in tasks if padded.has(task, model)]
    tight = "; ".join(scores.text(task, model, lengths) for task in tasks) + more
    return tight + ("; padded: " + "; ".join(there) if there else "")


def window_solves_unary(scores: Scores, padded: Scores) -> Verdict:
    place = scores.lowest(UNARY, ["+ w=1"], TABLE)
    figure = told(UNARY, "+ w=1", (6, 20, 60), scores, padded)
    return verdict("C09", scores.median(*place) >= FULL, figure, scores.evidence(*place))


def window_alone_interpolates_binary(scores: Scores, padded: Scores) -> Verdict:
    holds, decides = interpolates_only(scores, BINARY, "+ w=1")
    return verdict("C10", holds, told(BINARY, "+ w=1", (6, 10, 60), scores, padded), decides)


def cyclic_window_solves_all(scores: Scores, padded: Scores) -> Verdict:
    tasks = (*UNARY, *BINARY)
    place = scores.lowest(tasks, ["+ T=3"], TABLE)
    worst = scores.worst(tasks, ["+ T=3"], 60)
    figure = told(tasks, "+ T=3", (6, 60), scores, padded, f"; worst seed at 60 digits {percent(worst)}")
    return verdict("C11", scores.median(*place) >= FULL, figure, scores.evidence(*place))


def window_without_positions(scores: Scores, padded: Scores) -> Verdict:
    """Perfect on the unary tasks; on the binary ones 98% or better, but not perfect."""
    model = "NoPE + w=1"
    unary, binary = (scores.lowest(tasks, [model], TABLE) for tasks in (UNARY, BINARY))
    perfect = scores.median(*unary) >= FULL
    figure = told((*UNARY, *BINARY), model, (6, 20, 60), scores, padded)
    decides = scores.evidence(*(binary if perfect else unary))
    return verdict("C12", perfect and 98 <= scores.median(*binary) < 100, figure, decides)


def period_does_not_matter(periods: pd.DataFrame, grid: pd.DataFrame) -> Verdict:
    """With w=1 every period that tells the keys of the window apart reaches the bar at 60 digits.

    After the whole training (`tables.periods`), which is of the binary tasks. Unary windows hold three keys, binary
    ones four, of which two may share a residue: T of three and more. Smaller periods are told, and what a quarter of
    the training gives (`tables.grid`).
    """
    part, short = (frame[(frame.w == "1") & (frame.length == 60) & (frame["T"] > 0)] for frame in (periods, grid))
    by_period = part.groupby("T").ours.min()
    tasks = " and ".join(dict.fromkeys(part.task))
    figure = f"lowest of {tasks} at 60 digits, w=1: " + ", ".join(f"T={t} {percent(x)}" for t, x in by_period.items())
    if len(short := short[short["T"] >= 3]):
        figure += f"; after a quarter of the training {percent(short.ours.min())} to {percent(short.ours.max())}"
    apart = part[part["T"] >= 3].sort_values(["ours", "ci_low"])
    if apart.empty:
        return Verdict("C13", "not run", figure)
    lowest = apart.iloc[0]
    return verdict("C13", lowest.ours >= 100 * BAR, figure, evidence(lowest))


SCAFFOLDING = (
    window_solves_unary,
    window_alone_interpolates_binary,
    cyclic_window_solves_all,
    window_without_positions,
)
