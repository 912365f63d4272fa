"""Models whose arithmetic is exact: certificates against Python's own integers, to the last bit."""

from copy import deepcopy
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from certifying import bias_of, logits_of, model_of, problems, sampler_of
from oracle.check import Check, check
from torch import nn

from abc_nb import certify_model
from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import Certificate, contexts_of, weights_of
from abc_nb.certificates.exact_sums import COUNTED, Sums, exact_sums, unit_of
from abc_nb.certificates.practice import practise, rounded
from abc_nb.common.config import to_data
from abc_nb.model.eight_bits import LARGEST_OF_5_BITS, round_weights
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.training.recipe import TrainingConfig

TASKS = ("successor", "addition", "n-by-1", "parity")


def exact(task: str, **size: Any) -> tuple[Transformer, Sampler]:
    """A model without norms and with random weights of few bits, whose heads see one key each."""
    sampler = sampler_of(task)
    bias = Lines.one_key_of_problem(sampler.layout(3), 8, size.get("decoder_layers", 1))
    model = model_of(sampler, bias, **{"norm": "none", "heads": 8, "decoder_layers": 1} | size)
    round_weights(model, LARGEST_OF_5_BITS)
    return model, sampler


def checked(found: Certificate, model: Transformer) -> Check:
    return check(asdict(found), weights_of(model), to_data(model.config))


@pytest.mark.parametrize("kind", ["decoder-only", "encoder-decoder"])
@pytest.mark.parametrize("task", TASKS)
def test_contexts_and_margins_are_those_of_whole_numbers(task: str, kind: str) -> None:
    """Weights are random, so that contexts are wrong: as many are found, and a problem that shows one.

    A whole problem gives the same bits: the model's own pass sums in another order, over padded heads and closed keys.
    """
    model, sampler = exact(task, kind=kind)
    certificate = certify_model(model, sampler)
    again = checked(certificate, model)
    assert again.agrees and again.margin == certificate.margin
    assert Fraction(certificate.margin) % Fraction(certificate.rounding["unit"]) == 0, "a whole number of units"
    assert certificate.rounding["units"] < COUNTED
    assert "no number that an answer depends on is rounded" in certificate.statement
    assert certificate.wrong > 0 and certificate.counterexamples and not certificate.certified
    double, contexts, batch = deepcopy(model).double(), contexts_of(model, sampler), problems(sampler, 9, 20)
    with torch.inference_mode():
        logits = double(batch.source, batch.target[:, :-1], batch.layout)
    for step in range(logits.shape[1]):
        assert torch.equal(logits_of(double, contexts, *contexts.contexts_at(batch, step)), logits[:, step])


@pytest.mark.parametrize("task", ["addition", "parity"])
def test_a_weight_of_many_bits_leaves_the_bound_on_rounding(task: str) -> None:
    """Whole numbers are still computed by the oracle, since they are Python's."""
    model, sampler = exact(task)
    with torch.no_grad():
        model.embedding.weight[0, 0] += 2.0**-20
    certificate = certify_model(model, sampler)
    again, rounding = checked(certificate, model), certificate.rounding
    assert rounding["bound"] > 0 and "units" not in rounding and "rounded" not in certificate.statement
    assert (again.contexts, again.wrong) == (certificate.contexts, certificate.wrong)
    assert abs(again.margin - certificate.margin) <= rounding["bound"]


def test_several_keys_positions_and_norms_are_not_exact() -> None:
    model, sampler = exact("successor")
    assert exact_sums(model, contexts_of(model, sampler)) is not None
    for other in (
        exact("successor", norm="pre")[0],
        exact("successor", position=Sinusoidal(3))[0],
        model_of(sampler, bias_of("successor", "decoder-only"), norm="none", decoder_layers=1),
    ):
        round_weights(other, LARGEST_OF_5_BITS)
        assert exact_sums(other, contexts_of(other, sampler)) is None
        found = certify_model(other, sampler)
        assert found.rounding["bound"] > 0 and "rounded" not in found.statement


def test_practice_takes_its_gradients_at_rounded_weights() -> None:
    """And leaves the weights as they were: what an optimiser changes is not rounded."""
    model, _ = exact("successor")
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn(weights.shape) / 50)
    before, at = deepcopy(model), deepcopy(model)
    round_weights(at, LARGEST_OF_5_BITS)

    with rounded(model, LARGEST_OF_5_BITS):
        (torch.stack([weights.square().sum() for weights in model.parameters()]).sum() / 2).backward()
    for weights, old, few in zip(*(each.parameters() for each in (model, before, at)), strict=True):
        assert weights.equal(old) and not weights.equal(few) and weights.grad is not None and weights.grad.equal(few)


@pytest.mark.slow
def test_practice_ends_with_a_model_that_is_exact() -> None:
    """From random weights: rounds of a few steps, each on what is wrong in whole numbers of 5 bits."""
    model, sampler = exact("successor", width=64)
    recipe = TrainingConfig(steps=60, warmup=10, validate_every=60, validation=64)
    practised = practise(model, sampler, recipe, 0, 6)
    (found,) = practised.certificates
    assert practised.wrong[0] > 0 and found.certified and found.rounding["units"] < COUNTED
    assert checked(found, model).margin == found.margin > 0


def test_units_and_sums_by_hand() -> None:
    assert unit_of(np.array([0.75, -6.0, 1.0, 0.0])).tolist() == [0.25, 2.0, 1.0, np.inf]
    linear, half = nn.Linear(2, 1), COUNTED / 2
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[3.0, -0.5]]))
        linear.bias.fill_(4.0)
    sums = Sums(exact("successor")[0])
    sums.units = 0.0
    most, unit = sums.mapped(linear, (np.array([2.0, 8.0]), np.array([1.0, 4.0])))
    assert (most.tolist(), unit.tolist(), sums.units) == ([14.0], [1.0], 14.0)
    most, unit = sums.added((most, unit), (np.array([0.25]), np.array([0.125])))
    assert (most.tolist(), unit.tolist(), sums.units) == ([14.25], [0.125], 114.0)
    sums.added((np.array([half]), np.array([1.0])), (np.array([half - 1]), np.array([1.0])))
    assert sums.units == COUNTED - 1, "the last number that float64 holds with all below it"
