"""Models whose arithmetic is exact: certificates against Python's own integers, to the last bit."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from certifying import bias_of, lines_of, model_of, sampler_of
from oracle.check import asked, check, margins, of_model
from oracle.geometry import Facts
from oracle.whole import InWhole

from abc_nb import InputError, certify_model
from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import Certificate, weights_of
from abc_nb.certificates.sums import Sums, unit_of
from abc_nb.common.config import to_data
from abc_nb.model.eight_bits import OF_FEW, round_weights
from abc_nb.model.positions import NoPosition, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task

TASKS = ("successor", "addition", "n-by-1", "parity")


def exact(task: str, kind: str = "decoder-only", **changes: object) -> tuple[Transformer, Sampler]:
    """A model without norms and with random weights of few bits, whose heads see one key each."""
    torch.manual_seed(0)
    sampler = sampler_of(task)
    bias = Lines.one_key_per_head(sampler.layout(3), 8, 1)
    settings = {"position": NoPosition(), "bias": bias, "kind": kind, "norm": "none"} | changes
    model = Transformer(ModelConfig(16, 8, 32, decoder_layers=1, **settings), len(sampler.task.vocabulary))
    round_weights(model, OF_FEW)
    return model.eval(), sampler


@pytest.mark.parametrize("kind", ["decoder-only", "encoder-decoder"])
@pytest.mark.parametrize("task", TASKS)
def test_contexts_and_margins_are_those_of_whole_numbers(task: str, kind: str) -> None:
    model, sampler = exact(task, kind)
    found = certify_model(model, sampler)
    checked = check(asdict(found), weights_of(model), to_data(model.config))
    assert checked.agrees and (checked.contexts, checked.wrong) == (found.contexts, found.wrong)
    assert checked.margin == found.margin, "to the last bit"
    assert Fraction(found.margin) % Fraction(found.rounding["unit"]) == 0, "a whole number of units"
    assert found.rounding["units"] < 2**52 and "no number is rounded" in found.statement
