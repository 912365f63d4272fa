"""Judges of claims C27-C30: lists, what is not learned, bases, sizes."""

from __future__ import annotations

from abc_nb.claims import Scores, Verdict, verdict
from abc_nb.experiments import LIMITS
from abc_nb.judges.scaffolding import FULL, lowest
from abc_nb.tables import BAR

LIST_LENGTHS = (6, 10, 20, 60)


def window_solves_lists(scores: Scores) -> Verdict:
    """Lists of one operator: w=1 and T=3 to sixty items."""
    task, length = lowest(scores, scores.tasks, "+ T=3", LIST_LENGTHS)
    figure = "; ".join(scores.text(name, "+ T=3", (6, 20, 60)).replace("digits", "items") for name in scores.tasks)
    worst = min(scores.rows[name, "+ T=3", 60]["worst"] for name in scores.tasks)
    figure += f"; worst seed at 60 items {worst:.2f}"
    return verdict("C27", scores.median(task, "+ T=3", length) >= FULL, figure, scores.interval(task, "+ T=3", length))


def two_long_numbers_and_nested_lists_are_not_learned(limits: Scores, factors: Scores) -> Verdict:
    """N x N and nested lists stay below the bar within the training length; a factor of a few digits is told, too."""
    learned = [limits.median(task, "Vanilla", 6) >= 100 * BAR for task in limits.tasks]
    if len(learned) < len(LIMITS) and not any(learned):
        return Verdict("C28", "not run", "one of the two was not trained")
    parts = [limits.text(task, "Vanilla", (3, 6, 10)) for task in limits.tasks]
    parts += [factors.text(task, "by head", (6, 60)) for task in factors.tasks if (task, "by head", 6) in factors.rows]
    return verdict("C28", not any(learned), "; ".join(parts), limits.interval(limits.tasks[0], "Vanilla", 6))


def bases_make_no_difference(scores: Scores) -> Verdict:
    """ABS and ABC reach the bar at sixty digits in every base."""
    places = [(task, model) for task in scores.tasks for model in ("+ T=3", "ABC")]
    perfect = sum(scores.median(task, model, 60) == 100 for task, model in places)
    low, task, model = min((scores.median(task, model, 60), task, model) for task, model in places)
    figure = f"{perfect} of {len(places)} 100% at 60 digits, the lowest {model} on {task} {low:.1f}"
    return verdict("C29", low >= 100 * BAR, figure, scores.interval(task, model, 60))


def sizes_make_no_difference(scores: Scores) -> Verdict:
    """All sizes "that could converge" (`000` appendix B) reach the bar at sixty digits; the others are told."""
    (task,) = scores.tasks
    converged = [model for model in scores.models if scores.median(task, model, 6) >= 100 * BAR]
    others = [f"{model} {scores.median(task, model, 6):.1f}" for model in scores.models if model not in converged]
    shown = ", ".join(f"{model} {scores.median(task, model, 60):.1f}" for model in converged)
    figure = f"{task} at 60 digits, w=1, T=3: {shown}; not converged, at 6 digits: {', '.join(others) or 'none'}"
    if not converged:
        return Verdict("C30", "not run", figure)
    low = min(converged, key=lambda model: scores.median(task, model, 60))
    return verdict("C30", scores.median(task, low, 60) >= 100 * BAR, figure, scores.interval(task, low, 60))
