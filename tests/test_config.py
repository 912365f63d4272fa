"""Configurations survive JSON; unknown settings and values of another type are errors."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from abc_nb.bias import Causal, Window
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common import config
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig
from abc_nb.training.progress import TrainingConfig

LINES = (Line("cross", 0, 1, "antidiagonal", "operand 1", -1, 0.0), Line("self", 1, 0, "vertical", "$", 0, -1.5))
VALUES = [
    Causal(),
    Window(2, "both"),
    Lines(8, LINES, floor=-5.0, empty="closed"),
    PAPER,
    Calibration(source="logits", share=0.1, floor=-5.0),
    TrainingConfig(steps=7, optimizer="adamw"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_from_json(value: Any) -> None:
    data = json.loads(json.dumps(config.to_data(value)))
    assert config.from_data(data, [type(value), Line]) == value
    assert config.digest(data) == config.digest(config.to_data(value))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"type": "Sigmoid"}, "unknown configuration type 'Sigmoid': choose one of Causal, Window"),
        ({"w": 1}, "unknown configuration type None"),
        ({"type": "Window", "width": 3}, "Window has no setting 'width': it takes w, sides"),
        ({"type": "Window", "w": "3"}, "the setting 'w' of Window is missing or not of its type"),
    ],
)
def test_what_is_no_configuration_is_a_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        config.from_data(data, [Window, Causal])


def test_digest_does_not_depend_on_the_order_of_settings() -> None:
    assert config.digest({"a": 1, "b": [2]}) == config.digest({"b": [2], "a": 1}) != config.digest({"a": 1, "b": [3]})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Calibration(anchor="operand"), "'operand' is not possible as anchor of a Calibration: choose one of "),  # type: ignore[arg-type]
        (lambda: Calibration(kappa=(1.0,)), "is not possible as kappa of a Calibration"),  # type: ignore[arg-type]
        (
            lambda: ModelConfig(kind="none"),
            "'none' is not possible as kind of a ModelConfig: choose one of encoder-decoder,",
        ),  # type: ignore[arg-type]
        (lambda: TrainingConfig(steps=1.5), "1.5 is not possible as steps of a TrainingConfig"),  # type: ignore[arg-type]
        (lambda: ModelConfig(kind="decoder-only", encoder_layers=1), "a decoder-only model has no encoder"),
    ],
)
def test_a_field_of_another_type_is_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
