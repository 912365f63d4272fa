"""Judges of lists, bases, sizes and limits: each says what hand-made numbers say."""

from __future__ import annotations

import pytest
from judging import scores

from abc_nb.analysis.judges import beyond as judges

LISTS = ["ListOps SM", "ListOps MAX"]


@pytest.mark.parametrize(("seeds", "verdict"), [([1.0, 1.0, 0.9], "holds"), ([1.0, 0.99, 0.9], "differs")])
def test_c27_is_judged_by_the_median_seed_and_tells_the_worst(seeds: list[float], verdict: str) -> None:
    judged = judges.window_solves_lists(scores(["+ T=3"], {("ListOps MAX", "+ T=3", 60): seeds}, 1.0, LISTS))
    assert (judged.id, judged.verdict) == ("C27", verdict)
    assert "worst seed at 60 items 90.0" in judged.figure
    assert "ListOps SM 100.0, 100.0, 100.0 at 6, 20, 60 items" in judged.figure


@pytest.mark.parametrize(("nested", "verdict"), [(0.98, "holds"), (0.99, "differs")])
def test_c28_falls_with_one_of_the_two(nested: float, verdict: str) -> None:
    limits = scores(["Vanilla"], {("ListOps, nested", "Vanilla", 6): [nested]}, 0.0, ["N x N", "ListOps, nested"])
    changed = {("N x 2", "by head", 60): [0.75], ("N x 2", "by head, wide", 60): [0.875]}
    factors = scores(["by head", "by head, wide"], changed, 1.0, ["N x 2"])
    judged = judges.two_long_numbers_and_nested_lists_are_not_learned(limits, factors)
    assert (judged.id, judged.verdict) == ("C28", verdict)
    assert "N x N 0.0, 0.0, 0.0 at 3, 6, 10 digits" in judged.figure
    assert "ListOps, nested 0.0, " in judged.figure and "at 3, 6, 10 items" in judged.figure
    assert "by head, N x 2 100.0, 75.0 at 6, 60 digits" in judged.figure
    assert "by head, wide, N x 2 100.0, 87.5 at 6, 60 digits" in judged.figure


@pytest.mark.parametrize(("value", "perfect", "verdict"), [(1.0, 4, "holds"), (0.99, 3, "holds"), (0.98, 3, "differs")])
def test_c29_is_judged_by_the_base_with_the_lowest_median(value: float, perfect: int, verdict: str) -> None:
    tasks, worst = ["Addition, base 4", "Addition, base 16"], ("Addition, base 16", "ABC", 60)
    judged = judges.bases_make_no_difference(scores(["+ T=3", "ABC"], {worst: [value]}, 1.0, tasks))
    assert (judged.id, judged.verdict) == ("C29", verdict)
    assert f"{perfect} of 4 100% at 60 digits" in judged.figure
    if verdict == "differs":
        assert "the lowest ABC on Addition, base 16 98.0" in judged.figure


def test_c29_tells_the_worst_seed_of_each_model() -> None:
    changed = {("Addition, base 4", "ABC", 60): [1.0, 1.0, 0.25], ("N x 1, base 8", "+ T=3", 60): [1.0, 0.75, 1.0]}
    judged = judges.bases_make_no_difference(
        scores(["+ T=3", "ABC"], changed, 1.0, ["Addition, base 4", "N x 1, base 8"])
    )
    assert judged.verdict == "holds" and "worst seed of + T=3 75.0, worst seed of ABC 25.0" in judged.figure


def test_c29_is_not_judged_by_base_2_which_the_claim_leaves_out() -> None:
    changed = {("Addition, base 2", "ABC", 60): [0.75, 0.5, 0.25]}
    judged = judges.bases_make_no_difference(
        scores(["+ T=3", "ABC"], changed, 1.0, ["Addition, base 2", "Addition, base 4"])
    )
    assert (judged.verdict, judged.figure.endswith("; base 2, lowest 50.0, worst seed 25.0")) == ("holds", True)
    assert judges.bases_make_no_difference(scores(["+ T=3", "ABC"], {}, 1.0, ["Addition, base 2"])).verdict == "not run"


@pytest.mark.parametrize(
    ("six", "sixty", "verdict"),
    [(1.0, 1.0, "holds"), (1.0, 0.5, "differs"), (0.5, 0.0, "holds"), (0.99, 0.99, "holds")],
)
def test_c30_asks_the_sizes_that_converged_and_tells_the_others(six: float, sixty: float, verdict: str) -> None:
    changed = {("Addition", "6/1 layers", 6): [six], ("Addition", "6/1 layers", 60): [sixty]}
    judged = judges.sizes_make_no_difference(scores(["+ T=3", "6/1 layers"], changed, 1.0, ["Addition"]))
    assert (judged.id, judged.verdict) == ("C30", verdict)
    worst = " (worst seed 50.0)" if sixty < 0.99 else ""
    converged = f", 6/1 layers {100 * sixty:.1f}{worst}; not converged"
    assert (converged if six >= 0.99 else "not converged, at 6 digits: 6/1 layers 50.0") in judged.figure


def test_c30_holds_by_the_median_and_tells_a_worst_seed_below_the_bar() -> None:
    changed = {("Addition", "4/4 layers", 60): [1.0, 1.0, 0.25]}
    judged = judges.sizes_make_no_difference(scores(["+ T=3", "4/4 layers"], changed, 1.0, ["Addition"]))
    assert (judged.verdict, "+ T=3 100.0, 4/4 layers 100.0 (worst seed 25.0);" in judged.figure) == ("holds", True)


def test_c30_is_not_judged_where_no_size_converged() -> None:
    judged = judges.sizes_make_no_difference(scores(["+ T=3", "6/1 layers"], {}, 0.25, ["Addition"]))
    assert (judged.verdict, "+ T=3 25.0, 6/1 layers 25.0" in judged.figure) == ("not run", True)


@pytest.mark.parametrize(("value", "verdict"), [(0.5, "not run"), (1.0, "differs")])
def test_c28_does_not_hold_on_one_task_alone(value: float, verdict: str) -> None:
    factors = scores(["by head"], {}, 1.0, ["N x 2"])
    judged = judges.two_long_numbers_and_nested_lists_are_not_learned(
        scores(["Vanilla"], {}, value, ["ListOps, nested"]), factors
    )
    assert (judged.id, judged.verdict) == ("C28", verdict)
