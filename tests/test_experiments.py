"""Experiments: what a task, a model, a base and a profile make of sampler, model, training, tests and parent."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from abc_nb import experiments
from abc_nb.bias import Causal, Window
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.experiment import experiment, train_command
from abc_nb.experiments.names import Name, parse
from abc_nb.model import positions

NAMES, PROFILES = st.sampled_from(experiments.names()), st.sampled_from([*profiles.PROFILES])
WITHOUT_BASE = st.sampled_from([str(name) for name in experiments.names() if "-base" not in str(name)])


# ---- the design -------------------------------------------------------------------------------------


def test_the_rate_of_a_task_of_two_answers_is_held_until_more_is_right_than_a_guess_gets() -> None:
    """Half of the parities are right without looking; every other task has to be learned to get there."""
    classifier = experiment("parity-classifier").training
    assert classifier.learned == 0.75
    assert replace(classifier, learned=0.5) == experiment("parity-vanilla").training
    assert experiment("direct-listops-nested-vanilla").training.learned == 0.5


@pytest.mark.slow
def test_profile_paper_is_the_papers_model() -> None:
    for name in {*experiments.names(), *experiments.names("paper")}:
        found = experiment(name, "paper")
        if found.sampler.layout(3).row:  # which the paper has not
            continue
        model = found.model
        own = {"width": 128, "heads": 8, "feed_forward": 512, "dropout": 0.3, "encoder_layers": 1, "decoder_layers": 6}
        chosen = catalogue.models_of(found.task)[found.identity.model]
        own |= {"dropout": 0.0} if chosen.recipe == "ours" else {}
        own |= dict(chosen.size)
        assert {field: getattr(model, field) for field in own} == own
        assert found.sampler.regime == (chosen.regime or "padded")
        assert {samples for _, samples in found.tests} == {10_000}


@pytest.mark.parametrize("base", [10, 7])
def test_a_bias_can_be_read_out_in_another_base(base: int) -> None:
    child = experiment("n-by-3-abc-from-4", base=base)
    assert child.parent == experiment("n-by-3-vanilla", base=4)
    assert child.task.base == base and child.model.feed_forward == 4 * child.parent.model.feed_forward
    assert Name("successor", "abc-from-4") not in experiments.names()


@pytest.mark.parametrize("suffix", ["", "-base4"])
def test_a_plain_model_is_calibrated_in_its_own_base(suffix: str) -> None:
    assert experiments.calibrated(f"addition-vanilla{suffix}") == experiment(f"addition-abc{suffix}")
    for name in (f"addition-abc{suffix}", "parity-classifier"):
        with pytest.raises(InputError, match=f"'{name}' cannot be calibrated here"):
            experiments.calibrated(name)


@given(NAMES, PROFILES)
def test_tests_reach_sixty_digits(name: str, profile: str) -> None:
    found = experiment(name, profile)
    assert found.sampler.layout(3).row or {6, 10, 20, 60} <= {length for length, _ in found.tests}


def test_windows_are_those_of_table_one() -> None:
    """Open to one side, as in the authors' code, unless the name says both."""
    for ending, bias in (("", Window(1, "one")), ("-both", Window(1, "both"))):
        window, cyclic, nope = (
            experiment(f"addition-{model}{ending}") for model in ("window", "window-cyclic", "nope-window")
        )
        assert window.model.bias == cyclic.model.bias == nope.model.bias == bias
        assert window.model.position == positions.Sinusoidal()
        assert cyclic.model.position == positions.Sinusoidal(3)
        assert nope.model.position == positions.NoPosition()
        assert {one.sampler.arrangement for one in (window, cyclic, nope)} == {"aligned"}


@pytest.mark.parametrize("model", catalogue.SCAFFOLDS)
@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_a_window_to_both_sides_differs_from_that_to_one_in_nothing_else(profile: str, model: str) -> None:
    one, both = (experiment(f"n-by-1-{name}", profile) for name in (model, f"{model}-both"))
    assert replace(both.model, bias=Window(1)) == one.model
    assert (both.sampler, both.training, both.parent) == (one.sampler, one.training, one.parent)


def test_windows_of_the_grid_its_periods_and_sizes_are_open_to_both_sides() -> None:
    for model in (*catalogue.GRID, *catalogue.PERIODS, *catalogue.SIZED):
        bias = experiment(f"addition-{model}").model.bias
        assert bias == Causal() if model.startswith("grid-wx") else isinstance(bias, Window) and bias.sides == "both"
    assert experiment("addition-window-both-t4").model.position == positions.Sinusoidal(4)
    assert experiment("addition-window-both-width-32").model.width == 32


def is_read_out(model: str) -> bool:
    return model.startswith(("abc", "algorithm-1", "decoder-abc"))


@given(WITHOUT_BASE, PROFILES, st.integers(2, 16))
def test_what_has_a_parent_has_vanilla_of_the_same_profile_and_base(name: str, profile: str, base: int) -> None:
    assume(base == 2 or not name.startswith("parity"))
    found, identity = experiment(name, profile, base), parse(name)
    assert identity is not None
    model = identity.model
    assume(model != "abc-from-4")  # whose parent has a base of its own
    if model.endswith("-repaired"):
        assert found.parent == experiment(f"{identity.task}-{model.removesuffix('-repaired')}", profile, base)
        assert (found.calibration, found.warm, found.rank, found.rounds > 0) == (None, True, 0, True)
        return
    if not is_read_out(model) and model != "lora":
        assert (found.parent, found.calibration, found.warm, found.rank) == (None, None, False, 0)
        return
    if model.endswith("-twice"):
        once = experiment(f"{identity.task}-{model.removesuffix('-twice')}", profile, base)
        assert (found.parent, found.calibration, found.warm) == (once, once.calibration, False)
        return
    end = next(
        (end for end in ("-padded", "-deep", "-paper-size", "-units-first", "-as-written") if model.endswith(end)), ""
    )
    plain = f"vanilla{end}"
    plain = f"decoder-{plain}" if model.startswith("decoder") else plain
    assert found.parent == experiment(f"{identity.task}-{plain}", profile, base)
    assert found.parent.parent is None
    assert (found.calibration is None) == (model == "lora") == (found.rank > 0)


# ---- readings of calibration ------------------------------------------------------------------------

READINGS = {
    "none": positions.NoPosition(),
    "plain": positions.Sinusoidal(),
    "mod3": positions.Sinusoidal(3),
}


def test_abc_has_no_positions_and_new_weights_and_is_accepted_without_a_wrong_answer() -> None:
    found = experiment("addition-abc")
    assert found.calibration == Calibration()
    assert found.model.position == positions.NoPosition()
    assert not found.warm
    assert found.accept == 1.0


@pytest.mark.parametrize("index", READINGS)
@pytest.mark.parametrize("weights", ["new", "warm"])
def test_readings_are_named_after_positions_and_weights_and_differ_in_nothing_else(index: str, weights: str) -> None:
    """The calibration is this project's, or Algorithm 1 as it stands in the paper."""
    for start, calibration in (("abc", Calibration()), ("algorithm-1", PAPER)):
        if (start, index, weights) == ("abc", "none", "new") or (start, index) == ("algorithm-1", "mod3"):
            continue  # the first is `abc`; the paper's ABC has no index modulo 3
        found, usual = experiment(f"addition-{start}-{index}-{weights}"), experiment("addition-abc")
        assert found.calibration == calibration
        assert found.warm == (weights == "warm")
        assert found.model == replace(usual.model, position=READINGS[index])
        assert (found.sampler, found.parent) == (usual.sampler, usual.parent)
        assert found.accept == 0.0


@pytest.mark.parametrize(
    ("model", "calibration"),
    [
        ("algorithm-1-pooled", replace(PAPER, pooled=True)),
        ("algorithm-1-v1", replace(PAPER, kappa=(2.0, 2.0))),
        ("algorithm-1-pooled-v1-logits", replace(PAPER, pooled=True, kappa=(2.0, 2.0), source="logits")),
    ],
)
def test_other_versions_of_algorithm_1_change_its_calibration_alone(model: str, calibration: Calibration) -> None:
    usual, found = experiment("addition-algorithm-1-none-new"), experiment(f"addition-{model}")
    assert found == replace(usual, identity=found.identity, calibration=calibration)


@pytest.mark.parametrize("model", catalogue.DEEP)
def test_deep_models_have_six_layers_and_problems_padded_to_twenty_digits_and_are_otherwise_the_same(
    model: str,
) -> None:
    found, usual = experiment(f"addition-{model}"), experiment(f"addition-{model.removesuffix('-deep')}")
    assert found.sampler == replace(usual.sampler, regime="padded-20")
    same = replace(found.model, decoder_layers=2, position=usual.model.position)
    assert same == usual.model or model == "abc-last-layer-deep"
    assert found.model.decoder_layers == 6
    assert found.calibration == usual.calibration
    assert found.parent is None or found.parent == experiment("addition-vanilla-deep")


@pytest.mark.parametrize("model", catalogue.PAPER_SIZED)
def test_models_of_the_papers_size_have_the_papers_size_and_regime_and_are_otherwise_the_same(model: str) -> None:
    found, usual = experiment(f"addition-{model}"), experiment(f"addition-{model.removesuffix('-paper-size')}")
    size = experiment("addition-vanilla", "paper").model
    assert found.model == replace(size, position=usual.model.position, bias=usual.model.bias)
    assert found.sampler == replace(usual.sampler, regime="padded")
    assert found.calibration == usual.calibration


@pytest.mark.parametrize("model", catalogue.ABLATIONS)
def test_an_ablation_changes_one_thing_about_abc(model: str) -> None:
    """About that with an index modulo 3 and the plain model's weights."""
    found, original = experiment(f"addition-{model}"), experiment("addition-abc-mod3-warm")
    assert found.calibration is not None
    settings = [field.name for field in fields(Calibration)]
    changes = [name for name in settings if getattr(found.calibration, name) != getattr(Calibration(), name)]
    assert len(changes) + (found.sampler.width_count == 1) == 1
    usual = replace(found.sampler, width_count=3), found.model, found.parent, found.training, found.warm, found.accept
    assert usual == (
        original.sampler,
        original.model,
        original.parent,
        original.training,
        original.warm,
        original.accept,
    )


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_abc_with_its_parents_weights_retrains_them_in_fewer_steps(profile: str) -> None:
    found = experiment("n-by-1-abc-mod3-warm", profile)
    assert found.parent is not None and found.warm
    shapes = [
        {name: tensor.shape for name, tensor in one.build(0).state_dict().items()} for one in (found, found.parent)
    ]
    assert shapes[0] == shapes[1]
    assert found.training.steps <= found.parent.training.steps
    assert found.training.hold < found.training.steps


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_abc_with_new_weights_takes_no_more_steps_than_its_parent(profile: str) -> None:
    found = experiment("n-by-1-abc", profile)
    assert found.parent is not None
    assert found.training.steps <= found.parent.training.steps
    assert found.training.hold < found.training.steps


def test_tasks_that_take_longer_get_four_times_the_steps_in_the_profile_quick_alone() -> None:
    for model, kind in (("vanilla", "plain"), ("abc-mod3-warm", "retraining"), ("by-head", "scaffold")):
        usual = getattr(profiles.PROFILES["quick"].trainings, kind)
        for name in ("n-by-2", "n-by-3"):
            found = experiment(f"{name}-{model}")
            assert (found.training.steps, found.training.hold) == (4 * usual.steps, 4 * usual.hold)
            assert (found.model.encoder_layers, found.model.decoder_layers) == (0, 4)
            smoke = experiment(f"{name}-{model}", "smoke")
            assert smoke.training == getattr(profiles.PROFILES["smoke"].trainings, kind)
            assert smoke.model.decoder_layers == 1


# ---- calibration problems ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("addition-abc", 8),
        ("addition-abc-padded", 7),
        ("addition-algorithm-1-plain-warm-padded", 62),
        ("addition-algorithm-1-plain-warm", 8),
        ("addition-algorithm-1-script-deep", 7),
    ],
)
def test_attention_is_averaged_over_what_the_calibration_wants_of_the_parents_problems(name: str, tokens: int) -> None:
    """Sums of training numbers have seven digits, and then the end token; padded ones have 61."""
    chosen = experiment(name)
    assert chosen.parent is not None
    batch = chosen.calibration_batch(3)
    problems = chosen.parent.sampler.calibration_batch(3, padding=True)
    assert torch.equal(batch.source, problems.source)
    assert batch.layout.target_length == tokens


def test_a_plain_model_has_no_problems_to_calibrate_on() -> None:
    with pytest.raises(InputError, match="addition-vanilla is not calibrated: name an experiment such as addition-abc"):
        experiment("addition-vanilla").calibration_batch(0)


# ---- positions and widths ---------------------------------------------------------------------------


def test_cyclic_positions_are_trained_on_as_many_widths_as_their_period() -> None:
    assert len(experiment("addition-window-cyclic").sampler.widths) == 3
    assert len(experiment("addition-abc").sampler.widths) == 3


# ---- the paper's own setting ------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["vanilla", "window-cyclic", "abc"])
def test_the_papers_setting_has_the_rate_of_the_code_of_the_text_and_our_training(model: str) -> None:
    code, text, ours = (experiment(f"addition-{model}{label}", "paper") for label in ("", "-text-rate", "-our-recipe"))
    assert code.training.learning_rate == 1e-4
    assert text.training == replace(code.training, learning_rate=1e-5)
    assert (ours.training.optimizer, ours.training.batch) == ("muon", 512)
    assert ours.training.steps <= code.training.steps / 20
    for found in (code, text, ours):
        assert found.sampler.regime == "padded"
        assert (found.model.encoder_layers, found.model.decoder_layers, found.model.width) == (1, 6, 128)
        assert found.model.dropout == (0.0 if found is ours else 0.3)


@pytest.mark.parametrize("label", ["text-rate", "our-recipe"])
def test_abc_is_read_out_of_a_model_that_was_trained_in_the_same_way(label: str) -> None:
    parent = experiment(f"parity-abc-{label}", "paper").parent
    assert parent == experiment(f"parity-vanilla-{label}", "paper")


# ---- commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("addition-abc",), "abc-nb train addition-abc"),
        (("addition-abc", 3), "abc-nb train addition-abc --seed 3"),
        (("addition-abc", 0, "smoke", 4), "abc-nb train addition-abc --profile smoke --base 4"),
        (("addition-abc-base4", 1, "paper"), "abc-nb train addition-abc-base4 --profile paper --seed 1"),
    ],
)
def test_the_command_that_trains_an_experiment_says_what_is_not_usual(arguments: tuple[Any, ...], command: str) -> None:
    assert train_command(*arguments) == command
