"""Judges of claims C27-C30: lists, what is not learned, bases, sizes."""

from __future__ import annotations

from abc_nb.analysis.claims import Scores, Verdict, verdict
from abc_nb.analysis.judges.scaffolding import FULL
from abc_nb.analysis.statistics import BAR, percent
from abc_nb.experiments import LIMITS

LIST_LENGTHS = (6, 10, 20, 60)
BY_HEAD = ("by head", "by head, wide")
ITS_BASES = ("base 4", "base 8", "base 16")


def window_solves_lists(scores: Scores) -> Verdict:
    """Lists of one operator: w=1 and T=3 to sixty items."""
    place = scores.lowest(scores.tasks, ["+ T=3"], LIST_LENGTHS)
    figure = "; ".join(scores.text(name, "+ T=3", (6, 20, 60)) for name in scores.tasks)
    figure += f"; worst seed at 60 items {percent(scores.worst(scores.tasks, ['+ T=3'], 60))}"
    return verdict("C27", scores.median(*place) >= FULL, figure, scores.evidence(*place))


def two_long_numbers_and_nested_lists_are_not_learned(limits: Scores, factors: Scores) -> Verdict:
    """The plain model stays below the bar within the training length on N x N and nested lists; no other was tried.

    A factor of a few digits is told, too.
    """
    learned = [limits.median(task, "Vanilla", 6) >= 100 * BAR for task in limits.tasks]
    if len(learned) < len(LIMITS) and not any(learned):
        return Verdict("C28", "not run", "one of the two was not trained")
    parts = [limits.text(task, "Vanilla", (3, 6, 10)) for task in limits.tasks]
    by_head = [(task, model) for model in BY_HEAD for task in factors.tasks if factors.has(task, model)]
    parts += [f"{model}, {factors.text(task, model, (6, 60))}" for task, model in by_head]
    nearest = max(limits.tasks, key=lambda task: limits.median(task, "Vanilla", 6))
    return verdict("C28", not any(learned), "; ".join(parts), limits.evidence(nearest, "Vanilla", 6))


def bases_make_no_difference(scores: Scores) -> Verdict:
    """ABS and ABC reach the bar at sixty digits in the bases that the paper names; base 2 and worst seeds are told."""
    models, its = ("+ T=3", "ABC"), [task for task in scores.tasks if task.endswith(ITS_BASES)]
    if not its:
        return Verdict("C29", "not run", "none of the bases 4, 8, 16 was trained")
    low = scores.lowest(its, models, [60])
    perfect = sum(scores.median(task, model, 60) == 100 for task in its for model in models)
    figure = f"{perfect} of {len(its) * len(models)} 100% at 60 digits, "
    figure += f"the lowest {low[1]} on {low[0]} {percent(scores.median(*low))}, "
    figure += ", ".join(f"worst seed of {model} {percent(scores.worst(its, [model], 60))}" for model in models)
    others = [task for task in scores.tasks if task not in its]
    if others:
        figure += f"; base 2, lowest {percent(scores.median(*scores.lowest(others, models, [60])))}"
        figure += f", worst seed {percent(scores.worst(others, models, 60))}"
    return verdict("C29", scores.median(*low) >= 100 * BAR, figure, scores.evidence(*low))


def sizes_make_no_difference(scores: Scores) -> Verdict:
    """All sizes "that could converge" (`000` appendix B) reach the bar at sixty digits; the others are told."""
    (task,) = scores.tasks
    converged = [model for model in scores.models if scores.median(task, model, 6) >= 100 * BAR]
    others = [f"{model} {percent(scores.median(task, model, 6))}" for model in scores.models if model not in converged]
    worst = {model: scores.worst([task], [model], 60) for model in converged}
    told = {model: f" (worst seed {percent(lowest)})" for model, lowest in worst.items() if lowest < 100 * BAR}
    shown = ", ".join(f"{model} {percent(scores.median(task, model, 60))}{told.get(model, '')}" for model in converged)
    figure = f"{task} at 60 digits, w=1, T=3: {shown}; not converged, at 6 digits: {', '.join(others) or 'none'}"
    if not converged:
        return Verdict("C30", "not run", figure)
    low = scores.lowest([task], converged, [60])
    return verdict("C30", scores.median(*low) >= 100 * BAR, figure, scores.evidence(*low))
