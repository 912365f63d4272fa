"""A model's bias: averages against loops, lines of every layer, the threshold, and what diagnosis says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from calibrating import INFINITY, TWO_LAYERS, WHERE, answered, averages, problems, two_layers
from helpers import SAMPLER, build
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from abc_nb.bias.base import key_count
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.calibration import of_model
from abc_nb.calibration.calibrate import PAPER, Calibration, calibrate
from abc_nb.calibration.diagnosis import coverage, diagnose
from abc_nb.calibration.of_model import SHARES, Calibrated, average_attention, bias_from_attention, calibrate_model
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import binary_natural, unary
from abc_nb.training.evaluation import record


@pytest.mark.parametrize("config", [TWO_LAYERS, replace(TWO_LAYERS, bias=Window(1)), replace(TWO_LAYERS, dropout=0.5)])
def test_average_attention_is_the_mean_over_samples_looked_at_one_by_one(config: ModelConfig) -> None:
    model, batch = build(config), problems()
    found = average_attention(model.train(), batch)
    assert set(found) == set(WHERE)
    for name, layer in WHERE:
        total = torch.zeros_like(found[name, layer])
        for sample in range(6):
            total += record(model, batch.split(1)[sample]).weights[name, layer][0]
        torch.testing.assert_close(found[name, layer], total / 6)
        assert found[name, layer].shape == (2, batch.layout.target_length, key_count(batch.layout, name))


def test_average_logits_are_finite_with_the_lowest_one_where_the_mask_closes() -> None:
    model, batch = two_layers(), problems()
    found = average_attention(model, batch, "logits")
    kept = record(model, batch)
    for where, logits in found.items():
        expected = kept.logits[where].double().mean(0).float()
        seen = expected > -INFINITY
        torch.testing.assert_close(logits[seen], expected[seen])
        assert (logits[~seen] == logits[seen].min()).all()
    assert not (found["self", 0] == found["self", 0].max()).triu(1).any()


def test_each_layer_is_read_on_its_own() -> None:
    layout = binary_natural(6, "+", 6)
    given_averages, settings = averages(layout), Calibration(share=0.1)
    found = bias_from_attention(given_averages, layout, settings)
    for name, layer in WHERE:
        own = found.of(name, layer)
        assert [*own] == calibrate(given_averages[name, layer], layout, name, settings, layer)


@pytest.mark.parametrize("settings", [Calibration(share=0.1, layers="last"), replace(PAPER, kappa=(0.5, 0.5))])
def test_the_last_layers_lines_are_copied_to_all(settings: Calibration) -> None:
    layout = binary_natural(6, "+", 6)
    given_averages = averages(layout)
    found = bias_from_attention(given_averages, layout, settings)
    assert (found.floor, found.empty) == (settings.floor, settings.empty)
    for name in ("self", "cross"):
        first, last = ([*found.of(name, layer)] for layer in (0, 1))
        assert last == calibrate(given_averages[name, 1], layout, name, settings, 1)
        assert first == [replace(line, layer=0) for line in last]
        assert last != calibrate(given_averages[name, 0], layout, name, settings, 1), "the layers are not the same"


@examples(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=len(SHARES), max_size=len(SHARES)), st.sampled_from([0.5, 2 / 3, 0.9]))
def test_the_sparsest_share_under_which_enough_survives_is_taken(skills: list[float], keep: float) -> None:
    model, batch, asked = two_layers(), problems(2), iter(skills)
    asked_for = Calibration(keep=keep)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(of_model, "skill", lambda model, batch: next(asked))
        found = calibrate_model(model, batch, asked_for)
    enough = [i for i, value in enumerate(skills) if value >= keep]
    chosen = enough[0] if enough else len(SHARES) - 1
    assert found.share == SHARES[chosen]
    assert found.tried.skill.tolist() == skills[: chosen + 1]
    assert found.tried.share.tolist() == [*SHARES[: chosen + 1]]
    assert len([*asked]) == len(SHARES) - chosen - 1, "no share after the chosen one is tried"
    chosen_alone = replace(asked_for, share=SHARES[chosen])
    assert found.bias == bias_from_attention(average_attention(model, batch), batch.layout, chosen_alone)
    assert found.tried.lines.iloc[-1] == len(found.bias.lines)
    assert (found.skill, found.settings) == (skills[chosen], asked_for)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        (Calibration(share=0.3), 0.3),
        (Calibration(share=0.05, floor=-1.0, empty="transparent"), 0.05),
        (replace(PAPER, kappa=(0.5, 0.5)), None),
    ],
)
def test_a_given_threshold_is_taken_whatever_survives_with_every_key_off_the_lines_closed(
    settings: Calibration, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Transformer] = []
    monkeypatch.setattr(of_model, "skill", lambda model, batch: asked.append(model) or 0.0)
    model, batch = two_layers(), problems()
    found = calibrate_model(model, batch, settings)
    assert (found.share, len(found.tried)) == (share, 1)
    assert found.bias == bias_from_attention(average_attention(model, batch), batch.layout, settings)
    (under,) = asked
    torch.testing.assert_close(under.state_dict(), model.state_dict(), rtol=0, atol=0)
    for name, layer in WHERE:
        expected = torch.where(found.bias.covers(batch.layout, name, layer), 0.0, -INFINITY)
        torch.testing.assert_close(under.config.bias.dense(batch.layout, name, layer, 2), expected)


WEIGHTS = torch.full((2, 8, 9), 1 / 9)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (WEIGHTS, "give averaged attention by name and layer, as in"),
        ({("encoder", 0): WEIGHTS}, "unknown attention 'encoder'"),
        ({("cross", 0): WEIGHTS, ("cross", 1): WEIGHTS[:1]}, r"have the same heads, not \[1, 2\]"),
    ],
)
def test_attention_that_is_none_is_one_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        bias_from_attention(given, unary(7))


def test_the_last_layer_is_that_of_the_same_attention() -> None:
    layout = unary(7)
    every = averages(layout)
    given_averages = {("self", 0): every["self", 0], ("cross", 1): every["cross", 1]}
    found = bias_from_attention(given_averages, layout, Calibration(layers="last", share=0.1))  # type: ignore[arg-type]
    assert {(line.attention, line.layer) for line in found.lines} == set(given_averages)


def test_a_bias_is_asked_for_a_layout_an_attention_and_a_layer() -> None:
    bias = bias_from_attention({("cross", 0): WEIGHTS}, unary(7))
    for wrong in ((7, "cross", 0), (unary(7), "encoder", 0)):
        with pytest.raises(InputError, match="a bias is made for a Layout and one of self, cross, source"):
            bias.dense(*wrong)
    with pytest.raises(InputError, match="'0' is no layer: give a whole number, counted from 0"):
        bias.dense(unary(7), "cross", "0")  # type: ignore[arg-type]


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
