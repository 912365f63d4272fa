"""Judges of claims C16-C26: attention bias calibration, and what it is related to."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.calibration_study import CalibrationStudy
from abc_nb.claims import Scores, Verdict, verdict
from abc_nb.tables import BAR

THREE = ("Successor", "Addition", "N x 1")
PERCENT = 100 * BAR


def at_sixty(scores: Scores, model: str, tasks: Sequence[str] = THREE) -> tuple[bool, str, str]:
    """Whether a model reaches the bar at 60 digits on all tasks, in words, and the interval of the worst task."""
    found = {task: scores.median(task, model, 60) for task in tasks}
    words = ", ".join(f"{task} {value:.1f}" for task, value in found.items())
    return min(found.values()) >= PERCENT, words, scores.interval(min(found, key=lambda task: found[task]), model, 60)


def abc_generalizes(scores: Scores) -> Verdict:
    holds, words, interval = at_sixty(scores, "ABC")
    worst = min(scores.rows[task, "ABC", 60]["worst"] for task in THREE)
    return verdict("C16", holds, f"ABC at 60 digits: {words}; worst seed {worst:.1f}", interval)


def abc_fails_on_parity(scores: Scores) -> Verdict:
    value = scores.median("Parity", "ABC", 60)
    figure = "ABC, " + scores.text("Parity", "ABC", (6, 20, 60))
    return verdict("C17", value < PERCENT, figure, scores.interval("Parity", "ABC", 60))


def three_directions_suffice(scores: Scores) -> Verdict:
    holds, words, interval = at_sixty(scores, "ABC")
    _, without, _ = at_sixty(scores, "no verticals")
    return verdict("C18", holds, f"at 60 digits: all directions {words}; without verticals {without}", interval)


def strict_thresholds_work(scores: Scores, lines: pd.DataFrame) -> Verdict:
    """The paper's kappas on lines anchored at operands; `lines` counts those kept (columns model, task, lines)."""
    holds, words, interval = at_sixty(scores, "kappa 4.5, 0.87")
    kept = lines[lines.model == "kappa 4.5, 0.87"].set_index("task").lines
    counted = ", ".join(f"{task} {kept[task]:.0f}" for task in THREE)
    return verdict("C19", holds, f"kappa 4.5 and 0.87 at 60 digits: {words}; lines kept: {counted}", interval)


def last_layer_is_enough(scores: Scores) -> Verdict:
    holds, words, interval = at_sixty(scores, "last layer for all")
    _, each, _ = at_sixty(scores, "ABC")
    return verdict("C20", holds, f"at 60 digits: last layer for all {words}; each layer its own {each}", interval)


def retraining_is_short(costs: pd.DataFrame) -> Verdict:
    """1/100 to 1/10 of what it takes to interpolate, in problems, which are the same on any machine; seconds are told.

    Columns task, problems ratio, ratio (of seconds, calibration included).
    """
    by_task = costs.groupby("task", sort=False)[["problems ratio", "ratio"]].median()
    words = [", ".join(f"{task} 1/{1 / value:.1f}" for task, value in by_task[column].items()) for column in by_task]
    figure = f"retraining over training, problems: {words[0]}; seconds, with calibration: {words[1]}"
    return verdict("C21", bool((by_task["problems ratio"] <= 0.1).all()), figure)


def followed(study: CalibrationStudy) -> dict[tuple[int, int], set[str]]:
    """What the cross-attention lines of each head follow, by (layer, head)."""
    lines = study.lines
    cross = lines[lines.attention == "cross"]
    return {place: set(part.span) for place, part in cross.groupby(["layer", "head"])}  # type: ignore[misc]


def addition_divides_operands(study: CalibrationStudy) -> Verdict:
    spans = followed(study)
    one, two = ({"operand 1"}, {"operand 2"})
    only = [sum(bool(one & own) and not two & own for own in spans.values())]
    only.append(sum(bool(two & own) and not one & own for own in spans.values()))
    both = sum(one | two <= own for own in spans.values())
    figure = f"of {len(spans)} heads {only[0]} follow the first operand alone, {only[1]} the second, {both} both"
    return verdict("C22", min(only) >= 2, figure)


def n_by_1_heads(study: CalibrationStudy) -> Verdict:
    """Most heads follow the number, at least one the digit; none is transparent, since each keeps a line."""
    spans = followed(study)
    number = sum("operand 1" in own for own in spans.values())
    digit = sum("operand 2" in own for own in spans.values())
    figure = f"of {len(spans)} heads {number} follow the number, {digit} the single digit; every head keeps a line"
    return verdict("C23", number > len(spans) / 2 and digit >= 1, figure)


def verticals_are_sinks(studies: Sequence[CalibrationStudy]) -> Verdict:
    """Of the attention on vertical lines, more than half is on symbols, which carry no digit."""
    lines = pd.concat([study.lines for study in studies])
    vertical = lines[lines.direction == "vertical"].groupby("span").share.sum()
    shares = (vertical / vertical.sum()).sort_values(ascending=False)
    symbols = float(shares[~shares.index.str.startswith("operand")].sum())
    words = ", ".join(f"{span} {share:.0%}" for span, share in shares.items())
    return verdict("C24", symbols > 0.5, f"attention on vertical lines by token: {words}")


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
    sixty = ", ".join(f"{task} {scores.median(task, 'LoRA', 60):.1f}" for task in tasks)
    figure = f"spread of the change of logits over inputs: {words}; LoRA at 60 digits: {sixty}"
    return verdict("C26", bool(spread["ABC"] < 1e-4 < spread["LoRA"]), figure)
