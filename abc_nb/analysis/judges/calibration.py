"""Judges of claims C16-C26: attention bias calibration, and what it is related to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.claims import Evidence, Scores, Verdict, verdict
from abc_nb.analysis.statistics import BAR, percent

THREE = ("Successor", "Addition", "N x 1")
PERCENT = 100 * BAR
ALGORITHM = ("Algorithm 1", "Algorithm 1, no period")


def at_sixty(scores: Scores, model: str, tasks: Sequence[str] = THREE) -> tuple[bool, str, Evidence]:
    """Whether a model reaches the bar at 60 digits on all tasks, in words, and the evidence of the worst task."""
    found = {task: scores.median(task, model, 60) for task in tasks}
    words = ", ".join(f"{task} {percent(value)}" for task, value in found.items())
    return min(found.values()) >= PERCENT, words, scores.evidence(*scores.lowest(tasks, [model], [60]))


def abc_generalizes(scores: Scores, padded: Scores) -> Verdict:
    """Tight problems decide, as for the other claims; padded ones, as the paper's are, are told."""
    holds, words, evidence = at_sixty(scores, "ABC")
    worst = scores.worst(THREE, ["ABC"], 60)
    figure = f"ABC at 60 digits: {words}; worst seed {percent(worst)}"
    figure += "".join(f"; padded, {model}: {at_sixty(padded, model)[1]}" for model in ("ABC", "no period"))
    return verdict("C16", holds, figure, evidence)


def abc_fails_on_parity(scores: Scores) -> Verdict:
    value = scores.median("Parity", "ABC", 60)
    figure = "ABC, " + scores.text("Parity", "ABC", (6, 20, 60))
    return verdict("C17", value < PERCENT, figure, scores.evidence("Parity", "ABC", 60))


def three_directions_suffice(scores: Scores) -> Verdict:
    holds, words, evidence = at_sixty(scores, "ABC")
    _, without, _ = at_sixty(scores, "no verticals")
    return verdict("C18", holds, f"at 60 digits: all directions {words}; without verticals {without}", evidence)


def strict_thresholds_work(scores: Scores, padded: Scores, lines: pd.DataFrame) -> Verdict:
    """The paper's kappas, on lines anchored at operands or as Algorithm 1 has them, on tight or padded problems.

    Without a period and padded is as the paper has it. `lines` counts those of cross-attention that are kept on tight
    problems (columns model, task, cross).
    """
    ways = {"kappa 4.5, 0.87": scores} | dict.fromkeys(ALGORITHM, scores)
    found = {way: at_sixty(each, way) for way, each in ways.items()}
    found |= {f"{way}, padded": at_sixty(padded, way) for way in ALGORITHM}
    figure = "at 60 digits: " + "; ".join(f"{way}: {words}" for way, (_, words, _) in found.items())
    kept = lines.set_index(["model", "task"]).cross
    for model in ("kappa 4.5, 0.87", "Algorithm 1"):
        figure += f"; lines of cross-attention, {model}: {listed([int(kept[model, task]) for task in THREE])}"
    holds = any(reached for reached, _, _ in found.values())
    return verdict("C19", holds, figure, found[f"{ALGORITHM[1]}, padded"][2])


def last_layer_is_enough(scores: Scores) -> Verdict:
    holds, words, evidence = at_sixty(scores, "last layer for all")
    _, each, _ = at_sixty(scores, "ABC")
    return verdict("C20", holds, f"at 60 digits: last layer for all {words}; each layer its own {each}", evidence)


def retraining_is_short(costs: pd.DataFrame) -> Verdict:
    """1/100 to 1/10 of the seconds that it takes to interpolate; problems, the same on any machine, are told.

    Both to the first validation at the bar; columns task, problems, steps, seconds (ratios), whole (of the
    problems of both trainings to their end).
    """
    by_task = costs.groupby("task", sort=False)[["problems", "steps", "seconds", "whole"]].median()
    words = [", ".join(f"{task} {part(ratio)}" for task, ratio in by_task[column].items()) for column in by_task]
    figure = f"retraining over training, to 99% in validation, problems: {words[0]}; steps: {words[1]}; "
    figure += f"seconds, with calibration: {words[2]}; problems to the end of both: {words[3]}"
    seeds = int(costs.groupby("task").seed.nunique().min())
    return verdict("C21", bool((by_task.seconds <= 0.1).all()), figure, Evidence(seeds=seeds))


def part(ratio: float) -> str:
    return f"1/{1 / ratio:.1f}" if ratio < math.inf else "never"


def followed(study: CalibrationStudy) -> list[set[str]]:
    """What the cross-attention lines of each head follow."""
    heads: dict[tuple[int, int], set[str]] = {}
    for line in study.bias.lines:
        if line.attention == "cross":
            heads.setdefault((line.layer, line.head), set()).add(line.span)
    return list(heads.values())


def addition_divides_operands(studies: Sequence[CalibrationStudy]) -> Verdict:
    """In most seeds some head follows the first operand alone, and some the second alone."""
    found = [followed(study) for study in studies]
    one, two = ({"operand 1"}, {"operand 2"})
    firsts, seconds, boths = (
        [sum(own & (one | two) == wanted for own in spans) for spans in found] for wanted in (one, two, one | two)
    )
    divided = [min(pair) >= 1 for pair in zip(firsts, seconds, strict=True)]
    figure = f"of {len(found[0])} heads {listed(firsts)} follow the first operand alone, {listed(seconds)} the "
    figure += f"second, {listed(boths)} both, by seed"
    return verdict("C22", 2 * sum(divided) > len(divided), figure, Evidence(seeds=len(studies)))


def n_by_1_heads(studies: Sequence[CalibrationStudy]) -> Verdict:
    """In most seeds most heads follow the number and at least one the digit.

    None can be transparent, since each keeps its strongest line.
    """
    found = [followed(study) for study in studies]
    number, digit = ([sum(span in own for own in spans) for spans in found] for span in ("operand 1", "operand 2"))
    held = [n > len(spans) / 2 and d >= 1 for spans, n, d in zip(found, number, digit, strict=True)]
    figure = f"of {len(found[0])} heads {listed(number)} follow the number, {listed(digit)} the single digit, by seed"
    return verdict("C23", 2 * sum(held) > len(held), figure, Evidence(seeds=len(studies)))


def listed(counts: Sequence[int]) -> str:
    return "/".join(map(str, counts))


def verticals_are_sinks(verticals: pd.DataFrame) -> Verdict:
    """Of the attention on vertical lines, more than half is on tokens that carry no digit (columns token, share)."""
    on = verticals.groupby("token").share.sum()
    shares = (on / on.sum()).sort_values(ascending=False)
    symbols = float(shares[[token for token in shares.index if not token.startswith("operand")]].sum())
    words = ", ".join(f"{token} {share:.0%}" for token, share in shares.items())
    return verdict("C24", symbols > 0.5, f"cross-attention on vertical lines by token: {words}")


def same_index(equal: bool, offsets: pd.DataFrame) -> Verdict:
    """`equal`: the index matrices agree; `offsets`: RPE's bias and ABC's share by offset (columns offset, RPE, ABC)."""
    ours, theirs = (int(offsets.sort_values(name)["offset"].iloc[-1]) for name in ("ABC", "RPE"))
    figure = f"index matrices {'agree' if equal else 'differ'}; strongest offset on Successor: ABC {ours}, RPE {theirs}"
    return verdict("C25", equal and ours == theirs, figure)


def lora_depends_on_input(changes: pd.DataFrame, scores: Scores) -> Verdict:
    """Both are additive; ABC's change must be the same for every input, LoRA's must not."""
    spread = changes.groupby("method").spread.max()
    words = ", ".join(f"{method} {value:.3g}" for method, value in spread.items())
    tasks = [task for task in scores.tasks if (task, "LoRA", 60) in scores.rows]
    sixty = ", ".join(f"{task} {percent(scores.median(task, 'LoRA', 60))}" for task in tasks)
    figure = f"spread of the change of logits over inputs: {words}; LoRA at 60 digits: {sixty}"
    return verdict("C26", bool(spread["ABC"] < 1e-4 < spread["LoRA"]), figure)
