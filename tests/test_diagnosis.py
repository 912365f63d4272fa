"""Diagnosis: coverage against loops, and what it says of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from calibrating import INFINITY, TWO_LAYERS, answered, averages, two_layers
from helpers import SAMPLER, build
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.diagnosis import coverage, diagnose
from abc_nb.calibration.of_model import Calibrated, bias_from_attention, calibrate_model
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import binary_natural


def with_skill(bias: Lines, left: float, settings: Calibration | None = None) -> Calibrated:
    """A calibration under which so much is still right."""
    tried = pd.DataFrame([(0.5, 1, 0.0), (0.2, 9, left)], columns=["share", "lines", "skill"])
    return Calibrated(bias, 0.2, tried, settings or Calibration())


@given(st.integers(2, 5), st.integers(0, 100), st.sampled_from([0.1, 0.3]))
def test_coverage_is_the_attention_on_open_keys(width: int, seed: int, share: float) -> None:
    layout = binary_natural(width, "+", width)
    given_averages = averages(layout, seed=seed)
    bias = bias_from_attention(given_averages, layout, Calibration(share=share))
    rows = []
    for name in ("self", "cross"):
        for step in range(layout.target_length):
            masses = []
            for layer in (0, 1):
                matrix = bias.dense(layout, name, layer, 2)
                for head in range(2):
                    keys = [key for key in range(matrix.shape[2]) if matrix[head, step, key] > -INFINITY]
                    masses.append(sum(given_averages[name, layer][head, step, key].item() for key in keys))
            rows.append((name, step, sum(masses) / 4, max(masses)))
    expected = pd.DataFrame(rows, columns=["attention", "step", "mean", "highest"])
    pd.testing.assert_frame_equal(coverage(given_averages, bias, layout), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda given, bias, layout: (given, bias, binary_natural(5, "+", 5)), "the layout has 6 queries"),
        (lambda given, bias, layout: ({at: x[:1] for at, x in given.items()}, bias, layout), "1 heads and the bias 2"),
    ],
)  # fmt: skip
def test_what_is_no_attention_under_this_bias_is_one_sentence(change: Callable[..., Any], sentence: str) -> None:
    layout = binary_natural(4, "+", 4)
    attention = averages(layout)
    with pytest.raises(InputError, match=sentence):
        coverage(*change(attention, bias_from_attention(attention, layout), layout))


OPEN = Lines(2, (), empty="transparent")


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_problem_in_a_hundred_may_be_answered_wrong(wrong: int) -> None:
    model = two_layers()
    batch = answered(model, size=100)
    batch.target[:wrong, 3] = (batch.target[:wrong, 3] + 1) % len(SAMPLER.task.vocabulary)
    said = diagnose(model, batch, with_skill(OPEN, 1.0))
    assert len(said) == (wrong == 2)
    assert all("the model answers 98.0% of problems" in sentence for sentence in said)


def test_digits_that_are_lost_under_the_lines_are_named() -> None:
    model = two_layers()
    batch = answered(model)
    (sentence,) = diagnose(model, batch, with_skill(OPEN, 0.6))
    assert sentence.startswith("under its own lines alone the model gets 60.0% of digits right, less than 66.7%")
    assert diagnose(model, batch, with_skill(OPEN, 0.67)) == []
    assert len(diagnose(model, batch, with_skill(OPEN, 0.67, Calibration(keep=0.7)))) == 1


def test_output_tokens_that_see_nothing_the_model_looks_at_are_named() -> None:
    """The line two places ahead ends two steps before the output does."""
    model = two_layers()
    batch = answered(model)
    cross = [Line("cross", layer, head, "antidiagonal", "operand 1", -2, 0.0) for layer in (0, 1) for head in (0, 1)]
    own = [Line("self", layer, head, "diagonal", "output", 0, 0.0) for layer in (0, 1) for head in (0, 1)]
    width = batch.layout.width
    expected = f"no key that the model looks at is open in cross-attention at output token {width}, {width + 1}"
    lines = Lines(2, (*cross, *own), empty="closed")
    assert diagnose(model, batch, with_skill(lines, 1.0)) == [expected]
    end = Line("cross", 1, 1, "vertical", "&", 0, 0.0)
    assert diagnose(model, batch, with_skill(replace(lines, lines=(*lines.lines, end)), 1.0)) == []


def test_nothing_is_said_where_everything_holds() -> None:
    model = build(replace(TWO_LAYERS, bias=Window(1)))
    batch = answered(model, size=30)
    found = calibrate_model(model, batch)
    assert found.skill >= 2 / 3
    assert diagnose(model, batch, found) == []
