"""Training a model of transformers, plain and under a bias: its own lines carry it from six digits to sixty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_hf import llama
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook

import abc_nb
from abc_nb import Sampler, Task

pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")

SAMPLER = Sampler(Task("successor"))


def model_of() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8}
    return llama(**sizes, vocab_size=len(SAMPLER.task.vocabulary))


@pytest.mark.parametrize("steps", [5, pytest.param(300, marks=pytest.mark.long)])
def test_a_llamas_own_lines_carry_it_from_six_digits_to_sixty(steps: int) -> None:
    """In a few steps it learns nothing, and all runs all the same."""
    model = model_of()
    hf.train(model, SAMPLER, steps)
    assert (hf.exact_match(model, SAMPLER.test_batch(6, 100, 0)) > 0.9) == (steps == 300)
    assert hf.exact_match(model, SAMPLER.test_batch(20, 100, 0)) < 0.05
    seen, long = SAMPLER.calibration_batch(0, 500), SAMPLER.test_batch(60, 100, 0)
    calibrated = hf.calibrate_model(model, seen)
    torch.manual_seed(100)
    model = type(model)(model.config)
    prompts = torch.cat([long.source, long.target[:, :1]], dim=1)
    with hf.attach(model, calibrated.bias, seen.layout, period=1) as attached:
        hf.train(model, SAMPLER, steps, attached)
        attached.layout = long.layout
        answers = model.generate(prompts, max_new_tokens=long.target.shape[1] - 1, do_sample=False)
    answers = answers[:, prompts.shape[1] :]
    assert answers.shape == long.target[:, 1:].shape
    assert ((answers == long.target[:, 1:]).all(1).float().mean() > 0.98) == (steps == 300)
    assert model.config._attn_implementation == "sdpa"


def test_training_goes_on_where_the_loss_is_that_of_the_answer_alone() -> None:
    """A step changes what is predicted of the answer; how the problem itself is predicted has no part in the loss."""
    model, batch = model_of(), SAMPLER.training_batch(0, 0, 64)
    before = model(hf.sequence(batch)).logits[:, batch.layout.source_length :]
    cross_entropy(before.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
    wanted, seen = [each.grad.clone() for each in model.parameters()], []

    def keep(*_: object) -> None:
        seen.extend(each.grad.clone() for each in model.parameters())

    handle = register_optimizer_step_pre_hook(keep)
    hf.train(model, SAMPLER, 1)
    handle.remove()
    for ours, theirs in zip(seen, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_a_model_is_tested_without_its_dropout() -> None:
    model, batch = model_of(), SAMPLER.test_batch(3, 20, 0)
    wanted = hf.exact_match(model.eval(), batch), hf.calibrate_model(model, batch, abc_nb.Calibration(share=0.1)).skill
    model.train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    found = hf.exact_match(model, batch), hf.calibrate_model(model, batch, abc_nb.Calibration(share=0.1)).skill
    assert found == wanted and model.training


@torch.no_grad()
def test_lines_are_those_of_the_averages_and_the_sparsest_that_keep_enough() -> None:
    model, batch = model_of().eval(), SAMPLER.calibration_batch(0, 80)
    averages = hf.averaged_attention(model, hf.sequence(batch), batch.layout)
    one = hf.calibrate_model(model, batch, abc_nb.Calibration(share=0.1))
    assert one.bias == abc_nb.bias_from_attention(averages, batch.layout, abc_nb.Calibration(share=0.1))
    every = hf.calibrate_model(model, batch, abc_nb.Calibration(keep=1.0))
    assert every.tried.lines.is_monotonic_increasing and every.tried.share.is_monotonic_decreasing
    opened = tuple(replace(line, value=0.0) for line in one.bias.lines)
    with hf.attach(model, replace(one.bias, lines=opened, empty="closed"), batch.layout):
        guesses = model(hf.sequence(batch), use_cache=False).logits[:, batch.layout.source_length :].argmax(-1)
    assert one.skill == pytest.approx((guesses == batch.target[:, 1:]).float().mean().item())
