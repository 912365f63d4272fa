"""Judges of claims C01-C08, C14, C15 and C31: how plain models fail, and what they look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd

from abc_nb.analysis.attention import Study
from abc_nb.analysis.claims import Evidence, Scores, Verdict, verdict
from abc_nb.analysis.statistics import BAR, median_seed, percent
from abc_nb.bias.base import Attention
from abc_nb.training.evaluation import wilson

CLOSE = 5.0  # percentage points within which two curves count as the same
CURVE = (*range(3, 21), 60)  # lengths at which two curves are compared
SPREAD = 0.5  # of accuracy over output digits, for a correlation with it to mean something


def no_baseline_generalizes(scores: Scores) -> Verdict:
    """C01 is a definition; it is recorded with how many baselines and variants of them meet it."""
    best = {pair[:2]: scores.median(*pair) for pair in scores.rows if pair[2] == 60}
    task, model = max(best, key=lambda pair: best[pair])
    meeting = sum(value >= 100 * BAR for value in best.values())
    figure = (
        f"{meeting} of {len(best)} baselines and variants meet it; best: {model}, {task}, {percent(best[task, model])}%"
    )
    return Verdict("C01", "definition", figure, *scores.evidence(task, model, 60))


def vanilla_interpolates_only(scores: Scores) -> Verdict:
    tasks = ("Successor", "Addition", "N x 1")
    holds, evidence = interpolates_only(scores, tasks, "Vanilla")
    figure = "; ".join(scores.text(task, "Vanilla", (6, 10, 60)) for task in tasks)
    return verdict("C02", holds, figure, evidence)


def interpolates_only(scores: Scores, tasks: Sequence[str], model: str) -> tuple[bool, Evidence]:
    """Whether a model reaches the bar at six digits on every task, and at sixty on none; evidence of what decides."""
    inside, beyond = scores.lowest(tasks, [model], [6]), scores.highest(tasks, [model], [60])
    interpolates = scores.median(*inside) >= 100 * BAR
    place = beyond if interpolates else inside
    return interpolates and scores.median(*beyond) < 100 * BAR, scores.evidence(*place)


def rope_is_like_vanilla(scores: Scores) -> Verdict:
    """A RoPE's source counted from the left, as in the papers, or from the right, on Successor and Addition.

    What counts is how far its median lies outside the range of Vanilla's own seeds.
    """
    tasks, models = ("Successor", "Addition"), ("RoPE", "RoPE, from the right")
    gaps = {(task, model, n): beside(scores, task, model, n) for task in tasks for model in models for n in CURVE}
    worst = {model: max((place for place in gaps if place[1] == model), key=gaps.__getitem__) for model in models}
    where = {place: f" ({place[0]}, {place[2]} digits)" if gaps[place] else "" for place in worst.values()}
    told = [f"{model} {gaps[place]:.1f} points{where[place]}" for model, place in worst.items()]
    figure = "farthest outside the range of Vanilla's seeds: " + ", ".join(told)
    figure += "".join(f"; {model} {scores.text(task, model, (6, 10))}" for task in tasks for model in models)
    place = max(worst.values(), key=gaps.__getitem__)
    return verdict("C03", gaps[place] <= CLOSE, figure, scores.evidence(*place))


def beside(scores: Scores, task: str, model: str, length: int) -> float:
    """Points by which a model's median is below Vanilla's worst seed or above its best; 0 between them."""
    vanilla, median = scores.rows[task, "Vanilla", length], scores.median(task, model, length)
    return float(max(vanilla["worst"] - median, median - vanilla["best"], 0.0))


def alibi_does_not_interpolate(scores: Scores) -> Verdict:
    """Below 10% at six digits everywhere: a tenth of N x 1 problems multiply by zero and need no attention."""
    tasks = [task for task in scores.tasks if (task, "ALiBi", 6) in scores.rows]
    shown = []
    for model in ("ALiBi", "ALiBi, cross too"):
        trained = [task for task in tasks if (task, model, 6) in scores.rows]
        shown.append(", ".join(f"{task} {percent(scores.median(task, model, 6))}" for task in trained))
    figure = f"at 6 digits, bias on decoder self-attention: {shown[0]}; on cross-attention too: {shown[1]}"
    highest = scores.highest(tasks, ["ALiBi"], [6])
    return verdict("C04", scores.median(*highest) < 10, figure, scores.evidence(*highest))


def classification_is_chance(scores: Scores) -> Verdict:
    """Within 5 points of a half at every length shown; the interval is of all of them together."""
    task, shown = "Parity (classification)", (6, 10, 20, 60)
    far = max(abs(scores.median(task, "Vanilla", length) - 50) for length in shown)
    rows = [scores.rows[task, "Vanilla", length] for length in shown]
    samples = sum(row["samples"] for row in rows)
    low, high = wilson(round(sum(row["ours"] * row["samples"] / 100 for row in rows)), samples)
    evidence = Evidence(f"[{100 * low:.2f}, {100 * high:.2f}] over these lengths", min(row["seeds"] for row in rows))
    return verdict("C14", far <= CLOSE, scores.text(task, "Vanilla", shown), evidence)


def scratchpad_does_not_interpolate(scores: Scores) -> Verdict:
    six = scores.median("Parity", "Vanilla", 6)
    figure = scores.text("Parity", "Vanilla", (6, 10, 15)) + "; the paper has 29.23, 0.29, 0"
    return verdict("C15", six < 100 * BAR, figure, scores.evidence("Parity", "Vanilla", 6))


def rpe_extrapolates_part_way(scores: Scores) -> Verdict:
    """On Addition 90% or better at ten digits, the source counted from either end; models are experiments' names.

    Counted by place, which the papers do not do, is told beside.
    """
    figure = "; ".join(f"{model}: {scores.text('Addition', model, (6, 10, 15, 20))}" for model in scores.models)
    ends = [model for model in scores.models if not model.endswith("by-place")]
    best = max(ends, key=lambda model: scores.median("Addition", model, 10))
    return verdict("C31", scores.median("Addition", best, 10) >= 90, figure, scores.evidence("Addition", best, 10))


def rope_needs_width(trainings: pd.DataFrame) -> Verdict:
    """C05: RoPE on Addition, validation accuracy by embedding size (columns model, seed, validation from 0 to 1).

    The median seed decides; the best one is told, and the source counted from the right (the paper's: the left).
    """
    validation = 100 * trainings.set_index("model").validation
    medians, best = (validation.groupby("model", sort=False).agg(of_seeds) for of_seeds in (median_seed, "max"))
    higher = {name: f" (best seed {percent(best[name])})" for name in best.index[best > medians]}
    told = [f"{name} {percent(median)}{higher.get(name, '')}" for name, median in medians.items()]
    figure = f"Addition, validation after the same steps: {', '.join(told)}"
    usual = medians.filter(like="RoPE").drop(["RoPE, size 512", "RoPE, from the right"], errors="ignore")
    wide, narrow = medians.get("RoPE, size 512"), usual.max()
    evidence = Evidence(seeds=int(trainings.groupby("model").seed.nunique().filter(like="RoPE").min()))
    if wide is None:
        figure += "; size 512 was not trained here"
    if narrow >= 100 * BAR:  # a smaller size is enough, whatever the large one does
        return verdict("C05", False, figure, evidence)
    if wide is None:
        return Verdict("C05", "not run", figure)
    return verdict("C05", bool(wide >= 100 * BAR), figure, evidence)


def attention_follows_the_digit(successor: Study) -> Verdict:
    """The best cross head and the best self head look at the needed cell inside, and no longer beyond.

    At least half of their attention inside; beyond, of what is more than evenly spread attention has there, at most
    half of what it is inside. (Evenly spread over the few tokens before it, self-attention has much of it anyway.)
    """
    inside, beyond = (f"{successor.length} digits, {part}" for part in ("inside", "beyond"))
    heads = successor.best_heads()
    figures, follows = [], []
    for name in get_args(Attention):
        own = heads[(heads.operand == "all") & (heads.attention == name)]
        best, even = own.sort_values(inside).iloc[-1], successor.even(name)
        told = f"{best[inside]:.2f} inside, {best[beyond]:.2f} beyond (evenly spread: {even[0]:.2f}, {even[1]:.2f})"
        figures.append(f"{name}, layer {best.layer}: {told}")
        follows.append(best[inside] >= 0.5 and best[beyond] - even[1] <= (best[inside] - even[0]) / 2)
    return verdict("C06", all(follows), "mass on the needed cell: " + "; ".join(figures))


def heads_divide_the_operands(addition: Study) -> Verdict:
    """Some head looks at one operand at least twice as much as at the other, and some the other way round."""
    who = addition.shares()
    ratio = who["operand 1"] / who["operand 2"]
    figure = f"{(ratio >= 2).sum()} of {len(who)} heads prefer the first operand, {(ratio <= 0.5).sum()} the second"
    return verdict("C07", bool((ratio >= 2).any() and (ratio <= 0.5).any()), figure)


def attention_goes_with_accuracy(studies: Sequence[Study]) -> Verdict:
    """Over output digits, mass on the needed cell and digit accuracy correlate at 0.8 or more.

    A task decides nothing if its accuracy is much the same at every digit.
    """
    found = {study.title: correlation(study) for study in studies}
    deciding = [found[study.title] for study in studies if np.ptp(study.steps.accuracy) >= SPREAD]
    alike = [study.title for study in studies if np.ptp(study.steps.accuracy) < SPREAD]
    figure = "correlation over output digits: " + ", ".join(f"{task} {value:.2f}" for task, value in found.items())
    figure += f"; undecided, all digits much alike: {', '.join(alike)}" if alike else ""
    return verdict("C08", min(deciding) >= 0.8, figure) if deciding else Verdict("C08", "not run", figure)


def correlation(study: Study) -> float:
    return float(np.corrcoef(study.steps.mass, study.steps.accuracy)[0, 1])


VANILLA_FAILURE = (
    no_baseline_generalizes,
    vanilla_interpolates_only,
    rope_is_like_vanilla,
    alibi_does_not_interpolate,
    classification_is_chance,
    scratchpad_does_not_interpolate,
)


def attention_verdicts(successor: Study, addition: Study, n_by_1: Study) -> list[Verdict]:
    """Claims C06-C08, from the attention of the three Vanilla models that the paper analyses."""
    return [
        attention_follows_the_digit(successor),
        heads_divide_the_operands(addition),
        attention_goes_with_accuracy([successor, addition, n_by_1]),
    ]
