"""Judges: each returns the verdict that its criterion asks for, on hand-made runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from judging import assert_judged, at_sixty, scores

from abc_nb.analysis.claims import Scores
from abc_nb.analysis.judges import beyond, calibration, failure, scaffolding
from abc_nb.experiments import ABLATED
from abc_nb.experiments.catalogue import MODELS

FOUR = ("successor", "parity", "addition", "n-by-1")


# ---- plain models -----------------------------------------------------------------------------------


def test_vanilla_must_interpolate_and_not_extrapolate_in_both_regimes() -> None:
    runs = {(task, model): at_sixty(0, 12) for task in ABLATED for model in ("vanilla", "vanilla-padded")}
    assert_judged(failure.vanilla_interpolates_only(scores(runs)), "C02", "holds", "12 of 12")
    learned = {("addition", "vanilla-padded"): [100, 3]}
    found = failure.vanilla_interpolates_only(scores(runs, validation=learned))
    assert_judged(found, "C02", "in part", "11 of 12", "padded, addition 1 of 2")
    runs = {(task, "vanilla"): at_sixty(100, 100) for task in ABLATED}
    assert_judged(failure.vanilla_interpolates_only(scores(runs)), "C02", "differs", "0 of 6")


def rope(dropped: float, validation: float) -> Scores:
    runs = {(task, "rope"): [{8: dropped, 10: 0.5}] * 5 for task in ABLATED}
    return scores(runs, validation={("addition", "rope"): [validation] * 5})


@pytest.mark.parametrize(
    ("dropped", "validation", "verdict", "runs"),
    [(10, 100, "holds", "15 of 15"), (10, 50, "in part", "10 of 15"), (11, 100, "differs", "0 of 15")],
)
def test_rope_is_asked_where_it_interpolates(dropped: float, validation: float, verdict: str, runs: str) -> None:
    assert_judged(failure.rope_is_like_vanilla(rope(dropped, validation)), "C03", verdict, runs)


def test_alibi_fails_at_six_digits_and_is_right_on_some_short_numbers() -> None:
    short = {(task, "alibi"): [{1: 50, 6: 4}] for task in FOUR}
    assert_judged(failure.alibi_does_not_interpolate(scores(short)), "C04", "holds", "4 of 4")
    never = {(task, "alibi"): [{6: 9 if task == "n-by-1" else 0}] for task in FOUR}
    assert_judged(failure.alibi_does_not_interpolate(scores(never)), "C04", "in part", "4 of 4")
    learned = {(task, "alibi"): [{6: 60}] for task in FOUR}
    assert_judged(failure.alibi_does_not_interpolate(scores(learned)), "C04", "differs", "0 of 4")


@pytest.mark.parametrize(("small", "large", "verdict"), [(0, 100, "holds"), (100, 100, "differs"), (0, 0, "undecided")])
def test_rope_needs_width_if_only_the_wide_one_interpolates(small: float, large: float, verdict: str) -> None:
    runs = {("addition", model): [{}] * 5 for model in ("rope", "rope-128", "rope-512")}
    learned = {("addition", "rope"): [small] * 5, ("addition", "rope-128"): [0] * 5}
    judged = failure.rope_needs_width(scores(runs, validation=learned | {("addition", "rope-512"): [large] * 5}))
    assert (judged.id, judged.verdict) == ("C05", verdict)


def test_classification_is_chance_within_five_points_at_every_length() -> None:
    place = ("parity-classification", "vanilla")
    near = {place: [{10: 45.1, 20: 50, 60: 54.9}] * 5}
    assert_judged(failure.classification_is_chance(scores(near)), "C14", "holds", "5 of 5")
    far = {place: [{10: 45.1, 20: 50, 60: 55.1}] * 5}
    assert_judged(failure.classification_is_chance(scores(far)), "C14", "differs", "0 of 5")


@pytest.mark.parametrize(
    ("validation", "verdict", "runs"),
    [([100] * 5, "differs", "0 of 5"), ([0] * 5, "holds", "5 of 5"), ([100, 0, 0, 0, 0], "undecided", "4 of 5")],
)
def test_a_scratchpad_is_enough_if_four_seeds_interpolate(validation: list[float], verdict: str, runs: str) -> None:
    place = ("parity", "vanilla")
    judged = failure.scratchpad_does_not_interpolate(scores({place: [{}] * 5}, validation={place: validation}))
    assert_judged(judged, "C15", verdict, runs)


def study(mass: list[float], accuracy: list[float]) -> Any:
    return SimpleNamespace(title="Successor", steps=pd.DataFrame({"mass": mass, "accuracy": accuracy}))


def test_attention_of_fewer_than_five_seeds_decides_nothing() -> None:
    falling = study([1.0, 0.5, 0.0], [1.0, 0.6, 0.0])
    assert failure.correlation(falling) == pytest.approx(np.corrcoef([1, 0.5, 0], [1, 0.6, 0])[0, 1])
    assert_judged(failure.attention_goes_with_accuracy([falling]), "C08", "undecided", "1 of 1")
    assert_judged(failure.attention_goes_with_accuracy([falling] * 5), "C08", "holds", "5 of 5")
    rising = study([0.0, 0.5, 1.0], [1.0, 0.6, 0.0])
    assert_judged(failure.attention_goes_with_accuracy([rising] * 5), "C08", "differs", "0 of 5", "Successor -0.99.")
    found = failure.attention_goes_with_accuracy([falling] * 4 + [rising])
    assert_judged(found, "C08", "in part", "4 of 5", "-0.99 to 0.99")


def heads(first: list[float], second: list[float]) -> Any:
    return SimpleNamespace(by_source=lambda: pd.DataFrame({"operand 1": first, "operand 2": second}))


def test_heads_divide_two_numbers_if_some_look_twice_as_much_at_each() -> None:
    divided, one_way = heads([0.6, 0.2, 0.1], [0.3, 0.4, 0.1]), heads([0.6, 0.6, 0.1], [0.1, 0.3, 0.1])
    assert_judged(failure.heads_divide_the_operands([divided] * 5), "C07", "holds", "5 of 5", "Of 3 heads 1 prefer")
    found = failure.heads_divide_the_operands([divided, one_way, *[divided] * 3])
    assert_judged(found, "C07", "in part", "4 of 5", "1 to 2 prefer the first operand, 0 to 1 the second")
    assert_judged(failure.heads_divide_the_operands([divided] * 4), "C07", "undecided", "4 of 4")


# ---- windows ----------------------------------------------------------------------------------------


def test_a_window_alone_must_solve_both_unary_tasks() -> None:
    solved = {(task, "window"): at_sixty(99, 100) for task in scaffolding.UNARY}
    assert_judged(scaffolding.window_solves_unary(scores(solved)), "C09", "holds", "4 of 4")
    mixed = solved | {("successor", "window"): at_sixty(0, 0), ("successor", "window-padded"): at_sixty(0)}
    found = scaffolding.window_solves_unary(scores(mixed))
    assert_judged(found, "C09", "in part", "2 of 5", "padded, successor 0 of 1")
    assert found.regime == "tight and padded"


def test_a_window_alone_interpolates_the_binary_tasks_and_no_more() -> None:
    runs = {(task, "window"): [{20: 19, 60: 0}] for task in scaffolding.BINARY}
    assert_judged(scaffolding.window_alone_interpolates_binary(scores(runs)), "C10", "holds", "2 of 2")
    further = {(task, "window"): [{20: 21}] for task in scaffolding.BINARY}
    assert_judged(scaffolding.window_alone_interpolates_binary(scores(further)), "C10", "differs", "0 of 2")


def test_the_cyclic_window_is_asked_for_all_but_one_in_a_thousand() -> None:
    runs = {(task, "window-cyclic"): at_sixty(99.9, 99.8) for task in FOUR}
    assert_judged(scaffolding.cyclic_window_solves_all(scores(runs)), "C11", "differs", "4 of 8")


def test_without_positions_the_binary_tasks_may_miss_two_percent() -> None:
    runs = {(task, "nope-window"): at_sixty(99.9 if task in scaffolding.UNARY else 98) for task in FOUR}
    assert_judged(scaffolding.window_without_positions(scores(runs)), "C12", "holds", "4 of 4")
    both = runs | {(task, "abc"): at_sixty(99) for task in FOUR}
    assert_judged(scaffolding.no_positions_are_needed(scores(both)), "C33", "holds with changes", "8 of 8")


def test_periods_hold_in_part_at_most_and_the_second_is_only_reported() -> None:
    models = {2: "window-both-t2", 3: "window-cyclic-both", 4: "window-both-t4"}
    runs = {(task, model): at_sixty(0 if t == 2 else 100) for task in scaffolding.BINARY for t, model in models.items()}
    found = scaffolding.period_does_not_matter(scores(runs))
    assert_judged(found, "C13", "in part", "4 of 4", "with T = 2 0 of 2")


# ---- calibration ------------------------------------------------------------------------------------


def test_abc_holds_with_changes_since_its_lines_are_read_in_another_way() -> None:
    runs = {(task, model): at_sixty(99, 100) for task in ABLATED for model in ("abc", "abc-padded")}
    found = calibration.abc_generalizes(scores(runs))
    assert_judged(found, "C16", "holds with changes", "12 of 12")
    assert found.regime == "tight and padded"
    worse = runs | {("n-by-1", "abc"): at_sixty(98.9, 100)}
    assert_judged(calibration.abc_generalizes(scores(worse)), "C16", "in part", "11 of 12")


@pytest.mark.parametrize(
    ("percent", "verdict", "runs"),
    [
        ([99, 99, 99, 99, 0], "differs", "1 of 5"),
        ([0] * 5, "holds", "5 of 5"),
        ([99, 0, 0, 0, 0], "undecided", "4 of 5"),
    ],
)
def test_abc_on_parity(percent: list[float], verdict: str, runs: str) -> None:
    judged = calibration.abc_fails_on_parity(scores({("parity", "abc"): at_sixty(*percent)}))
    assert_judged(judged, "C17", verdict, runs)


def test_algorithm_1_is_decided_by_six_layers_and_five_seeds() -> None:
    two = {(task, "algorithm-1-none-new"): at_sixty(0, 98) for task in ABLATED}
    two |= {("addition", "algorithm-1-plain-warm-padded"): at_sixty(100)}
    told = "two layers, every reading: 1 of 7"
    assert_judged(calibration.strict_thresholds_work(scores(two)), "C19", "undecided", "", told)
    one = {("successor", "algorithm-1-logits-deep"): at_sixty(100)}
    for percent, seeds, verdict, with_one in (
        (100, 4, "undecided", "undecided"),
        (100, 5, "holds with changes", "holds with changes"),
        (0, 5, "differs", "in part"),
    ):
        six = {("successor", "algorithm-1-pooled-deep"): at_sixty(*[percent] * seeds)}
        found = calibration.strict_thresholds_work(scores(two | six))
        assert (found.verdict, found.seeds) == (verdict, f"{seeds}")
        assert told in found.finding
        assert calibration.strict_thresholds_work(scores(six | one)).verdict == with_one
    papers = {("successor", "algorithm-1-none-new-paper-size"): at_sixty(*[100] * 5)}
    assert_judged(calibration.strict_thresholds_work(scores(two | papers)), "C19", "holds with changes", "5 of 5")
    other_kappa = {("successor", "algorithm-1-v1-deep"): at_sixty(*[100] * 5)}
    assert calibration.strict_thresholds_work(scores(two | other_kappa)).verdict == "undecided"


def test_the_last_layers_lines_are_decided_by_six_layers() -> None:
    two = {(task, "abc-last-layer"): at_sixty(100, 100) for task in ABLATED}
    assert_judged(calibration.last_layer_is_enough(scores(two)), "C20", "undecided", "", "none was trained")
    six = {("successor", "abc-last-layer-deep"): at_sixty(*[100] * 5)}
    assert_judged(calibration.last_layer_is_enough(scores(two | six)), "C20", "holds", "5 of 5", "successor 5 of 5")
    own = {("successor", "abc-deep"): at_sixty(100, 0)}
    told = "each layer's own, six layers: successor 1 of 2"
    assert_judged(calibration.last_layer_is_enough(scores(two | six | own)), "C20", "holds", "5 of 5", told)


def test_other_windows_are_decided_by_five_seeds_of_the_whole_training() -> None:
    other = {("addition", "grid-w2-t3"): at_sixty(*[100] * 5)}
    assert_judged(scaffolding.other_windows(scores(other)), "C34", "not run", "", "None was trained")
    for seeds, verdict in ((1, "undecided"), (5, "in part")):
        whole = {("addition", "window-w2-t3"): at_sixty(*[100] * seeds)}
        whole |= {("addition", "window-w3-t5"): at_sixty(*[98] * seeds)}
        found = scaffolding.other_windows(scores(other | whole))
        assert (found.verdict, found.runs) == (verdict, f"{seeds} of {2 * seeds} runs agree")


def test_retraining_is_short_within_a_tenth() -> None:
    costs = pd.DataFrame({"task": ["addition"] * 2 + ["parity"], "seed": [0, 1, 0], "seconds": [0.1, 0.11, 0.05]})
    assert_judged(calibration.retraining_is_short(costs), "C21", "in part", "2 of 3", "addition 1 of 2", "parity 0.05")


def lines(*spans: tuple[int, str], heads: int = 4) -> Any:
    made = [SimpleNamespace(attention="cross", layer=1, head=head, span=span) for head, span in spans]
    made.append(SimpleNamespace(attention="cross", layer=0, head=0, span="operand 1"))  # of another layer
    return SimpleNamespace(bias=SimpleNamespace(heads=heads, lines=made), last=1)


def test_heads_divide_the_operands_if_each_has_one_of_its_own() -> None:
    divided, shared = lines((0, "operand 1"), (1, "operand 2")), lines((0, "operand 1"), (0, "operand 2"))
    assert_judged(calibration.addition_divides_operands([divided] * 5), "C22", "holds", "5 of 5")
    assert_judged(calibration.addition_divides_operands([divided, shared]), "C22", "differs", "1 of 2")


def test_most_heads_of_n_by_1_follow_the_number_or_the_sign() -> None:
    most = lines((0, "operand 1"), (1, "*"), (2, "operand 1"), (3, "operand 2"))
    assert_judged(calibration.n_by_1_heads([most] * 5), "C23", "in part", "5 of 5")
    few = lines((0, "operand 1"), (3, "operand 2"))
    assert_judged(calibration.n_by_1_heads([few]), "C23", "differs", "0 of 1")


def test_verticals_are_sinks_if_symbols_have_more_than_half() -> None:
    share = pd.DataFrame({"token": ["$", "operand 1"], "share": [0.6, 0.4]})
    assert_judged(calibration.verticals_are_sinks([share]), "C24", "undecided", "1 of 1", "60%")
    assert_judged(calibration.verticals_are_sinks([share] * 5), "C24", "holds", "5 of 5")


def test_additions_to_the_logits_are_told_apart_by_their_spread() -> None:
    changes = pd.DataFrame({"method": ["ABC", "LoRA"], "spread": [0.0, 0.5]})
    found = calibration.lora_depends_on_input(changes, scores({("addition", "lora"): at_sixty(0)}))
    assert_judged(found, "C26", "holds", "", "0 of 1 runs")


# ---- beyond -----------------------------------------------------------------------------------------


def test_lists_and_sizes_are_counted() -> None:
    lists = {(task, "window-cyclic-both"): at_sixty(99) for task in ("listops-sm", "listops-max", "listops-min")}
    assert_judged(beyond.window_solves_lists(scores(lists)), "C27", "holds", "3 of 3")
    sizes = {("addition", "window-both-4-4"): at_sixty(96, 100), ("addition", "window-both-0-1"): at_sixty(0)}
    learned = {("addition", "window-both-0-1"): [3.0]}
    found = beyond.sizes_make_no_difference(scores(sizes, validation=learned), ["window-both-4-4", "window-both-0-1"])
    assert_judged(found, "C30", "differs", "1 of 2")
    assert "0/1 layers" not in found.finding


@pytest.mark.parametrize(("limit", "factor", "verdict"), [(0, 0, "holds"), (0, 99, "in part"), (99, 0, "differs")])
def test_long_products_hold_in_part_where_short_factors_are_learned(limit: int, factor: int, verdict: str) -> None:
    runs = {(task, "vanilla"): [{6: limit}] * 5 for task in ("direct-n-by-n", "direct-listops-nested")}
    runs[("n-by-2", "by-head")] = [{6: factor}] * 5
    judged = beyond.long_products_and_nested_lists_are_not_learned(scores(runs))
    assert (judged.id, judged.verdict) == ("C28", verdict)
    assert judged.runs == f"{0 if limit else 10} of 10 runs agree"


def test_bases_are_counted_by_base() -> None:
    runs = {("addition", model): at_sixty(100, 98) for model in ("window-cyclic-both", "abc-mod3-warm")}
    found = beyond.bases_make_no_difference(scores(runs, base=4), ["addition"])
    assert_judged(found, "C29", "differs", "2 of 4", f"{MODELS['window-cyclic-both'].title}, base 4 1 of 2")


def test_an_earlier_method_that_extrapolates_decides_by_whose_it_is() -> None:
    none = {("successor", "rpe"): at_sixty(0, 0), ("successor", "kerple"): at_sixty(0)}
    assert_judged(beyond.no_earlier_method_extrapolates(scores(none), ["kerple"]), "C32", "holds", "3 of 3")
    later = none | {("successor", "kerple"): at_sixty(100)}
    found = beyond.no_earlier_method_extrapolates(scores(later), ["kerple"])
    assert_judged(found, "C32", "in part", "2 of 3", "On successor: KERPLE")
    own = none | {("successor", "rpe"): at_sixty(100, 100)}
    assert_judged(beyond.no_earlier_method_extrapolates(scores(own), ["kerple"]), "C32", "differs", "1 of 3")
