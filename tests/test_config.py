"""Configurations survive JSON; unknown settings and impossible values are errors; what is essential about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from abc_nb import experiments
from abc_nb.bias import ALiBi, Causal, PlacedALiBi, RunningALiBi, Window
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common import config
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.experiments.names import Name
from abc_nb.model import positions
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.progress import TrainingConfig

POSITIONS = [positions.NoPosition, positions.Sinusoidal, positions.Rotary, positions.Relative]
POSITIONS += [positions.TableCoupling, *(type(model.position) for model in catalogue.MODERN.values())]
BIASES = [Causal, ALiBi, PlacedALiBi, RunningALiBi, Window, Lines, Line]
TYPES = [Experiment, Name, Sampler, Task, ModelConfig, TrainingConfig, Calibration, *POSITIONS, *BIASES]
WITHOUT_BASE = st.sampled_from([str(name) for name in experiments.names() if "-base" not in str(name)])


# ---- JSON -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_every_experiment_comes_back_from_json(profile: str) -> None:
    for name in [*experiments.names(profile), *(f"addition-{model}" for model in catalogue.GRID)]:
        original = experiment(name, profile)
        restored = config.from_data(json.loads(json.dumps(config.to_data(original))), TYPES)
        assert restored == original
        assert restored.key(0) == original.key(0)


@given(WITHOUT_BASE, st.integers(2, 16))
def test_every_base_comes_back_from_json(name: str, base: int) -> None:
    assume(base == 2 or not name.startswith("parity"))
    original = experiment(name, "quick", base)
    assert config.from_data(json.loads(json.dumps(config.to_data(original))), TYPES) == original


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
    with pytest.raises(InputError, match="Window has no setting 'width': it takes w, sides"):
        config.from_data({"type": "Window", "width": 3}, [Window])


def test_an_unknown_setting_deep_inside_is_an_error() -> None:
    data = config.to_data(experiment("addition-window"))
    data["model"]["bias"]["slope"] = 2
    with pytest.raises(InputError, match="Window has no setting 'slope'"):
        config.from_data(data, TYPES)


def test_digest_does_not_depend_on_the_order_of_settings() -> None:
    assert config.digest({"a": 1, "b": [2]}) == config.digest({"b": [2], "a": 1})
    assert config.digest({"a": 1, "b": [2]}) != config.digest({"a": 1, "b": [3]})


# ---- what is essential ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    size: int = 1


@dataclass(frozen=True)
class Whole:
    name: str
    part: Part = field(default_factory=Part)
    parts: tuple[Part, ...] = ()
    rate: float = 0.5


def test_fields_at_their_default_are_left_out_at_any_depth() -> None:
    assert config.essential(Whole("x")) == {"type": "Whole", "name": "x"}
    changed = Whole("x", Part(2), (Part(), Part(3)), 0.25)
    assert config.essential(changed) == {
        "type": "Whole",
        "name": "x",
        "part": {"type": "Part", "size": 2},
        "parts": [{"type": "Part"}, {"type": "Part", "size": 3}],
        "rate": 0.25,
    }


def test_fields_that_are_named_are_left_out_of_the_whole_and_not_of_its_parts() -> None:
    assert config.essential(Whole("x", Part(2)), ["name", "size"]) == {
        "type": "Whole",
        "part": {"type": "Part", "size": 2},
    }


def test_a_new_field_changes_nothing_as_long_as_it_has_its_default() -> None:
    before = make_dataclass("Setting", [("a", int)])
    after = make_dataclass("Setting", [("a", int), ("b", int, 0)])
    assert config.essential(after(3)) == config.essential(before(3))
    assert config.essential(after(3, 1)) != config.essential(before(3))


@pytest.mark.parametrize("value", [Whole("x"), Whole("x", Part(2)), Whole("x", parts=(Part(),)), Part()], ids=str)
def test_a_revised_class_changes_every_value_that_holds_it(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the part is at its default."""
    before, other = config.essential(value), config.essential(Window())
    monkeypatch.setattr(Part, "REVISION", 0, raising=False)
    assert config.essential(value) == before
    found = [before]
    for revision in (1, 2):
        monkeypatch.setattr(Part, "REVISION", revision)
        assert config.essential(value) not in found
        found.append(config.essential(value))
    assert config.essential(Window()) == other


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
