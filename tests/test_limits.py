"""The limits of attention and bias: against single passes, shipped evaluations and cones counted by hand."""

from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
import torch

from abc_nb.specs.spec import SEEDS, spec
from abc_nb.training.evaluation import TEST_SEED, exact_match
from audit import limits, plots
from audit.certified import can_be_certified
from audit.results import Results

RESULTS = Results("quick", "shipped", [0])


def test_the_change_of_a_logit_is_that_between_a_problem_and_its_flipped_copies() -> None:
    run = RESULTS.first_run("parity-abc")
    model, sampler = run.model(), run.spec.sampler
    batch, changes = sampler.test_batch(3, 1, TEST_SEED), []
    columns = batch.layout.operands[0].columns
    zero, one = map(sampler.task.token, "01")
    with torch.inference_mode():
        for step in range(3):
            flipped = batch.source.clone()
            flipped[0, columns[step]] = one if flipped[0, columns[step]] == zero else zero
            first, second = (
                model(each, batch.target[:, :-1], batch.layout)[0, step] for each in (batch.source, flipped)
            )
            changes.append(abs(float((first[one] - first[zero]) - (second[one] - second[zero]))))
    assert limits.change_per_bit(model, sampler, 3) == pytest.approx(sum(changes) / 3, rel=1e-4)
    stored = limits.measured(RESULTS, "flipped_bits").query("model == 'abc'").set_index("length").change
    assert stored[5] == pytest.approx(limits.change_per_bit(model, sampler, 5), rel=1e-4)


def test_at_minus_infinity_a_model_is_as_good_as_shipped_and_at_a_floor_it_has_no_certificate() -> None:
    """Addition in seed 0 needs a bias below -320."""
    run = RESULTS.first_run("addition-abc")
    model, sampler = run.model(), run.spec.sampler
    other = model.with_bias(limits.with_floor(model, -320.0))
    assert can_be_certified(model, sampler) and not can_be_certified(other, sampler)
    stored = limits.measured(RESULTS, "floors").query("task == 'addition'").set_index("floor").accuracy
    assert stored["minus infinity"] == 1 == run.evaluation().set_index("length").accuracy[60]
    right = exact_match(other, sampler.test_batch(60, limits.PROBLEMS, TEST_SEED))
    assert stored["-320"] == right.double().mean() < 0.5


def test_stored_rows_are_of_the_weights_that_are_shipped() -> None:
    """A row for each length or floor of each of these models; what has other weights is measured."""
    every = Results("quick", "shipped", SEEDS)
    for name, each in (("flipped_bits", limits.LENGTHS), ("floors", limits.FLOORS)):
        counts = pd.read_csv(limits.file_of(name)).weights.value_counts()
        assert counts.to_dict() == {run.checksum: len(each) for run in limits.MEASURES[name][0](every)}


def test_a_floor_counts_the_models_at_the_bar_and_shows_the_worst() -> None:
    frame = pd.DataFrame({"task": "addition", "floor": ["-5", "-5", "-20", "-20"], "accuracy": [1.0, 0.5, 1.0, 0.99]})
    wide = limits.floors_wide(frame)
    assert wide.loc["addition"].to_dict() == {"-5": "1 of 2 (50)", "-20": "2 of 2 (99)"}


@pytest.mark.parametrize(("task", "more"), [("successor", 2), ("addition", 3), ("n-by-1", 2)])
def test_every_layer_of_the_window_adds_the_tokens_of_one_place(task: str, more: int) -> None:
    """One place lower: the digits of both numbers, if there are two, and that of the answer."""
    config, sampler = (own := spec(f"{task}-window-cyclic")).model, own.sampler
    seen = [limits.cone(replace(config, decoder_layers=layers), sampler)["tokens"] for layers in (1, 2, 3)]
    assert [later - earlier for earlier, later in pairwise(seen)] == [more, more]


def test_a_flipped_bit_has_a_line_for_every_model_and_seed() -> None:
    frame = pd.DataFrame({"model": ["vanilla", "abc"] * 2, "seed": [0, 0, 0, 0], "length": [5, 5, 10, 10]})
    (panel,) = plots.flipped(frame.assign(change=[4.0, 3.0, 2.0, 3.0])).axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[4, 2], [3, 3]]  # type: ignore[union-attr]
