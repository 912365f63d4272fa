"""A model's bias: averages against loops, lines of every layer, the rule that chooses a threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from calibrating import INFINITY, TWO_LAYERS, WHERE, averages, problems, two_layers
from helpers import build
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from abc_nb.bias.base import key_count
from abc_nb.bias.window import Window
from abc_nb.calibration import of_model
from abc_nb.calibration.calibrate import PAPER, Calibration, calibrate
from abc_nb.calibration.of_model import SHARES, average_attention, bias_from_attention, calibrate_model
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
