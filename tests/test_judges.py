"""Judges of scaffolding and calibration: each says what hand-made numbers say, and shows the one that decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from helpers import rows
from judging import LENGTHS, TASKS, assert_judged, interval, scores

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.claims import Scores
from abc_nb.analysis.judges import calibration as judges_calibration
from abc_nb.analysis.judges import scaffolding as judges_bias
from abc_nb.common.errors import InputError

# ---- scaffolding ------------------------------------------------------------------------------------

NONE = Scores(rows("none", {6: [1.0]}, "none").iloc[:0])


def test_tight_problems_decide_and_padded_ones_are_told_where_there_are_some() -> None:
    tight = scores(["+ w=1"], {(task, "+ w=1", 60): 0.0 for task in TASKS})
    padded = Scores(rows("+ w=1", {length: [1.0] for length in LENGTHS}, "Successor"))
    judged = judges_bias.window_solves_unary(tight, padded)
    shown = "Successor 100.0, 100.0, 0.0 at 6, 20, 60 digits; Parity 100.0, 100.0, 0.0 at 6, 20, 60 digits; padded: "
    assert_judged(judged, "C09", "differs", shown + "Successor 100.0, 100.0, 100.0 at 6, 20, 60 digits")
    assert judged.interval == interval(0)


@pytest.mark.parametrize(("task", "length", "value"), [("Parity", 20, 0.99), ("Successor", 6, 0.5)])
def test_c09_is_judged_by_the_worst_length_of_the_unary_tasks(task: str, length: int, value: float) -> None:
    binary = {(name, "+ w=1", 60): 0.0 for name in ("Addition", "N x 1")}
    assert_judged(
        judges_bias.window_solves_unary(scores(["+ w=1"], binary), NONE), "C09", "holds", "100.0, 100.0, 100.0 at"
    )
    judged = judges_bias.window_solves_unary(scores(["+ w=1"], binary | {(task, "+ w=1", length): value}), NONE)
    assert_judged(judged, "C09", "differs", task, f"{100 * value:.1f}")
    assert judged.interval == interval(round(1000 * value))


@pytest.mark.parametrize(
    ("inside", "beyond", "verdict"), [(1.0, 0.2, "holds"), (0.99, 0.98, "holds"), (0.9, 0.2, "differs")]
)
def test_c10_needs_interpolation(inside: float, beyond: float, verdict: str) -> None:
    changed = {(task, "+ w=1", 60): beyond for task in ("Addition", "N x 1")}
    judged = judges_bias.window_alone_interpolates_binary(
        scores(["+ w=1"], changed | {("N x 1", "+ w=1", 6): inside}), NONE
    )
    assert_judged(judged, "C10", verdict, f"N x 1 {100 * inside:.1f}, 100.0, {100 * beyond:.1f} at 6, 10, 60 digits")
    assert judged.interval == interval(round(1000 * (beyond if inside >= 0.99 else inside)))


def test_c10_differs_where_one_binary_task_extrapolates() -> None:
    judged = judges_bias.window_alone_interpolates_binary(scores(["+ w=1"], {("Addition", "+ w=1", 60): 0.1}), NONE)
    assert_judged(judged, "C10", "differs", "Addition 100.0, 100.0, 10.0 at", "N x 1 100.0, 100.0, 100.0 at")


@pytest.mark.parametrize("task", TASKS)
def test_c11_differs_where_any_task_is_lost(task: str) -> None:
    assert_judged(
        judges_bias.cyclic_window_solves_all(scores(["+ T=3"]), NONE), "C11", "holds", "worst seed at 60 digits 100"
    )
    judged = judges_bias.cyclic_window_solves_all(scores(["+ T=3"], {(task, "+ T=3", 60): 0.25}), NONE)
    assert_judged(judged, "C11", "differs", f"{task} 100.0, 25.0 at 6, 60 digits", "worst seed at 60 digits 25.0")
    assert judged.interval == interval(250)


def test_c11_names_the_worst_seed_and_is_judged_by_the_median() -> None:
    seeds = {length: [1.0, 1.0, 0.375 if length == 60 else 1.0] for length in LENGTHS}
    judged = judges_bias.cyclic_window_solves_all(
        Scores(pd.concat([rows("+ T=3", seeds, task) for task in TASKS])), NONE
    )
    assert_judged(judged, "C11", "holds", "100.0, 100.0 at 6, 60 digits", "worst seed at 60 digits 37.5")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({("Addition", 60): 0.985}, "holds"),
        ({}, "differs"),  # perfect on the binary tasks too
        ({("Addition", 60): 0.97}, "differs"),
        ({("Addition", 60): 0.985, ("Parity", 20): 0.985}, "differs"),
    ],
)
def test_c12_needs_perfect_unary_and_nearly_perfect_binary_tasks(
    changed: dict[tuple[str, int], float], verdict: str
) -> None:
    places = {(task, "NoPE + w=1", length): value for (task, length), value in changed.items()}
    judged = judges_bias.window_without_positions(scores(["NoPE + w=1"], places), NONE)
    assert_judged(judged, "C12", verdict, *(f"{100 * value:.1f} at" for (_, at), value in changed.items() if at == 60))
    assert judged.interval == interval(round(1000 * changed.get(("Addition", 60), 1.0)))


def grid(accuracy: dict[tuple[str, int, int], float]) -> pd.DataFrame:
    """Accuracy (percent) by window, period and length, on one task, and 100 on the others."""
    found = [
        (task, w, t, length, value if task == "Addition" else 100.0)
        for (w, t, length), value in accuracy.items()
        for task in TASKS
    ]
    frame = pd.DataFrame(found, columns=["task", "w", "T", "length", "ours"])
    return frame.assign(ci_low=frame.ours - 1, ci_high=frame.ours, seeds=5)


def test_c13_is_judged_by_the_worst_task_of_every_period_that_tells_keys_apart() -> None:
    others = {("1", 2, 60): 0.0, ("1", 0, 60): 0.0, ("3", 3, 60): 0.0, ("–", 3, 60): 0.0, ("1", 3, 20): 0.0}
    fine = grid(others | {("1", 3, 60): 99.0, ("1", 8, 60): 100.0})
    short = grid({("1", 3, 60): 60.0, ("1", 2, 60): 5.0, ("2", 3, 60): 4.0})
    told = ("T=2 0.0, T=3 99.0, T=8 100.0", "after a quarter of the training 60.0 to 100.0")
    assert_judged(judges_bias.period_does_not_matter(fine, short), "C13", "holds", *told)
    poor = grid(others | {("1", 3, 60): 100.0, ("1", 8, 60): 98.0})
    assert_judged(judges_bias.period_does_not_matter(poor, short), "C13", "differs", "T=3 100.0, T=8 98.0")
    lowest = judges_bias.period_does_not_matter(poor, short)
    assert (lowest.interval, lowest.seeds) == ("[97.00, 98.00]", 5)
    assert judges_bias.period_does_not_matter(grid({("1", 2, 60): 100.0}), short).verdict == "not run"


def test_experiments_of_one_title_are_not_taken_for_seeds_of_one() -> None:
    with pytest.raises(InputError, match="RPE stands for several runs of one seed: give each its own title"):
        Scores(pd.concat([rows("RPE", {6: [1.0, 0.5]}, "Addition"), rows("RPE", {6: [0.25]}, "Addition")]))


def test_a_verdict_says_how_many_seeds_stand_behind_it() -> None:
    seeds = {length: [1.0, 1.0, 0.5] for length in LENGTHS}
    judged = judges_bias.cyclic_window_solves_all(
        Scores(pd.concat([rows("+ T=3", seeds, task) for task in TASKS])), NONE
    )
    assert (judged.seeds, judged.verdict) == (3, "holds")


# ---- calibration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS[:3])
def test_c16_needs_all_three_tasks_at_sixty_digits(task: str) -> None:
    lost = {("Parity", "ABC", 60): 0.0, ("Addition", "ABC", 200): 0.0}
    padded = scores(["ABC", "no period"], {("Addition", "no period", 60): 0.25})
    fine = judges_calibration.abc_generalizes(scores(["ABC"], lost | {(task, "ABC", 60): 0.995}), padded)
    assert_judged(
        fine, "C16", "holds", f"{task} 99.5", "worst seed 99.5", "padded, no period: Successor 100.0, Addition 25.0"
    )
    assert fine.interval == interval(995)
    poor = judges_calibration.abc_generalizes(scores(["ABC"], lost | {(task, "ABC", 60): 0.125}), padded)
    assert_judged(poor, "C16", "differs", f"{task} 12.5", "worst seed 12.5")
    assert poor.interval == interval(125)


@pytest.mark.parametrize(("value", "verdict"), [(0.5, "holds"), (1.0, "differs")])
def test_c17_is_judged_by_parity_at_sixty_digits(value: float, verdict: str) -> None:
    judged = judges_calibration.abc_fails_on_parity(scores(["ABC"], {("Parity", "ABC", 60): value}))
    assert_judged(judged, "C17", verdict, f"Parity 100.0, 100.0, {100 * value:.1f} at 6, 20, 60 digits")
    assert judged.interval == interval(round(1000 * value))


def test_c18_is_judged_with_all_directions_and_shows_what_verticals_do() -> None:
    models = ["ABC", "no verticals"]
    without = {("N x 1", "no verticals", 60): 0.25}
    judged = judges_calibration.three_directions_suffice(scores(models, without))
    assert_judged(judged, "C18", "holds", "without verticals Successor 100.0, Addition 100.0, N x 1 25.0")
    judged = judges_calibration.three_directions_suffice(scores(models, {("N x 1", "ABC", 60): 0.5}))
    assert_judged(judged, "C18", "differs", "all directions Successor 100.0, Addition 100.0, N x 1 50.0")
    assert judged.interval == interval(500)


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "holds"), (0.75, "differs")])
@pytest.mark.parametrize("way", ["kappa 4.5, 0.87", "Algorithm 1", "padded"])
def test_c19_holds_if_the_papers_thresholds_work_in_one_way(way: str, value: float, verdict: str) -> None:
    models = ["kappa 4.5, 0.87", "Algorithm 1", "Algorithm 1, no period"]
    kept = [(model, task, cross) for model, cross in zip(models, (4, 0, 0), strict=True) for task in TASKS[:3]]
    lines = pd.DataFrame(kept, columns=["model", "task", "cross"])
    tight, padded = ({(task, model, 60): 0.25 for task in TASKS for model in models} for _ in range(2))
    chosen, model = (padded, models[-1]) if way == "padded" else (tight, way)
    chosen |= {(task, model, 60): 1.0 for task in TASKS} | {("Addition", model, 60): value}
    judged = judges_calibration.strict_thresholds_work(scores(models, tight), scores(models, padded), lines)
    assert_judged(judged, "C19", verdict, f"Addition {100 * value:.1f}", "cross-attention, kappa 4.5, 0.87: 4/4/4")
    assert "cross-attention, Algorithm 1: 0/0/0" in judged.figure


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "holds"), (0.75, "differs")])
def test_c20_is_judged_with_the_last_layer_and_shows_each_layers_own(value: float, verdict: str) -> None:
    last = "last layer for all"
    changed = {("Successor", last, 60): value, ("Successor", "ABC", 60): 0.5}
    judged = judges_calibration.last_layer_is_enough(scores([last, "ABC"], changed))
    assert_judged(judged, "C20", verdict, f"for all Successor {100 * value:.1f}", "its own Successor 50.0")
    assert judged.interval == interval(round(1000 * value))


@pytest.mark.parametrize(
    ("ratios", "verdict", "shown"),
    [
        ([0.01, 0.05, 0.5], "holds", "1/20.0"),
        ([0.01, 0.25, 0.5], "differs", "1/4.0"),
        ([0.01, np.inf, np.inf], "differs", "never"),  # the median seed did not get there
    ],
)
def test_c21_is_judged_by_the_median_ratio_of_every_task(ratios: list[float], verdict: str, shown: str) -> None:
    costs = pd.DataFrame({"task": ["Addition"] * 3 + ["Successor"], "seed": [0, 1, 2, 0], "seconds": [*ratios, 0.1]})
    costs = costs.assign(steps=0.5, problems=0.25, whole=0.125)
    told = (
        f"seconds, with calibration: Addition {shown}, Successor 1/10.0",
        "steps: Addition 1/2.0",
        "to the end of both: Addition 1/8",
    )
    judged = judges_calibration.retraining_is_short(costs)
    assert_judged(judged, "C21", verdict, *told)
    assert judged.seeds == 1, "the task with the fewest"


def following(*spans: str) -> CalibrationStudy:
    """One head for each, whose cross-attention follows these spans, and self-attention that does not count."""
    cross = [("cross", 0, head, span) for head, own in enumerate(spans) for span in own.split("/")]
    own = [*cross, ("self", 0, 0, "operand 1"), ("self", 0, 9, "operand 2")]
    lines = [SimpleNamespace(attention=name, layer=layer, head=head, span=span) for name, layer, head, span in own]
    return cast(CalibrationStudy, SimpleNamespace(bias=SimpleNamespace(lines=lines)))


ONE, TWO, BOTH = "operand 1", "operand 2/&", "operand 1/operand 2"
APART, TOGETHER = [ONE, ONE, TWO, BOTH], [BOTH, BOTH, ONE, "&"]


@pytest.mark.parametrize(
    ("seeds", "verdict", "shown"),
    [
        ([APART], "holds", "of 4 heads 2 follow the first operand alone, 1 the second, 1 both, by seed"),
        ([TOGETHER], "differs", "of 4 heads 1 follow the first operand alone, 0 the second, 2 both, by seed"),
        ([APART, TOGETHER, APART], "holds", "2/1/2 follow the first operand alone, 1/0/1 the second, 1/2/1 both"),
        ([APART, TOGETHER], "differs", "2/1 follow the first operand alone, 1/0 the second, 1/2 both"),
    ],
)
def test_c22_counts_heads_that_follow_one_operand_alone(seeds: list[list[str]], verdict: str, shown: str) -> None:
    judged = judges_calibration.addition_divides_operands([following(*spans) for spans in seeds])
    assert_judged(judged, "C22", verdict, shown)
    assert judged.seeds == len(seeds)


@pytest.mark.parametrize(
    ("seeds", "verdict", "shown"),
    [
        ([[ONE, ONE, TWO]], "holds", "of 3 heads 2 follow the number, 1 the single digit"),
        ([[ONE, ONE, BOTH]], "holds", "of 3 heads 3 follow the number, 1 the single digit"),
        ([[ONE, TWO]], "differs", "of 2 heads 1 follow the number, 1 the single digit"),
        ([[ONE, ONE, "&"]], "differs", "of 3 heads 2 follow the number, 0 the single digit"),
        ([[ONE, ONE, TWO], [ONE, TWO, TWO], [TWO, TWO, TWO]], "differs", "2/1/0 follow the number, 1/2/3 the single"),
    ],
)
def test_c23_needs_most_heads_on_the_number_and_one_on_the_digit(
    seeds: list[list[str]], verdict: str, shown: str
) -> None:
    judged = judges_calibration.n_by_1_heads([following(*spans) for spans in seeds])
    assert_judged(judged, "C23", verdict, shown)


@pytest.mark.parametrize(
    ("symbol", "digit", "verdict", "shown"), [(0.6, 0.2, "holds", "& 75%"), (0.2, 0.6, "differs", "operand 2 75%")]
)
def test_c24_is_judged_by_the_attention_on_symbols(symbol: float, digit: float, verdict: str, shown: str) -> None:
    verticals = pd.DataFrame([("&", symbol), ("operand 2", digit)], columns=["token", "share"])
    assert_judged(judges_calibration.verticals_are_sinks(verticals), "C24", verdict, shown)


@pytest.mark.parametrize(
    ("equal", "rpe", "verdict"), [(True, 0.9, "holds"), (True, 0.1, "differs"), (False, 0.9, "differs")]
)
def test_c25_needs_the_same_index_and_the_same_strongest_offset(equal: bool, rpe: float, verdict: str) -> None:
    offsets = pd.DataFrame({"offset": [-1, 0, 1], "RPE": [0.2, rpe, 0.5], "ABC": [0.0, 0.3, 0.1]})
    shown = f"{'agree' if equal else 'differ'}; strongest offset on Successor: ABC 0, RPE {0 if rpe > 0.5 else 1}"
    assert_judged(judges_calibration.same_index(equal, offsets), "C25", verdict, shown)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"), [(1e-7, 0.25, "holds"), (0.125, 0.25, "differs"), (1e-7, 1e-7, "differs")]
)
def test_c26_needs_a_change_that_depends_on_the_input_for_lora_alone(ours: float, theirs: float, verdict: str) -> None:
    changes = pd.DataFrame({"method": ["ABC", "ABC", "LoRA", "LoRA"], "spread": [0.0, ours, 0.0, theirs]})
    judged = judges_calibration.lora_depends_on_input(changes, scores(["LoRA"], {("Addition", "LoRA", 60): 0.25}))
    assert_judged(judged, "C26", verdict, f"ABC {ours:.3g}, LoRA {theirs:.3g}", "Addition 25.0")
