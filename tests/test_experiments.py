"""Configurations survive JSON, unknown settings are errors, and a run's name changes with every setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from abc_nb import experiments
from abc_nb.bias import ALiBi, Causal, PlacedALiBi, Window
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common import config
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.model import positions
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.progress import TrainingConfig

POSITIONS = [positions.NoPosition, positions.Sinusoidal, positions.Rotary, positions.Relative]
POSITIONS += [type(model.position) for model in catalogue.MODERN.values()]
BIASES = [Causal, ALiBi, PlacedALiBi, Window, Lines, Line]
TYPES = [Experiment, Sampler, Task, ModelConfig, TrainingConfig, Calibration, *POSITIONS, *BIASES]
NAMES, PROFILES = st.sampled_from(experiments.names()), st.sampled_from([*profiles.PROFILES])
WITHOUT_BASE = st.sampled_from([name for name in experiments.names() if "-base" not in name])


# ---- JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_every_experiment_comes_back_from_json(profile: str) -> None:
    for name in [*experiments.names(), *(f"addition-{model}" for model in catalogue.GRID)]:
        original = experiment(name, profile)
        restored = config.from_data(json.loads(json.dumps(config.to_data(original))), TYPES)
        assert restored == original
        assert restored.key(0) == original.key(0)


@given(WITHOUT_BASE, st.integers(2, 16))
def test_every_base_comes_back_from_json(name: str, base: int) -> None:
    assume(base in (2, 10) or not name.startswith("parity"))
    original = experiment(name, "quick", base)
    assert config.from_data(config.to_data(original), TYPES) == original


@pytest.mark.parametrize("calibration", [PAPER, Calibration(source="logits", share=0.1, floor=-5.0)])
def test_an_experiment_with_a_calibrated_bias_comes_back_from_json(calibration: Calibration) -> None:
    lines = (Line("cross", 0, 1, "antidiagonal", "operand 1", -1, 0.0), Line("self", 1, 0, "vertical", "$", 0, -1.5))
    original = experiment("addition-abc")
    model = replace(original.model, bias=Lines(8, lines, floor=-5.0, empty="closed"))
    changed = replace(original, calibration=calibration, model=model)
    restored = config.from_data(json.loads(json.dumps(config.to_data(changed))), TYPES)
    assert restored == changed
    assert len({original.key(0), changed.key(0), replace(original, calibration=calibration).key(0)}) == 3


def test_unknown_type_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown configuration type 'Sigmoid': choose one of Causal, Window"):
        config.from_data({"type": "Sigmoid"}, [Window, Causal])


def test_data_without_a_type_is_an_error() -> None:
    with pytest.raises(InputError, match="unknown configuration type None"):
        config.from_data({"w": 1}, [Window])


def test_unknown_setting_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="Window has no setting 'width': it takes w"):
        config.from_data({"type": "Window", "width": 3}, [Window])


def test_an_unknown_setting_deep_inside_is_an_error() -> None:
    data = config.to_data(experiment("addition-window"))
    data["model"]["bias"]["slope"] = 2
    with pytest.raises(InputError, match="Window has no setting 'slope'"):
        config.from_data(data, TYPES)


def test_digest_does_not_depend_on_the_order_of_settings() -> None:
    assert config.digest({"a": 1, "b": [2]}) == config.digest({"b": [2], "a": 1})
    assert config.digest({"a": 1, "b": [2]}) != config.digest({"a": 1, "b": [3]})


# ---- keys -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherPosition(positions.PositionEncoding):
    pass


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case None:
            return 1
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case _:
            return (*value, value[0])


def variations(value: Any) -> Iterator[tuple[str, Any]]:
    """The value with one setting changed, for each setting at any depth, and the setting's path."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from ((f"{field.name}.{path}", replace(value, **{field.name: v})) for path, v in variations(inner))
        else:
            other = Calibration() if field.name == "calibration" else changed(inner)
            yield field.name, replace(value, **{field.name: other})


@pytest.mark.parametrize("name", ["addition-window-cyclic", "successor-rpe", "n-by-1-alibi-cross", "addition-abc"])
def test_key_changes_with_every_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Task, ModelConfig, TrainingConfig, Calibration):
        monkeypatch.setattr(kind, "__post_init__", lambda self: None)  # any value will do here
    original = experiment(name)
    others = dict(variations(original))
    expected = {"name", "tests", "sampler.task.base", "training.steps", "model.width"}
    if name.endswith("-abc"):
        expected |= {"parent.training.steps", "parent.model.width", "parent.sampler.regime"}
        expected |= {"calibration.share", "calibration.keep", "calibration.directions", "calibration.kappa"}
    assert expected < others.keys()
    keys = {original.key(0), *(other.key(0) for other in others.values())}
    assert len(keys) == len(others) + 1


def test_key_changes_with_the_kind_of_a_part() -> None:
    original = experiment("addition-nope")
    other = replace(original, model=replace(original.model, position=OtherPosition()))
    assert other.key(0) != original.key(0)


def test_key_changes_with_the_recipe_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = experiment("addition-vanilla").key(0)
    monkeypatch.setattr(experiments, "RECIPE", experiments.RECIPE + 1)
    assert experiment("addition-vanilla").key(0) != before


@pytest.mark.parametrize(
    ("name", "profile", "more"),
    [
        ("addition-abc-padded", "quick", 2),
        ("addition-abc", "paper", 2),
        ("addition-abc-paper-padded", "quick", 0),  # averages whole problems, as before
        ("addition-vanilla-padded", "quick", 0),
        ("addition-abc", "quick", 0),
    ],
)
def test_only_calibration_on_part_of_padded_problems_has_a_later_recipe(name: str, profile: str, more: int) -> None:
    assert experiment(name, profile).data["recipe"] == experiments.RECIPE + more


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


@given(NAMES, PROFILES, st.integers(0, 100), st.integers(0, 100))
def test_key_changes_with_the_seed_and_with_nothing_else(name: str, profile: str, first: int, second: int) -> None:
    keys = experiment(name, profile).key(first), experiment(name, profile).key(second)
    assert (keys[0] == keys[1]) == (first == second)
    assert all(key.startswith(f"{name}-{profile}-seed") for key in keys)


def test_every_experiment_has_a_key_of_its_own() -> None:
    every = [experiment(name, profile) for name in experiments.names() for profile in profiles.PROFILES]
    every += [experiment(f"{task}-vanilla", base=base) for task in ("addition", "successor") for base in (3, 5, 15)]
    assert len({one.key(0) for one in every}) == len(every)


# ---- the design -------------------------------------------------------------------------------------


def test_names_are_every_task_with_every_model() -> None:
    names = experiments.names()
    assert len(set(names)) == len(names)
    assert {"addition-vanilla", "n-by-1-window-cyclic", "listops-max-nope-window", "parity-classifier"} < {*names}
    for task in ("successor", "addition", "parity", "n-by-1", "listops-sm", "listops-max", "listops-min"):
        for model in ("vanilla", "nope", "rope", "alibi", "rpe", "window", "window-cyclic", "nope-window", "abc"):
            assert experiments.split(f"{task}-{model}") == (task, model, None)
            assert experiment(f"{task}-{model}").task.name == task


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


def test_a_base_is_given_or_part_of_the_name() -> None:
    for base in experiments.BASES:
        named, given_base = experiment(f"addition-abc-base{base}"), experiment("addition-abc", base=base)
        assert named == given_base == experiment(named.name)
        assert (named.task.base, named.parent and named.parent.name) == (base, f"addition-vanilla-base{base}")
    assert experiment("addition-abc-base10") == experiment("addition-abc")
    assert experiment("parity-abc-base2") == experiment("parity-abc")
    with pytest.raises(InputError, match="has base 4, not 8"):
        experiment("addition-abc-base4", base=8)


@pytest.mark.parametrize("suffix", ["base", "base0", "base1", "base04", "base17", "base4x", "basex"])
def test_a_base_that_is_none_is_no_name(suffix: str) -> None:
    with pytest.raises(InputError, match=f"unknown experiment 'addition-abc-{suffix}'"):
        experiment(f"addition-abc-{suffix}")


def test_a_pattern_finds_what_has_a_name() -> None:
    assert experiments.matching("n-by-2-*-base4") == [
        f"n-by-2-{model}-base4" for model in ("vanilla", "by-head", "abc", "abc-anew")
    ]
    assert {*experiments.matching("addition-grid-w1-*")} == {f"addition-grid-w1-t{t}" for t in ("x", *"2345678")}
    assert experiments.matching("*-text-rate", "paper")
    with pytest.raises(InputError, match="no experiment matches"):
        experiments.matching("*-text-rate", "quick")
    assert experiment("addition-vanilla-text-rate", "quick").training.learning_rate == 1e-5


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


def test_another_base_is_in_the_name() -> None:
    assert experiment("addition-vanilla", base=7).name == "addition-vanilla-base7"
    assert experiment("addition-vanilla", base=2).name == "addition-vanilla-base2"
    assert experiment("addition-vanilla").name == "addition-vanilla"
    assert experiment("parity-vanilla").name == "parity-vanilla"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("addition-vanila",), "unknown experiment 'addition-vanila': did you mean addition-vanilla"),
        (("",), "unknown experiment ''"),
        (("zzz",), "unknown experiment 'zzz': did you mean"),
        (("addition-vanilla", "huge"), "unknown profile 'huge': choose one of smoke, quick, paper"),
        (("addition-vanilla", "quick", 1), "base 1 is not supported: choose a base from 2 to 16"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        experiment(*arguments)


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_needed_experiments_are_distinct_and_start_with_the_paper_tasks(profile: str) -> None:
    needed = experiments.needed(profile)
    assert len({one.key(0) for one in needed}) == len(needed)
    assert {one.task.name for one in needed} >= {"successor", "addition", "n-by-1", "parity"}


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


# ---- fields -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Calibration(anchor="operand"), "'operand' is not possible as anchor of a Calibration: choose one of "),  # type: ignore[arg-type]
        (lambda: Calibration(layers="all"), "'all' is not possible as layers of a Calibration"),  # type: ignore[arg-type]
        (lambda: Calibration(kappa=(1.0,)), "is not possible as kappa of a Calibration"),  # type: ignore[arg-type]
        (lambda: ModelConfig(width=60), "8 heads"),
        (lambda: ModelConfig(norm="none"), "'none' is not possible as norm of a ModelConfig: choose one of pre, post"),  # type: ignore[arg-type]
        (lambda: TrainingConfig(steps=1.5), "1.5 is not possible as steps of a TrainingConfig"),  # type: ignore[arg-type]
        (lambda: TrainingConfig(validate_every=0), "a training needs at least one step"),
    ],
)
def test_a_field_that_is_not_possible_is_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_what_is_not_shipped_is_trained_for_the_notebooks() -> None:
    everything = {found.name for found in experiments.needed("quick", everything=True)}
    padded = {f"{task}-{model}" for task in experiments.ABLATED for model in catalogue.PADDED}
    assert {found.name for found in experiments.needed("paper")} == everything - padded, "all of it is padded"


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
@pytest.mark.parametrize("models", [["vanilla", *catalogue.SCAFFOLDS], ["abc", "abc-no-period", "abc-paper"]])
def test_what_notebooks_show_of_padded_problems_is_trained_in_every_profile(profile: str, models: list[str]) -> None:
    names = experiments.padded_names(models, profile)
    assert {*names} <= {each.name for each in experiments.needed(profile, everything=True)}
    assert {experiment(name, profile).sampler.regime for name in names} == {"padded"}
    titles = {experiments.find(name).title for name in names}
    assert titles == {catalogue.MODELS[model].title for model in models}


def test_a_choice_by_the_models_own_digits_was_redone_where_a_floor_had_hidden_them() -> None:
    redone = {name for name in experiments.names() if experiment(name).calibration and experiment(name).redone}
    assert {f"{task}-abc-finite" for task in experiments.ABLATED} <= redone
    assert {f"{task}-abc" for task in experiments.LISTS} <= redone
    assert not redone & {f"{task}-{model}" for task in experiments.ABLATED for model in ("abc", "abc-share-0.1")}
