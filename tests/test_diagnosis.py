"""Diagnosis: averages and coverage against loops, the rule that chooses a threshold, and what it says."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor

from abc_nb import diagnosis
from abc_nb.biases import Attention, Causal, Window, key_count
from abc_nb.calibration import PAPER, Calibration, calibrate
from abc_nb.diagnosis import SHARES, average_attention, calibrate_model, coverage, diagnose, read_lines
from abc_nb.evaluation import correct_digits, greedy
from abc_nb.layouts import Layout, binary_natural, unary
from abc_nb.lines import Line, Lines
from abc_nb.model import ModelConfig, Transformer
from abc_nb.multihead import Record
from abc_nb.positions import Sinusoidal
from abc_nb.sampling import Batch, Sampler
from abc_nb.tasks import SOS, Task

TASK = Task("addition")
TINY = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, position=Sinusoidal(3))
INFINITY = float("inf")
WHERE: list[tuple[Attention, int]] = [("self", 0), ("cross", 0), ("self", 1), ("cross", 1)]


def build(config: ModelConfig = TINY) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config, len(TASK.vocabulary))


def problems(size: int = 6) -> Batch:
    return Sampler(TASK).calibration_batch(0, size)


def answered(model: Transformer, size: int = 6) -> Batch:
    """Problems whose right answer is whatever the model says."""
    batch = problems(size)
    said = greedy(model.eval(), batch.source, batch.layout, TASK.token(SOS))
    return Batch(batch.source, torch.cat([batch.target[:, :1], said], dim=1), batch.layout)


# ---- averages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [TINY, replace(TINY, bias=Window(1)), replace(TINY, dropout=0.5)])
def test_average_attention_is_the_mean_over_samples_looked_at_one_by_one(config: ModelConfig) -> None:
    model, batch = build(config), problems()
    found = average_attention(model.train(), batch)
    assert set(found) == set(WHERE)
    for name, layer in WHERE:
        total = torch.zeros_like(found[name, layer])
        for sample in range(6):
            record, one = Record(), slice(sample, sample + 1)
            model.eval()(batch.source[one], batch.target[one, :-1], batch.layout, record=record)
            total += record.weights[name, layer][0].detach()
        torch.testing.assert_close(found[name, layer], total / 6)
        assert found[name, layer].shape == (2, batch.layout.target_length, key_count(batch.layout, name))


def test_average_logits_are_finite_with_the_lowest_one_where_the_mask_closes() -> None:
    model, batch = build(), problems()
    found = average_attention(model, batch, "logits")
    record = Record()
    model(batch.source, batch.target[:, :-1], batch.layout, record=record)
    for where, logits in found.items():
        expected = record.logits[where].detach().double().mean(0).float()
        seen = expected > -INFINITY
        torch.testing.assert_close(logits[seen], expected[seen])
        assert (logits[~seen] == logits[seen].min()).all()
    assert not (found["self", 0] == found["self", 0].max()).triu(1).any()


def averages(layout: Layout, heads: int = 2, seed: int = 0) -> dict[tuple[Attention, int], Tensor]:
    """Random attention of two layers."""
    rng = torch.Generator().manual_seed(seed)
    shapes = {(name, layer): (heads, layout.target_length, key_count(layout, name)) for name, layer in WHERE}
    logits = {where: 3 * torch.randn(shape, generator=rng) for where, shape in shapes.items()}
    future = torch.ones(layout.target_length, layout.target_length).triu(1).bool()
    for where in (("self", 0), ("self", 1)):
        logits[where] = logits[where].masked_fill(future, -INFINITY)
    return {where: each.softmax(-1) for where, each in logits.items()}


# ---- lines for every layer --------------------------------------------------------------------------


def test_each_layer_is_read_on_its_own() -> None:
    layout = binary_natural(6, "+", 6)
    given_averages, settings = averages(layout), Calibration(share=0.1)
    found = read_lines(given_averages, layout, settings)
    for name, layer in WHERE:
        own = [line for line in found if (line.attention, line.layer) == (name, layer)]
        assert own == calibrate(given_averages[name, layer], layout, name, settings, layer)


@pytest.mark.parametrize("settings", [Calibration(share=0.1, layers="last"), replace(PAPER, kappa=(0.5, 0.5))])
def test_the_last_layers_lines_are_copied_to_all(settings: Calibration) -> None:
    layout = binary_natural(6, "+", 6)
    given_averages = averages(layout)
    found = read_lines(given_averages, layout, settings)
    for name in ("self", "cross"):
        first, last = ([line for line in found if (line.attention, line.layer) == (name, layer)] for layer in (0, 1))
        assert last == calibrate(given_averages[name, 1], layout, name, settings, 1)
        assert first == [replace(line, layer=0) for line in last]
        assert last != calibrate(given_averages[name, 0], layout, name, settings, 1), "the layers are not the same"


# ---- another bias -----------------------------------------------------------------------------------

SHUT = Lines(heads=2, lines=(), empty="closed")


def test_under_changes_the_bias_and_nothing_else() -> None:
    model, batch = build(), problems()
    changed = diagnosis.under(model, SHUT)
    assert changed.config == replace(model.config, bias=SHUT)
    assert model.config.bias == Causal()
    torch.testing.assert_close(changed.state_dict(), model.state_dict(), rtol=0, atol=0)
    inputs = batch.source, batch.target[:, :-1], batch.layout
    assert not torch.isclose(changed(*inputs), model(*inputs)).all()
    torch.testing.assert_close(diagnosis.under(changed, Causal())(*inputs), model(*inputs))
    assert not changed.training


def test_under_has_weights_of_its_own() -> None:
    model = build()
    changed = diagnosis.under(model, SHUT)
    with torch.no_grad():
        changed.head.weight.zero_()
    assert model.head.weight.any()


def test_skill_is_the_share_of_right_tokens() -> None:
    model = build()
    batch = answered(model)
    assert diagnosis.skill(model, batch) == 1.0
    batch.target[0, 1:4] = (batch.target[0, 1:4] + 1) % len(TASK.vocabulary)
    right = correct_digits(model, batch)
    assert diagnosis.skill(model, batch) == pytest.approx(int(right.sum()) / right.numel())
    assert diagnosis.skill(model, batch) < 1.0


# ---- the threshold ----------------------------------------------------------------------------------


@examples(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=len(SHARES), max_size=len(SHARES)), st.sampled_from([0.5, 2 / 3, 0.9]))
def test_the_sparsest_share_under_which_enough_survives_is_taken(skills: list[float], keep: float) -> None:
    model, batch, asked = build(), problems(2), iter(skills)
    asked_for = Calibration(keep=keep)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(diagnosis, "skill", lambda model, batch: next(asked))
        found = calibrate_model(model, batch, asked_for)
    enough = [i for i, value in enumerate(skills) if value >= keep]
    chosen = enough[0] if enough else len(SHARES) - 1
    assert found.share == SHARES[chosen]
    assert found.tried.skill.tolist() == skills[: chosen + 1]
    assert found.tried.share.tolist() == [*SHARES[: chosen + 1]]
    assert len([*asked]) == len(SHARES) - chosen - 1, "no share after the chosen one is tried"
    own = read_lines(average_attention(model, batch), batch.layout, replace(asked_for, share=SHARES[chosen]))
    assert found.bias == Lines(2, tuple(own), None, "closed")
    assert found.tried.lines.iloc[-1] == len(own)


def test_shares_are_tried_from_the_sparsest_bias_on() -> None:
    assert [*SHARES] == sorted(SHARES, reverse=True)


@pytest.mark.parametrize(
    ("settings", "share"), [(Calibration(share=0.3), 0.3), (replace(PAPER, kappa=(0.5, 0.5)), None)]
)
def test_a_given_threshold_is_taken_whatever_survives(
    settings: Calibration, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "skill", lambda model, batch: 0.0)
    model, batch = build(), problems()
    found = calibrate_model(model, batch, settings)
    assert found.share == share
    assert len(found.tried) == 1
    lines = read_lines(average_attention(model, batch), batch.layout, settings)
    assert found.bias == Lines(2, tuple(lines), settings.floor, settings.empty)


def test_skill_is_asked_with_every_key_off_the_lines_closed_and_no_other_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Transformer] = []

    def remember(model: Transformer, batch: Batch) -> float:
        asked.append(model)
        return 1.0

    monkeypatch.setattr(diagnosis, "skill", remember)
    model, batch = build(), problems()
    bias = calibrate_model(model, batch, Calibration(share=0.05)).bias
    (under,) = asked
    torch.testing.assert_close(under.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert min(line.value for line in bias.lines) < 0
    for name, layer in WHERE:
        opened = bias.dense(batch.layout, name, layer, 2) > -INFINITY
        expected = torch.where(opened, 0.0, -INFINITY)
        torch.testing.assert_close(under.config.bias.dense(batch.layout, name, layer, 2), expected)


def test_a_model_that_follows_lines_keeps_its_answers_under_them() -> None:
    """A window's attention lies on three antidiagonals and two diagonals: nothing is lost with all of them."""
    layout = unary(7)
    torch.manual_seed(0)
    model = Transformer(replace(TINY, bias=Window(1)), len(Task("successor").vocabulary))
    batch = Sampler(Task("successor")).calibration_batch(0, 20)
    assert batch.layout == layout
    found = calibrate_model(model, batch, Calibration(keep=1.1))
    offsets = {(line.direction, line.offset) for line in found.bias.lines if line.span in ("operand 1", "output")}
    assert offsets == {*(("antidiagonal", i) for i in (-1, 0, 1)), *(("diagonal", i) for i in (-1, 0))}
    free = diagnosis.under(model, replace(found.bias, lines=tuple(replace(x, value=0.0) for x in found.bias.lines)))
    inputs = batch.source, batch.target[:, :-1], layout
    torch.testing.assert_close(free(*inputs), model.eval()(*inputs), rtol=1e-4, atol=1e-5)


# ---- coverage ---------------------------------------------------------------------------------------


@given(st.integers(2, 5), st.integers(0, 100), st.sampled_from([0.1, 0.3]))
def test_coverage_is_the_attention_on_open_keys(width: int, seed: int, share: float) -> None:
    layout = binary_natural(width, "+", width)
    given_averages = averages(layout, seed=seed)
    bias = Lines(2, tuple(read_lines(given_averages, layout, Calibration(share=share))), empty="closed")
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


# ---- what it says -----------------------------------------------------------------------------------


OPEN = Lines(2, (), empty="transparent")


def test_an_untrained_model_is_named_as_such() -> None:
    batch = problems(20)
    assert diagnose(build(), batch, OPEN, 1.0) == [
        "the model answers 0.0% of problems of training length: train it to 99%"
    ]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_problem_in_a_hundred_may_be_answered_wrong(wrong: int) -> None:
    model = build()
    batch = answered(model, size=100)
    batch.target[:wrong, 3] = (batch.target[:wrong, 3] + 1) % len(TASK.vocabulary)
    said = diagnose(model, batch, OPEN, 1.0)
    assert len(said) == (wrong == 2)
    assert all("the model answers 98.0% of problems" in sentence for sentence in said)


def test_digits_that_are_lost_under_the_lines_are_named() -> None:
    model = build()
    batch = answered(model)
    (sentence,) = diagnose(model, batch, OPEN, 0.6)
    assert sentence.startswith("under its own lines alone the model gets 60.0% of digits right, less than 66.7%")
    assert diagnose(model, batch, OPEN, 0.67) == []
    assert len(diagnose(model, batch, OPEN, 0.67, Calibration(keep=0.7))) == 1


def test_output_tokens_that_see_nothing_the_model_looks_at_are_named() -> None:
    """The line two places ahead ends two steps before the output does."""
    model = build()
    batch = answered(model)
    cross = [Line("cross", layer, head, "antidiagonal", "operand 1", -2, 0.0) for layer in (0, 1) for head in (0, 1)]
    own = [Line("self", layer, head, "diagonal", "output", 0, 0.0) for layer in (0, 1) for head in (0, 1)]
    width = batch.layout.width
    expected = f"no key that the model looks at is open in cross-attention at output token {width}, {width + 1}"
    assert diagnose(model, batch, Lines(2, (*cross, *own), empty="closed"), 1.0) == [expected]
    end = Line("cross", 1, 1, "vertical", "&", 0, 0.0)
    assert diagnose(model, batch, Lines(2, (*cross, *own, end), empty="closed"), 1.0) == []


def test_nothing_is_said_where_everything_holds() -> None:
    model = build(replace(TINY, bias=Window(1)))
    batch = answered(model, size=30)
    found = calibrate_model(model, batch)
    assert found.tried.skill.iloc[-1] >= 2 / 3
    assert diagnose(model, batch, found.bias, found.tried.skill.iloc[-1]) == []
