"""Experiments: what a task, a model, a base and a profile make of sampler, model, training, tests and parent."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from abc_nb import experiments
from abc_nb.bias import Window
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.experiment import experiment
from abc_nb.model import positions

NAMES, PROFILES = st.sampled_from(experiments.names()), st.sampled_from([*profiles.PROFILES])
WITHOUT_BASE = st.sampled_from([name for name in experiments.names() if "-base" not in name])


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("addition-abc", 8), ("addition-abc-padded", 7), ("addition-abc-paper-padded", 62), ("addition-abc-paper", 8)],
)
def test_attention_is_averaged_over_what_the_calibration_wants_of_the_parents_problems(name: str, tokens: int) -> None:
    """Sums of training numbers have seven digits, and then the end token; padded ones have 61."""
    chosen = experiment(name)
    assert chosen.parent is not None
    batch = chosen.calibration_batch(3)
    problems = chosen.parent.sampler.calibration_batch(3, whole=True)
    assert torch.equal(batch.source, problems.source)
    assert batch.layout.target_length == tokens


def test_a_plain_model_has_no_problems_to_calibrate_on() -> None:
    with pytest.raises(InputError, match="addition-vanilla is not calibrated: name an experiment such as addition-abc"):
        experiment("addition-vanilla").calibration_batch(0)


# ---- the design -------------------------------------------------------------------------------------


def test_the_rate_of_a_task_of_two_answers_is_held_until_more_is_right_than_a_guess_gets() -> None:
    """Half of the parities are right without looking; every other task has to be learned to get there."""
    classifier = experiment("parity-classifier").training
    assert classifier.learned == 0.75
    assert replace(classifier, learned=0.5) == experiment("parity-vanilla").training
    assert experiment("listops-nested-vanilla").training.learned == 0.5


def test_profile_paper_is_the_papers_model() -> None:
    for name in experiments.names():
        found = experiment(name, "paper")
        model = found.model
        own = {"width": 128, "heads": 8, "feed_forward": 512, "dropout": 0.3, "encoder_layers": 1, "decoder_layers": 6}
        own |= dict(experiments.find(name).size)
        assert {field: getattr(model, field) for field in own} == own
        assert found.sampler.regime == "padded"
        assert {samples for _, samples in found.tests} == {10_000}


@pytest.mark.parametrize("base", [10, 7])
def test_a_bias_can_be_read_out_in_another_base(base: int) -> None:
    child = experiment("n-by-3-abc-from-4", base=base)
    assert child.parent == experiment("n-by-3-vanilla", base=4)
    assert child.task.base == base and child.model.feed_forward == 4 * child.parent.model.feed_forward
    assert "successor-abc-from-4" not in experiments.names()


@pytest.mark.parametrize("suffix", ["", "-base4"])
def test_a_plain_model_is_calibrated_in_its_own_base(suffix: str) -> None:
    assert experiments.calibrated(f"addition-vanilla{suffix}") == experiment(f"addition-abc{suffix}")
    for name in (f"addition-abc{suffix}", "parity-classifier"):
        with pytest.raises(InputError, match=f"'{name}' cannot be calibrated here"):
            experiments.calibrated(name)


@given(NAMES, PROFILES)
def test_tests_reach_sixty_digits(name: str, profile: str) -> None:
    assert {6, 10, 20, 60} <= {length for length, _ in experiment(name, profile).tests}


def test_windows_are_those_of_table_one() -> None:
    assert experiment("addition-window").model.bias == Window(1)
    assert experiment("addition-window").model.position == positions.Sinusoidal()
    assert experiment("addition-window-cyclic").model.position == positions.Sinusoidal(3)
    assert experiment("addition-nope-window").model.position == positions.NoPosition()
    assert experiment("addition-window").sampler.arrangement == "aligned"


PADDED = tuple(name for name in catalogue.PADDED if name.startswith("abc"))
RETRAINED = ("abc", "abc-anew", "lora", *catalogue.ABLATIONS, *PADDED)


@given(WITHOUT_BASE, PROFILES, st.integers(2, 16))
def test_what_is_retrained_has_vanilla_of_the_same_profile_and_base_as_its_parent(
    name: str, profile: str, base: int
) -> None:
    assume(base in (2, 10) or not name.startswith("parity"))
    found, (task, model, _) = experiment(name, profile, base), experiments.split(name)
    if model not in RETRAINED:
        assert (found.parent, found.calibration, found.warm, found.rank) == (None, None, False, 0)
        return
    plain = "vanilla-padded" if model.endswith("padded") else "vanilla"
    assert found.parent == experiment(f"{task}-{plain}", profile, base)
    assert found.parent.parent is None
    assert (found.calibration is None) == (model == "lora") == (found.rank > 0)


def test_abc_is_calibrated_in_this_projects_way_or_the_papers() -> None:
    assert experiment("addition-abc").calibration == Calibration()
    assert experiment("addition-abc-paper").calibration == PAPER
    assert experiment("addition-abc").warm
    assert experiment("addition-abc").model.position == positions.Sinusoidal(3)


@pytest.mark.parametrize("model", [model for model in catalogue.ABLATIONS if not model.startswith("abc-paper")])
def test_an_ablation_changes_one_thing_about_abc(model: str) -> None:
    found, original = experiment(f"addition-{model}"), experiment("addition-abc")
    assert found.calibration is not None
    settings = [field.name for field in fields(Calibration)]
    changes = [name for name in settings if getattr(found.calibration, name) != getattr(Calibration(), name)]
    one_width, no_period = found.sampler.width_count == 1, found.model.position == positions.Sinusoidal()
    assert len(changes) + (not found.warm) + one_width + no_period == 1
    usual = replace(found.sampler, width_count=3), replace(found.model, position=positions.Sinusoidal(3))
    assert (*usual, found.parent) == (original.sampler, original.model, original.parent)


def test_the_papers_algorithm_stands_with_the_period_and_as_it_is() -> None:
    ours, its = experiment("addition-abc-paper"), experiment("addition-abc-paper-no-period")
    assert ours.calibration == its.calibration == PAPER
    assert replace(ours.model, position=positions.Sinusoidal()) == its.model


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_abc_takes_its_parents_weights_and_retrains_them_in_fewer_steps(profile: str) -> None:
    found = experiment("n-by-1-abc", profile)
    assert found.parent is not None
    shapes = [
        {name: tensor.shape for name, tensor in one.build(0).state_dict().items()} for one in (found, found.parent)
    ]
    assert shapes[0] == shapes[1]
    assert found.training.steps <= found.parent.training.steps
    assert found.training.hold < found.training.steps


def test_cyclic_positions_are_trained_on_as_many_widths_as_their_period() -> None:
    assert len(experiment("addition-window-cyclic").sampler.widths) == 3
    assert len(experiment("addition-abc").sampler.widths) == 3


# ---- the paper's own setting ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["vanilla", "window-cyclic", "abc"])
def test_the_papers_setting_has_the_rate_of_the_code_of_the_text_and_our_training(model: str) -> None:
    code, text, ours = (experiment(f"addition-{model}{label}", "paper") for label in ("", "-text-rate", "-our-recipe"))
    assert code.training.learning_rate == 1e-4
    assert text.training == replace(code.training, learning_rate=1e-5)
    assert ours.training == experiment(f"addition-{model}", "quick").training
    for found in (code, text, ours):
        assert found.sampler.regime == "padded"
        assert (found.model.encoder_layers, found.model.decoder_layers, found.model.width) == (1, 6, 128)
        assert found.model.dropout == 0.3


@pytest.mark.parametrize("label", ["text-rate", "our-recipe"])
def test_abc_is_read_out_of_a_model_that_was_trained_in_the_same_way(label: str) -> None:
    parent = experiment(f"parity-abc-{label}", "paper").parent
    assert parent == experiment(f"parity-vanilla-{label}", "paper")
