"""Judges of claims C27 to C32 and C35: lists, what is not learned, bases, sizes, earlier methods."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from abc_nb.analysis.claims import Count, Judgement, Scores, Verdict, by_counts, total
from abc_nb.analysis.judges.scaffolding import counted, judged, listed
from abc_nb.experiments import ARITHMETIC, LIMITS, LISTS
from abc_nb.experiments.catalogue import BASELINES, MODELS

BOTH_SIDES = "the window to both sides, index modulo 3"
LEARNED = ("by-head", "by-head-wide", "abc-anew", "abc-from-4")  # methods for factors of several digits


def window_solves_lists(scores: Scores) -> Verdict:
    counts = {f"tight, {task}": scores.at_bar(task, "window-cyclic-both") for task in LISTS}
    return counted("C27", {n: c for n, c in counts.items() if c.runs}, "Runs at 99% at 60 items", BOTH_SIDES)


def long_products_and_nested_lists_are_not_learned(scores: Scores) -> Verdict:
    """Of the tasks without a bound the plain model; of factors of two or three digits every method."""
    limits = {task: scores.at_bar(task, "vanilla", 6) for task in LIMITS}
    factors = {
        f"{task}, {MODELS[model].title}": scores.at_bar(task, model, 6)
        for task in ("n-by-2", "n-by-3")
        for model in LEARNED
    }
    factors = {name: count for name, count in factors.items() if count.met}
    learned = total(limits.values())
    verdict: Judgement = "not run" if not learned.runs else "holds"
    if learned.met or factors:
        verdict = "differs" if learned.most else "in part"
    finding = f"Runs at 99% at 6 digits: {listed(limits)}; factors of two or three digits, in base 10 or 4: "
    finding += f"{listed(factors) or 'none'}."
    agreeing = {name: count.others for name, count in limits.items()}
    found = judged("C28", agreeing, finding, "the plain model for N x N and nested lists", verdict)
    return replace(found, size="0 encoder and 4 decoder layers, embedding size 64")


def bases_make_no_difference(scores: Scores, tasks: Sequence[str]) -> Verdict:
    """ABS and ABC at 99% at sixty digits in bases 4, 8 and 16; rows have a column base."""
    counts: dict[tuple[str, int, str], Count] = {}
    for model, base, task in itertools.product(("window-cyclic-both", "abc-mod3-warm"), (4, 8, 16), tasks):
        runs = scores.of(task, model)
        own = runs[runs.index.get_level_values("base") == base]
        if len(own):
            counts[model, base, task] = Count(int((own[60] >= 99).sum()), len(own))
    groups = dict.fromkeys((model, base) for model, base, _ in counts)
    told = {
        f"{MODELS[group[0]].title}, base {group[1]}": total(counts[key] for key in counts if key[:2] == group)
        for group in groups
    }
    named = {f"{model}, base {base}, {task}": count for (model, base, task), count in counts.items()}
    finding = f"Runs at 99% at 60 digits: {listed(told)}."
    return judged("C29", named, finding, "ABS and ABC with an index modulo 3", by_counts(told))


def sizes_make_no_difference(scores: Scores, models: Sequence[str]) -> Verdict:
    """All sizes "that could converge" (v4 appendix B): those whose validation is at 99%."""
    counts = {}
    for model in models:
        runs = scores.interpolating("addition", model)
        if len(runs):
            counts[MODELS[model].title] = Count(int((runs[60] >= 99).sum()), len(runs))
    finding = f"Runs at 99% at 60 digits, of those that interpolate (the first is the usual size): {listed(counts)}."
    found = judged("C30", counts, finding, BOTH_SIDES, by_counts(counts))
    return replace(found, size="0 to 6 encoder and 1 to 6 decoder layers, embedding sizes 32 to 128")


def rpe_row_is_quoted(scores: Scores, models: Sequence[str]) -> Verdict:
    counts = {title_of(model): scores.at_bar("addition", model, 10, 90) for model in models}
    finding = f"Our encoder-decoder with RPE is right on 90% of Addition at 10 digits: {listed(counts)}."
    found = judged("C31", counts, finding, "another architecture than the quoted one", "not tested")
    return replace(found, runs="")


def title_of(model: str) -> str:
    """A model's title; baselines that train at three widths have that of the ones with one width."""
    return MODELS[model].title + (", three widths" if model.endswith("-widened") else "")


def no_earlier_method_extrapolates(scores: Scores, later: Sequence[str]) -> Verdict:
    """C32: the paper's own baselines decide whether it differs; variants of them and later methods, if in part."""
    counts = {(model, task): scores.at_bar(task, model) for model in (*BASELINES, *later) for task in ARITHMETIC}
    solved = [key for key, count in counts.items() if count.most]
    own = [model for model, _ in solved if model in BASELINES]
    verdict: Judgement = "holds"
    if solved:
        verdict = "differs" if own else "in part"
    by_task = {task: "; ".join(title_of(model) for model, where in solved if where == task) for task in ARITHMETIC}
    told = ". ".join(f"On {task}: {titles}" for task, titles in by_task.items() if titles)
    finding = f"Methods with four of five seeds at 99% at 60 digits{f'. {told}' if told else ': none'}. "
    finding += f"Of the paper's five baselines as notebook 2 has them: {'; '.join(map(title_of, own)) or 'none'}."
    agreeing = {f"{model}, {task}": count.others for (model, task), count in counts.items()}
    verdict = verdict if total(counts.values()).runs else "not run"
    return judged("C32", agreeing, finding, "the source counted from the left, from the right and by place", verdict)


def rpe_contradicts_itself() -> Verdict:
    finding = "The same paper's table 1 has 97.2% at 15 digits and 21.3% at 20."
    return Verdict("C35", "differs", finding, reading="the text against its own table", regime="")
