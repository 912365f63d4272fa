"""Judges of claims C09 to C13, C33 and C34: attention bias scaffolding. Padded problems count beside tight ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from abc_nb.analysis.claims import Count, Judgement, Scores, Verdict, by_counts, seeds_of, total
from abc_nb.experiments.catalogue import MODELS, PERIOD_MODELS, WINDOWS
from abc_nb.experiments.studies import STUDIES

FULL = 99.9  # percent that still reads as the paper's "100%"
UNARY, BINARY = ("successor", "parity"), ("addition", "n-by-1")
ONE_SIDE = "the window to one side, as in the authors' code"
PADDED = "-padded"
REGIMES = {"tight": "", "padded": PADDED}  # and how names of models end in them
SEEDS = 5  # that a claim about single models needs


def cells(scores: Scores, tasks: Sequence[str], model: str, length: int = 60, bar: float = FULL) -> dict[str, Count]:
    """Runs at the bar by regime and task, of those that were made."""
    found = {
        f"{regime}, {task}": scores.at_bar(task, model + end, length, bar)
        for regime, end in REGIMES.items()
        for task in tasks
    }
    return {name: count for name, count in found.items() if count.runs}


def interpolating_only(scores: Scores, tasks: Sequence[str], model: str, length: int, below: float) -> dict[str, Count]:
    """Runs by regime and task that interpolate and are right on less than `below` percent at a length."""
    counts = {}
    for regime, end in REGIMES.items():
        for task in tasks:
            runs, trained = scores.of(task, model + end), scores.interpolating(task, model + end)
            if len(runs):
                counts[f"{regime}, {task}"] = Count(int((trained[length] < below).sum()), len(runs))
    return counts


def listed(counts: Mapping[str, Count]) -> str:
    return "; ".join(f"{name} {count}" for name, count in counts.items())


def between(values: Iterable[float], form: str = ".2f") -> str:
    """Numbers as a range: the lowest and the highest, or the one there is."""
    ordered = sorted(values)
    low, high = format(ordered[0], form), format(ordered[-1], form)
    return low if low == high else f"{low} to {high}"


def counted(id: str, counts: Mapping[str, Count], what: str, reading: str, at_most: Judgement = "holds") -> Verdict:
    """The verdict on how many runs of each task and regime meet a criterion."""
    regimes = dict.fromkeys(name.split(",")[0] for name in counts)
    finding = f"{what}: {listed(counts)}."
    return judged(id, counts, finding, reading, by_counts(counts, at_most), " and ".join(regimes))


def judged(
    id: str, counts: Mapping[str, Count], finding: str, reading: str, verdict: Judgement, regime: str = "tight"
) -> Verdict:
    """A verdict with its runs and seeds, from how many runs of single tasks and models agree with the claim."""
    found = counts.values()
    return Verdict(id, verdict, finding, total(found).agreeing, reading, regime, seeds_of(found))


def beside(found: Verdict, both: Mapping[str, Count]) -> Verdict:
    """A verdict on the window to one side, which tells what the one to both sides, as the text has it, does."""
    regimes = {regime: total(count for name, count in both.items() if name.startswith(regime)) for regime in REGIMES}
    counts = {regime: count for regime, count in regimes.items() if count.runs}
    return replace(found, finding=f"{found.finding} To both sides: {listed(counts)}.") if counts else found


def window_solves_unary(scores: Scores) -> Verdict:
    counts = cells(scores, UNARY, "window", bar=99)
    found = counted("C09", counts, "Runs at 99% at 60 digits", ONE_SIDE)
    return beside(found, cells(scores, UNARY, "window-both", bar=99))


def window_alone_interpolates_binary(scores: Scores) -> Verdict:
    """Interpolation in validation, and less than 20% at 20 digits: a tenth of N x 1 are products by zero."""
    counts = interpolating_only(scores, BINARY, "window", length=20, below=20)
    return counted("C10", counts, "Runs that interpolate and do not extrapolate", ONE_SIDE)


def cyclic_window_solves_all(scores: Scores) -> Verdict:
    counts = cells(scores, (*UNARY, *BINARY), "window-cyclic")
    found = counted("C11", counts, "Runs at 99.9% at 60 digits", ONE_SIDE)
    return beside(found, cells(scores, (*UNARY, *BINARY), "window-cyclic-both"))


def window_without_positions(scores: Scores) -> Verdict:
    counts = cells(scores, UNARY, "nope-window") | cells(scores, BINARY, "nope-window", bar=98)
    found = counted("C12", counts, "Runs at 99.9% (unary) or 98% (binary) at 60 digits", ONE_SIDE)
    return beside(found, cells(scores, UNARY, "nope-window-both") | cells(scores, BINARY, "nope-window-both", bar=98))


def period_does_not_matter(scores: Scores) -> Verdict:
    """The window is open to both sides. Periods below 3 cannot tell its keys apart."""
    found = {(t, task): scores.at_bar(task, model) for t, model in PERIOD_MODELS.items() for task in BINARY}
    wide = {f"T = {t}, {task}": count for (t, task), count in found.items() if t >= 3 and count.runs}
    narrow = total(count for (t, _), count in found.items() if t < 3)
    listing = {f"T = {t}": total(found[t, task] for task in BINARY) for t in PERIOD_MODELS if t >= 3}
    finding = f"Runs at 99% at 60 digits with w = 1, Addition and N x 1: {listed(listing)}; with T = 2 {narrow}."
    return judged("C13", wide, finding, "the window to both sides", by_counts(wide, "in part"))


def no_positions_are_needed(scores: Scores) -> Verdict:
    """C33: ABC with new weights and the window to one side, both without any positions."""
    abc = {f"ABC, {name}": count for name, count in cells(scores, (*UNARY, *BINARY), "abc", bar=99).items()}
    window = cells(scores, UNARY, "nope-window", bar=99) | cells(scores, BINARY, "nope-window", bar=98)
    sums = {"ABC": total(abc.values()), "window, unary tasks": total(c for n, c in window.items() if n.endswith(UNARY))}
    sums["window, binary tasks"] = total(c for n, c in window.items() if n.endswith(BINARY))
    verdict = by_counts({name: count for name, count in sums.items() if count.runs}, "holds with changes")
    finding = f"Runs at the bar at 60 digits without positions: {listed(sums)}."
    reading = "ABC in new weights, with lines read out in this project's way; the window to one side"
    return judged("C33", abc | window, finding, reading, verdict, "tight and padded")


def other_windows(scores: Scores) -> Verdict:
    """C34: windows of other widths, each with two periods and the whole training."""
    counts = {
        f"{MODELS[model].title}, {task}": scores.at_bar(task, model)
        for model in WINDOWS
        for task in STUDIES["windows"].tasks
    }
    counts = {name: count for name, count in counts.items() if count.runs}
    if not counts:
        return Verdict("C34", "not run", "None was trained.", reading=ONE_SIDE)
    finding = f"Runs at 99% at 60 digits: {listed(counts)}."
    enough = min(count.runs for count in counts.values()) >= SEEDS
    return judged("C34", counts, finding, ONE_SIDE, by_counts(counts) if enough else "undecided")


SCAFFOLDING = (
    window_solves_unary,
    window_alone_interpolates_binary,
    cyclic_window_solves_all,
    window_without_positions,
    period_does_not_matter,
    no_positions_are_needed,
    other_windows,
)
