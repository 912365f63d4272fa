"""Judges of how plain models fail and what they look at: each says what hand-made numbers say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest
from helpers import rows
from judging import TASKS, assert_judged, interval, scores

from abc_nb.analysis import attention
from abc_nb.analysis.claims import Scores
from abc_nb.analysis.judges import failure as judges
from abc_nb.training.evaluation import wilson

THREE = TASKS[:3]

# ---- accuracy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "meeting"), [(0.99, "1 of 8"), (0.98, "0 of 8")])
def test_c01_counts_those_that_meet_the_definition_and_names_the_best(value: float, meeting: str) -> None:
    found = scores(["Vanilla", "RPE"], {("Parity", "RPE", 60): value}, 0.0)
    judged = judges.no_baseline_generalizes(found)
    shown = f"{meeting} baselines and variants meet it; best: RPE, Parity, {100 * value:.1f}%"
    assert_judged(judged, "C01", "definition", shown)
    assert judged.interval == interval(round(1000 * value))


@pytest.mark.parametrize(
    ("six", "sixty", "verdict"),
    [(1.0, 0.0, "holds"), (0.99, 0.98, "holds"), (1.0, 0.99, "differs"), (0.9, 0.0, "differs")],
)
@pytest.mark.parametrize("task", THREE)
def test_c02_needs_every_task_learned_and_none_extrapolated(task: str, six: float, sixty: float, verdict: str) -> None:
    others = {(name, "Vanilla", 60): 0.0 for name in TASKS}
    found = scores(["Vanilla"], others | {(task, "Vanilla", 6): six, (task, "Vanilla", 60): sixty})
    judged = judges.vanilla_interpolates_only(found)
    assert_judged(judged, "C02", verdict, f"{task} {100 * six:.1f}, 100.0, {100 * sixty:.1f} at 6, 10, 60 digits")
    assert judged.interval == interval(round(1000 * (sixty if six >= 0.99 else six))), "of the number that decides"


LEFT, RIGHT = "RoPE", "RoPE, from the right"


@pytest.mark.parametrize(
    ("model", "task", "length", "value", "gap", "verdict"),
    [
        (RIGHT, "Successor", 7, 0.6, 0, "holds"),  # within the range of Vanilla's seeds
        (RIGHT, "Successor", 7, 0.65, 5, "holds"),
        (RIGHT, "Successor", 7, 0.66, 6, "differs"),
        (RIGHT, "Successor", 7, 0.1, 10, "differs"),
        (LEFT, "Addition", 6, 0.01, 99, "differs"),  # where Vanilla interpolates a RoPE has to, too
        (LEFT, "Successor", 60, 0.5, 50, "differs"),
    ],
)
def test_c03_compares_every_rope_with_the_range_of_vanillas_seeds(
    model: str, task: str, length: int, value: float, gap: float, verdict: str
) -> None:
    spread = {("Successor", "Vanilla", 7): [0.2, 0.6, 0.4], ("Successor", LEFT, 7): 0.4, ("Successor", RIGHT, 7): 0.4}
    found = scores(["Vanilla", LEFT, RIGHT], spread | {(task, model, length): value}, 1.0, TASKS[:2], judges.CURVE)
    judged = judges.rope_is_like_vanilla(found)
    assert_judged(judged, "C03", verdict, f"{model} {gap:.1f} points ({task}, " if gap else f"{RIGHT} 0.0 points")
    if gap:
        assert f"({task}, {length} digits)" in judged.figure
        assert judged.interval == interval(round(1000 * value))


@pytest.mark.parametrize(("value", "verdict"), [(0.099, "holds"), (0.1, "differs")])
@pytest.mark.parametrize("task", TASKS)
def test_c04_is_judged_by_the_task_that_alibi_learns_best(task: str, value: float, verdict: str) -> None:
    changed = {(task, "ALiBi", 6): value, ("Successor", "ALiBi, cross too", 6): 1.0}
    judged = judges.alibi_does_not_interpolate(scores(["ALiBi", "ALiBi, cross too"], changed, 0.01))
    assert_judged(judged, "C04", verdict, f"{task} {100 * value:.1f}", "on cross-attention too: Successor 100.0")
    assert judged.interval == interval(round(1000 * value))


@pytest.mark.parametrize(("wide", "narrow", "verdict"), [(1.0, 0.5, "holds"), (0.9, 0.5, "differs")])
def test_c05_needs_the_wide_model_alone_to_interpolate(wide: float, narrow: float, verdict: str) -> None:
    values = [("RoPE", 0.2), ("RoPE", 0.25), ("RoPE, size 128", narrow), ("RoPE, size 512", wide), ("Vanilla", 1.0)]
    trainings = pd.DataFrame(values, columns=["model", "validation"]).assign(seed=[0, 1, 0, 0, 0])
    shown = f"RoPE 20.0 (best seed 25.0), RoPE, size 128 {100 * narrow:.1f}, RoPE, size 512 {100 * wide:.1f}"
    assert_judged(judges.rope_needs_width(trainings), "C05", verdict, shown)
    enough = trainings.replace({"validation": narrow}, 0.995)
    assert_judged(judges.rope_needs_width(enough), "C05", "differs", "RoPE, size 128 99.5")
    missing = trainings[trainings.model != "RoPE, size 512"]
    assert_judged(judges.rope_needs_width(missing), "C05", "not run", f"size 128 {100 * narrow:.1f}")
    righted = pd.concat([missing, pd.DataFrame([("RoPE, from the right", 1.0, 0)], columns=[*missing])])
    assert_judged(judges.rope_needs_width(righted), "C05", "not run", "right 100.0; size 512 was not trained")


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.549, "holds"), (0.451, "holds"), (0.551, "differs"), (0.449, "differs")]
)
@pytest.mark.parametrize("length", [6, 10, 20, 60])
def test_c14_needs_half_of_the_answers_right_at_every_length(length: int, value: float, verdict: str) -> None:
    task = "Parity (classification)"
    found = scores(["Vanilla"], {(task, "Vanilla", length): value}, 0.5, [task])
    judged = judges.classification_is_chance(found)
    assert_judged(judged, "C14", verdict, f"{100 * value:.1f}")
    low, high = wilson(1500 + round(1000 * value), 4000)
    assert judged.interval == f"[{100 * low:.2f}, {100 * high:.2f}] over these lengths"


@pytest.mark.parametrize(("six", "verdict"), [(0.2923, "holds"), (1.0, "differs")])
def test_c15_is_judged_at_six_digits(six: float, verdict: str) -> None:
    scores = Scores(rows("Vanilla", {6: [six], 10: [0.0], 15: [0.0]}, "Parity"))
    assert judges.scratchpad_does_not_interpolate(scores).verdict == verdict


@pytest.mark.parametrize(("ten", "verdict"), [(0.9, "holds"), (0.5, "differs")])
def test_c31_is_judged_from_either_end_and_tells_what_places_do(ten: float, verdict: str) -> None:
    models = ["addition-rpe", "addition-rpe-right", "addition-rpe-by-place"]
    changed = {("Addition", models[0], 10): 0.0, ("Addition", models[1], 10): ten}
    judged = judges.rpe_extrapolates_part_way(scores(models, changed))
    assert_judged(judged, "C31", verdict, "addition-rpe: Addition 100.0, 0.0", "by-place: Addition 100.0, 100.0")
    assert f"rpe-right: Addition 100.0, {100 * ten:.1f}" in judged.figure
    assert judged.interval == interval(round(1000 * ten))


# ---- attention --------------------------------------------------------------------------------------

EVEN = {"cross": (0.1, 0.05), "self": (0.4, 0.1)}


def heads(inside: float, beyond: float, chosen: str) -> attention.Study:
    """A study whose best head of the chosen attention has these masses; of the other all is as the claim has it."""
    found = []
    for name in EVEN:
        masses = (inside, beyond) if name == chosen else (0.9, 0.1)
        found += [("all", name, 1, *masses), ("all", name, 2, 0.3, 0.3), ("1", name, 1, 1.0, 1.0)]
    columns = ["operand", "attention", "layer", "20 digits, inside", "20 digits, beyond"]
    best = pd.DataFrame(found, columns=columns)
    return cast(attention.Study, SimpleNamespace(length=20, best_heads=lambda: best, even=EVEN.__getitem__))


@pytest.mark.parametrize(
    ("name", "inside", "beyond", "verdict"),
    [
        ("cross", 0.5, 0.24, "holds"),  # 0.19 more than evenly spread beyond, 0.40 inside
        ("cross", 0.49, 0.1, "differs"),
        ("cross", 0.9, 0.46, "differs"),
        ("self", 0.7, 0.24, "holds"),
        ("self", 0.7, 0.26, "differs"),
        ("self", 0.5, 0.2, "differs"),  # not half of it, and yet no more than little attention makes by itself
    ],
)
def test_c06_needs_a_head_of_either_attention_that_looks_there_more_than_it_must(
    name: str, inside: float, beyond: float, verdict: str
) -> None:
    judged = judges.attention_follows_the_digit(heads(inside, beyond, name))
    assert_judged(judged, "C06", verdict, f"{name}, layer 1: {inside:.2f} inside, {beyond:.2f} beyond (evenly")


@pytest.mark.parametrize(
    ("first", "verdict", "shown"),
    [
        ([0.8, 0.2, 0.5], "holds", "1 of 3 heads prefer the first operand, 1 the second"),
        ([0.8, 0.7, 0.5], "differs", "2 of 3 heads prefer the first operand, 0 the second"),
        ([0.2, 0.3, 0.5], "differs", "0 of 3 heads prefer the first operand, 2 the second"),
    ],
)
def test_c07_needs_heads_for_either_operand(first: list[float], verdict: str, shown: str) -> None:
    who = pd.DataFrame({"operand 1": first, "operand 2": [1 - value for value in first]})
    study = cast(attention.Study, SimpleNamespace(shares=lambda: who))
    assert_judged(judges.heads_divide_the_operands(study), "C07", verdict, shown)


def study(title: str, mass: list[float], accuracy: list[float]) -> attention.Study:
    steps = pd.DataFrame({"mass": mass, "accuracy": accuracy})
    return cast(attention.Study, SimpleNamespace(title=title, steps=steps))


@pytest.mark.parametrize(("last", "verdict"), [(0.1, "holds"), (1.0, "differs")])
def test_c08_asks_tasks_whose_accuracy_varies(last: float, verdict: str) -> None:
    told = study("Successor", [1.0, 1.0, 0.0, last], [1.0, 1.0, 0.0, 0.0])
    flat = study("Addition", [0.0, 0.1, 0.0, 0.1], [0.1, 0.0, 0.1, 0.0])
    judged = judges.attention_goes_with_accuracy([told, flat])
    assert_judged(judged, "C08", verdict, "Addition -1.00", "all digits much alike: Addition")
    assert judges.attention_goes_with_accuracy([flat]).verdict == "not run"
