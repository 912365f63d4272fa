"""Which verdicts each notebook records, and from which results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from abc_nb.analysis import calibration_study, connections
from abc_nb.analysis.attention import AttentionStudy
from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.claims import Scores, Verdict
from abc_nb.analysis.judges import beyond, calibration, failure, scaffolding
from abc_nb.analysis.results import Results
from abc_nb.experiments import ABLATED, catalogue


def vanilla_failure(found: Results) -> list[Verdict]:
    """Claims on what plain models learn (notebook 2)."""
    own = found.rows("baselines", "variants", "parity variants", "classifier")
    scores = Scores(pd.concat([own, found.or_shipped().rows("padded", "rope sizes")]))
    return [judge(scores) for judge in failure.VANILLA_FAILURE]


def attention(found: Results) -> list[Verdict]:
    """Claims on what plain models look at (notebook 3), from every seed whose weights are there."""
    successor, addition = (
        [AttentionStudy(run) for run in found.every_seed(name) if run.has_weights]
        for name in ("successor-vanilla", "addition-vanilla")
    )
    return failure.attention_verdicts(successor, addition)


def scaffolds(found: Results) -> list[Verdict]:
    """Claims on bias made by hand (notebook 4)."""
    rest = found.or_shipped().rows("abc", "padded", "both sides", "periods", "windows")
    scores = Scores(pd.concat([found.rows("baselines", "scaffolds"), rest]))
    return [judge(scores) for judge in scaffolding.SCAFFOLDING]


def calibrated(found: Results, studies: Mapping[str, Sequence[CalibrationStudy]]) -> list[Verdict]:
    """Claims on bias read out of attention (notebook 5); `studies` are those of ABC's runs."""
    rest = found.or_shipped().rows("padded", "algorithm 1", "ablations", "deep", "paper size")
    scores = Scores(pd.concat([found.rows("abc", "baselines"), rest]))
    judges = (
        calibration.abc_generalizes,
        calibration.abc_fails_on_parity,
        calibration.three_directions_suffice,
        calibration.strict_thresholds_work,
        calibration.last_layer_is_enough,
    )
    costs = calibration_study.retraining_costs([study for own in studies.values() for study in own])
    return [
        *(judge(scores) for judge in judges),
        calibration.retraining_is_short(costs),
        calibration.addition_divides_operands(studies["addition-abc"]),
        calibration.n_by_1_heads(studies.get("n-by-1-abc", [])),
        calibration.verticals_are_sinks(calibration_study.verticals(found, studies)),
    ]


def connected(found: Results, offsets: pd.DataFrame, changes: pd.DataFrame) -> list[Verdict]:
    """Claims on relative position encoding and LoRA (notebook 6), from `connections.by_offset` and `.changes`."""
    scores = Scores(found.rows("baselines", "lora", "abc"))
    equal = connections.same_index_at_every_size(12)
    return [calibration.same_index(equal, offsets), calibration.lora_depends_on_input(changes, scores)]


def other_methods(found: Results) -> list[Verdict]:
    """Claims on what others proposed (appendix a1)."""
    scores = Scores(found.or_shipped().rows("baselines", "methods", "variants", "parity variants", "places"))
    theirs = (*catalogue.VARIANTS, *catalogue.METHODS, *catalogue.PLACED)
    later = [model for model in theirs if model not in catalogue.OURS]
    return [
        beyond.no_earlier_method_extrapolates(scores, later),
        beyond.rpe_row_is_quoted(scores, ["rpe", "rpe-right", "rpe-widened", "rpe-by-place"]),
        beyond.rpe_contradicts_itself(),
    ]


def lists_bases_factors(found: Results) -> list[Verdict]:
    """Claims on lists, bases and factors (appendix a2)."""
    scores = Scores(found.or_shipped().rows("lists", "bases", "factors", "wide factors", "factors in base 4", "limits"))
    return [
        beyond.window_solves_lists(scores),
        beyond.long_products_and_nested_lists_are_not_learned(scores),
        beyond.bases_make_no_difference(scores, ABLATED),
    ]


def sizes(found: Results) -> list[Verdict]:
    """The claim on the model's size (appendix a3)."""
    scores = Scores(found.or_shipped().rows("sizes"))
    return [beyond.sizes_make_no_difference(scores, ["window-cyclic-both", *catalogue.SIZED])]
