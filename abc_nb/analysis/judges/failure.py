"""Judges of claims C01 to C08, C14 and C15: how plain models fail, and what they look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from abc_nb.analysis.attention import AttentionStudy
from abc_nb.analysis.claims import Count, Judgement, Scores, Verdict, by_counts, total
from abc_nb.analysis.judges.scaffolding import SEEDS, between, counted, interpolating_only, judged, listed
from abc_nb.bias.base import ENCODER_DECODER
from abc_nb.experiments import ABLATED, ARITHMETIC, CLASSIFIER
from abc_nb.experiments.catalogue import BASELINES
from abc_nb.problems.tasks import OPERATIONS

SPREAD = 0.5  # of accuracy over output digits, for a correlation with it to mean something


def no_baseline_generalizes(scores: Scores) -> Verdict:
    """C01 is a definition; it is recorded with how many baselines meet it."""
    counts = {f"{model}, {task}": scores.at_bar(task, model) for task in ARITHMETIC for model in BASELINES}
    finding = f"{total(counts.values())} runs of the paper's baselines are right on 99% at 60 digits."
    return replace(judged("C01", counts, finding, "the paper's five baselines", "definition"), runs="")


def vanilla_interpolates_only(scores: Scores) -> Verdict:
    """At most 15% at 60 digits: a tenth of N x 1 are products by zero."""
    counts = interpolating_only(scores, ABLATED, "vanilla", length=60, below=15)
    reading = "sinusoidal positions, the source counted from the right"
    return counted("C02", counts, "Runs that interpolate and do not extrapolate", reading)


def rope_is_like_vanilla(scores: Scores) -> Verdict:
    """Runs of RoPE, counted from the left, that interpolate: do they drop as Vanilla does?"""
    counts, learned, agreeing = {}, {}, {}
    for task in ABLATED:
        runs, trained = scores.of(task, "rope"), scores.interpolating(task, "rope")
        learned[task] = Count(len(trained), len(runs))
        counts[task] = Count(int(((trained[8] <= 10) & (trained[10] <= 1)).sum()), len(trained))
        agreeing[task] = Count(counts[task].met, len(runs))
    every = total(counts.values())
    verdict: Judgement = "not run" if not total(learned.values()).runs else "holds" if every.all else "differs"
    if verdict == "holds" and any(count.runs and not count.most for count in learned.values()):
        verdict = "in part"
    finding = f"Runs that interpolate: {listed(learned)}; of these {every} drop to 1% or less at 10 digits."
    return judged("C03", agreeing, finding, "standard RoPE, the source counted from the left", verdict)


def alibi_does_not_interpolate(scores: Scores) -> Verdict:
    """Below 5% at six digits (N x 1: 10%, for products by zero), and some right below four digits."""
    fails, short = {}, Count(0, 0)
    for task in ARITHMETIC:
        runs = scores.of(task, "alibi")
        if len(runs):
            fails[task] = Count(int((runs[6] < (10 if task == "n-by-1" else 5)).sum()), len(runs))
            short += Count(int((runs[[1, 2, 3]].max(axis=1) >= 5).sum()) if task != "n-by-1" else 0, len(runs))
    verdict: Judgement = by_counts(fails)
    if verdict == "holds" and not short.met:
        verdict = "in part"
    finding = f"{total(fails.values())} runs fail at 6 digits, as in the paper; "
    finding += f"{short} are right on some problems of at most 3 digits, which the paper's are."
    return judged("C04", fails, finding, "bias on decoder self-attention, no positions", verdict)


def rope_needs_width(scores: Scores) -> Verdict:
    """C05: how many seeds interpolate Addition at each embedding size, after the same steps."""
    sizes = {64: "rope", 128: "rope-128", 512: "rope-512"}
    learned = {
        f"size {n}": Count(len(scores.interpolating("addition", m)), len(scores.of("addition", m)))
        for n, m in sizes.items()
        if len(scores.of("addition", m))
    }
    wide = learned.get("size 512", Count(0, 0))
    narrow = [count for name, count in learned.items() if name != "size 512"]
    verdict: Judgement = "undecided"
    if any(count.most for count in narrow):
        verdict = "differs"
    elif wide.most and all(count.met <= 1 for count in narrow):
        verdict = "holds"
    finding = f"Runs that interpolate Addition after 1,600 steps: {listed(learned)}."
    agreeing = {name: count if name == "size 512" else count.others for name, count in learned.items()}
    found = judged("C05", agreeing, finding, "standard RoPE, rates not tuned for a width", verdict)
    return replace(found, size="0 encoder and 2 decoder layers, embedding sizes 64 to 512")


def attention_follows_the_digit(studies: Sequence[AttentionStudy]) -> Verdict:
    """The best cross head and the best self head look at the needed cell inside, and no longer beyond.

    At least half of their attention inside; beyond, of what is more than evenly spread attention has there, at most
    half of what it is inside. (Evenly spread over the few tokens before it, self-attention has much of it anyway.)
    """
    held, found = [], []
    for study in studies:
        inside, beyond = (f"{study.length} digits, {part}" for part in ("inside", "beyond"))
        heads, follows = study.best_heads(), []
        for name in ENCODER_DECODER:
            own = heads[(heads.operand == "all") & (heads.attention == name)]
            best, even = own.sort_values(inside).iloc[-1], study.even(name)
            found.append((name, best[inside], best[beyond]))
            follows.append(best[inside] >= 0.5 and best[beyond] - even[1] <= (best[inside] - even[0]) / 2)
        held.append(all(follows))
    frame = pd.DataFrame(found, columns=["name", "inside", "beyond"]).groupby("name", sort=False)
    listing = [f"{name} {between(own.inside)} inside and {between(own.beyond)} beyond" for name, own in frame]
    return about_attention(
        "C06", {"successor": held}, f"Attention of the best head on the needed cell: {'; '.join(listing)}."
    )


def about_attention(id: str, held: Mapping[str, Sequence[bool]], finding: str) -> Verdict:
    """A verdict on the attention of single models, by task: undecided below five seeds of each."""
    counts = {task: Count(sum(own), len(own)) for task, own in held.items()}
    enough = min(count.runs for count in counts.values()) >= SEEDS
    return judged(id, counts, finding, "any layer", by_counts(counts) if enough else "undecided")


def heads_divide_the_operands(studies: Sequence[AttentionStudy]) -> Verdict:
    """Some head looks at one operand at least twice as much as at the other, and some the other way round."""
    ratios = [(who := study.by_source())["operand 1"] / who["operand 2"] for study in studies]
    first, second = (
        [int(count) for count in counts] for counts in zip(*(preferring(each) for each in ratios), strict=True)
    )
    finding = (
        f"Of {len(ratios[0])} heads {between(first, 'd')} prefer the first operand, {between(second, 'd')} the second."
    )
    held = [min(pair) > 0 for pair in zip(first, second, strict=True)]
    return about_attention("C07", {"addition": held}, finding)


def preferring(ratio: pd.Series) -> tuple[int, int]:
    """How many heads look at the first operand at least twice as much as at the second, and the reverse."""
    return int((ratio >= 2).sum()), int((ratio <= 0.5).sum())


def attention_goes_with_accuracy(studies: Sequence[AttentionStudy]) -> Verdict:
    """Over output digits, mass on the needed cell and digit accuracy correlate at 0.8 or more.

    A task whose accuracy is much the same at every digit is named: there the correlation says little.
    """
    found: dict[str, list[float]] = {}
    for study in studies:
        found.setdefault(study.title, []).append(correlation(study))
    flat = dict.fromkeys(study.title for study in studies if np.ptp(study.steps.accuracy) < SPREAD)
    listing = ", ".join(f"{task} {between(values)}" for task, values in found.items())
    finding = f"Correlation over output digits: {listing}" + (f" (accuracy flat: {', '.join(flat)})." if flat else ".")
    return about_attention("C08", {task: [each >= 0.8 for each in values] for task, values in found.items()}, finding)


def correlation(study: AttentionStudy) -> float:
    """Of attention on the needed digit with digit accuracy, over output digits."""
    return float(np.corrcoef(study.steps.mass, study.steps.accuracy)[0, 1])


def classification_is_chance(scores: Scores) -> Verdict:
    """Every seed within 5 points of a half at every length."""
    runs = scores.of("parity-classification", "vanilla")
    far = (runs[[10, 20, 60]] - 50).abs().max(axis=1) if len(runs) else pd.Series(dtype=float)
    count = Count(int((far <= 5).sum()), len(runs))
    finding = f"Runs of {OPERATIONS['parity-classification'].title} within 5 points of 50%: {count}."
    counts = {CLASSIFIER: count}
    return judged("C14", counts, finding, "one output bit, sinusoidal positions", by_counts(counts))


def scratchpad_does_not_interpolate(scores: Scores) -> Verdict:
    """Differs if four of five seeds interpolate."""
    runs, trained = scores.of("parity", "vanilla"), scores.interpolating("parity", "vanilla")
    count = Count(len(trained), len(runs))
    verdict: Judgement = "not run" if not count.runs else "holds" if not count.met else "undecided"
    if count.most:
        verdict = "differs"
    longest = runs[60].max() if len(runs) else 0.0
    finding = f"{count} runs interpolate Parity; at 60 digits the best of them has {longest:.1f}%."
    return judged(
        "C15", {"parity": count.others}, finding, "this project's training; the paper's has Adam at 1e-5", verdict
    )


VANILLA_FAILURE = (
    no_baseline_generalizes,
    vanilla_interpolates_only,
    rope_is_like_vanilla,
    alibi_does_not_interpolate,
    rope_needs_width,
    classification_is_chance,
    scratchpad_does_not_interpolate,
)


def attention_verdicts(successor: Sequence[AttentionStudy], addition: Sequence[AttentionStudy]) -> list[Verdict]:
    """Claims C06 to C08, from the attention of the Vanilla models that the paper analyses, a study a seed."""
    return [
        attention_follows_the_digit(successor),
        heads_divide_the_operands(addition),
        attention_goes_with_accuracy([*successor, *addition]),
    ]
