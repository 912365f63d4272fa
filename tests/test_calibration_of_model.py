"""A model's bias: averages against loops, lines of every layer, the threshold, and what lies on lines."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd
import pytest
import torch
from helpers import SAMPLER, build, random_attention
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import Attention, key_count
from abc_nb.bias.lines import Lines
from abc_nb.bias.window import Window
from abc_nb.calibration.calibrate import PAPER, Calibration, calibrate
from abc_nb.calibration.calibrate_model import (
    SHARES,
    as_mask,
    average_attention,
    bias_from_attention,
    calibrate_model,
    coverage,
    sparsest,
)
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.problems.sampling import Batch
from abc_nb.training.evaluation import attention_of, correct_tokens

TWO_LAYERS = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, position=Sinusoidal(3))
INFINITY = float("inf")
WHERE: list[tuple[Attention, int]] = [("self", 0), ("cross", 0), ("self", 1), ("cross", 1)]


def problems(size: int = 6) -> Batch:
    return SAMPLER.calibration_batch(0, size)


def averages(layout: Layout, seed: int = 0) -> dict[tuple[Attention, int], Tensor]:
    """Random attention of two layers."""
    return {(name, layer): random_attention(layout, name, 2, 2 * seed + layer, 3.0) for name, layer in WHERE}


@pytest.mark.parametrize("config", [TWO_LAYERS, replace(TWO_LAYERS, bias=Window(1)), replace(TWO_LAYERS, dropout=0.5)])
def test_average_attention_is_the_mean_over_samples_looked_at_one_by_one(config: ModelConfig) -> None:
    model, batch = build(config), problems()
    found = average_attention(model.train(), batch)
    alone = [attention_of(model, problem).weights for problem in batch.split(1)]
    assert found.keys() == {*WHERE}
    for (name, layer), mean in found.items():
        assert mean.shape == (2, batch.layout.target_length, key_count(batch.layout, name))
        torch.testing.assert_close(mean, sum(each[name, layer][0] for each in alone) / 6)


def test_average_logits_are_finite_with_the_lowest_one_where_the_mask_closes() -> None:
    model, batch = build(TWO_LAYERS), problems()
    found = average_attention(model, batch, "logits")
    kept = attention_of(model, batch)
    for where, logits in found.items():
        expected = kept.logits[where].mean(0)
        seen = expected > -INFINITY
        assert where[0] == "cross" or torch.equal(seen, torch.ones_like(seen).tril())
        torch.testing.assert_close(logits[seen], expected[seen])
        assert (logits[~seen] == logits[seen].min()).all()


@pytest.mark.parametrize("settings", [Calibration(share=0.1), Calibration(share=0.1, layers="last")])
def test_each_layer_is_read_on_its_own_or_the_last_one_copied_to_all(settings: Calibration) -> None:
    layout = binary_natural(6, "+", 6)
    given_averages = averages(layout)
    found = bias_from_attention(given_averages, layout, settings)
    assert (found.floor, found.empty) == (settings.floor, settings.empty)
    for name, layer in WHERE:
        read = 1 if settings.layers == "last" else layer
        own = calibrate(given_averages[name, read], layout, name, settings, read)
        assert [*found.of(name, layer)] == [replace(line, layer=layer) for line in own]


SEVEN = unary(6)
BY_SHARE = [bias_from_attention(averages(SEVEN), SEVEN, Calibration(share=share)) for share in SHARES]


KEPT = st.sampled_from([0.5, 2 / 3, 0.9])


@given(st.lists(st.floats(0, 1) | KEPT, min_size=len(SHARES), max_size=len(SHARES)), KEPT)
def test_the_sparsest_share_under_which_enough_survives_is_taken(skills: list[float], keep: float) -> None:
    lines = [bias.lines for bias in BY_SHARE]
    skills = [skills[lines.index(each)] for each in lines]  # what is tried twice is as good as before
    found = sparsest(averages(SEVEN), SEVEN, Calibration(keep=keep), lambda bias: skills[lines.index(bias.lines)])
    enough = [i for i, value in enumerate(skills) if value >= keep]
    chosen = enough[0] if enough else len(SHARES) - 1
    assert found.tried.skill.tolist() == skills[: chosen + 1] and found.skill == skills[chosen]
    assert found.tried.share.tolist() == [*SHARES[: chosen + 1]], "no share after the chosen one is tried"
    assert found.bias == BY_SHARE[chosen]
    assert found.tried.lines.iloc[-1] == len(found.bias.lines)


FIXED = [Calibration(share=0.05, floor=-1.0, empty="transparent"), replace(PAPER, kappa=(0.5, 0.5))]


@pytest.mark.parametrize("settings", FIXED)
def test_a_given_threshold_is_taken_whatever_survives_with_every_key_off_the_lines_closed(
    settings: Calibration,
) -> None:
    model, batch = build(TWO_LAYERS), problems()
    found, read, asked = calibrate_model(model, batch, settings), average_attention(model, batch), list[Lines]()
    assert found.tried.share.tolist() == [settings.share]
    assert found.bias == bias_from_attention(read, batch.layout, settings)
    sparsest(read, batch.layout, settings, lambda bias: asked.append(bias) or 0.0)  # type: ignore[func-returns-value]
    (under,) = map(as_mask, asked)
    for name, layer in WHERE:
        expected = torch.where(found.bias.covers(batch.layout, name, layer), 0.0, -INFINITY)
        torch.testing.assert_close(under.dense(batch.layout, name, layer, 2), expected)
    assert found.skill == correct_tokens(model.with_bias(under), batch).float().mean()


def test_a_head_of_a_decoder_only_model_keeps_no_line_where_it_hardly_looks() -> None:
    layout = binary_natural(7, "+", 7)
    shares, steps = torch.tensor([0.9, 0.1])[:, None, None], torch.arange(layout.target_length)
    cross = shares * torch.eye(layout.source_length)[layout.operands[0].last - steps]
    own = (1 - shares) * torch.eye(layout.target_length)
    found = bias_from_attention({("cross", 0): cross, ("self", 0): own}, layout, Calibration(share=0.3))
    assert {(line.attention, line.head) for line in found.lines} == {("cross", 0), ("self", 1)}


WEIGHTS = torch.full((2, 8, 9), 1 / 9)
FINE = bias_from_attention({("cross", 0): WEIGHTS}, unary(7))
READ, COVERED = (lambda given: bias_from_attention(given, unary(7))), (lambda given: coverage(given, FINE, unary(7)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: READ(WEIGHTS), "give averaged attention by name and layer, as in"),
        (lambda: READ({("encoder", 0): WEIGHTS}), "unknown attention 'encoder'"),
        (lambda: READ({("cross", 0): WEIGHTS, ("cross", 1): WEIGHTS[:1]}), r"have the same heads, not \[1, 2\]"),
        (lambda: COVERED({("cross", 0): WEIGHTS[:, 1:]}), "the layout has 8 queries"),
        (lambda: COVERED({("cross", 0): WEIGHTS[:1]}), "1 heads and the bias 2"),
        (lambda: FINE.dense(7, "cross", 0), "a bias is made for a Layout and one of self, cross, source"),  # type: ignore[arg-type]
        (lambda: FINE.dense(unary(7), "encoder", 0), "a bias is made for a Layout and one of self, cross, source"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_attention_or_no_place_in_a_bias_is_one_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


@given(st.integers(2, 5), st.integers(0, 100), st.sampled_from([0.1, 0.3]))
def test_coverage_is_the_attention_on_open_keys(width: int, seed: int, share: float) -> None:
    layout = binary_natural(width, "+", width)
    given_averages = averages(layout, seed=seed)
    bias = bias_from_attention(given_averages, layout, Calibration(share=share))
    rows = []
    for name in ("self", "cross"):
        for step in range(layout.target_length):
            masses = []
            for layer, head in product((0, 1), (0, 1)):
                pairs = zip(
                    given_averages[name, layer][head, step], bias.dense(layout, name, layer)[head, step], strict=True
                )
                masses.append(sum(weight.item() for weight, added in pairs if added > -INFINITY))
            rows.append((name, step, sum(masses) / 4, max(masses)))
    expected = pd.DataFrame(rows, columns=["attention", "step", "mean", "highest"])
    pd.testing.assert_frame_equal(coverage(given_averages, bias, layout), expected, rtol=1e-5)
