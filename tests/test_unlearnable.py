"""What a model must get wrong under its lines: against the logits of models with any weights, and counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import build

from abc_nb.bias.base import Bias, Causal
from abc_nb.bias.lines import Line, Lines
from abc_nb.model.layers import ModelConfig
from abc_nb.model.positions import NoPosition
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from audit import unlearnable
from audit.results import Results

SIZE = ModelConfig(width=8, heads=2, feed_forward=16, position=NoPosition())
UNITS = Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.0)
LAST = Line("self", 1, 1, "diagonal", "output", 0, -0.5)
HALVES = replace(LAST, value=0.5, layer=0), replace(LAST, offset=-1, layer=0)
CASES: list[tuple[str, Bias, int]] = [
    ("addition", Causal(), 0),
    ("addition", Lines(2, (UNITS, LAST)), 0),
    ("addition", Lines(2, (replace(UNITS, offset=1), *HALVES)), 1),
    ("n-by-1", Lines(2, (UNITS, replace(UNITS, layer=1, head=1, direction="vertical", span="*"))), 0),
]


@pytest.mark.parametrize(("task", "bias", "encoder"), CASES)
def test_a_step_sees_the_same_in_two_problems_exactly_if_any_weights_give_the_same_logits(
    task: str, bias: Bias, encoder: int
) -> None:
    sampler = Sampler(Task(task))
    batch = unlearnable.smallest_problems(sampler, 150)
    config = replace(SIZE, bias=bias, encoder_layers=encoder)
    seen = unlearnable.fingerprints(config, bias, batch)
    model = build(config, sampler).double().eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 2
        logits = model(batch.source, batch.target[:, :-1], batch.layout).numpy()
    for step in range(seen.shape[1]):
        apart = np.abs(logits[:, None, step] - logits[None, :, step]).max(-1)
        same = seen[:, None, step] == seen[None, :, step]
        assert apart[same].max() < 1e-12 and (same.all() or apart[~same].min() > 1e-7)


def test_of_problems_that_look_the_same_the_most_frequent_token_can_be_right() -> None:
    seen = np.array([[1, 1], [1, 2], [1, 3], [2, 4]], np.uint64)
    assert unlearnable.must_be_wrong(seen, np.array([[5, 5], [5, 6], [6, 5], [6, 6]])) == 0.25
    assert unlearnable.must_be_wrong(seen, np.array([[5, 5], [5, 5], [5, 5], [6, 5]])) == 0.0


def test_without_lines_sums_are_bags_of_digits_and_abcs_lines_tell_them_apart() -> None:
    results = Results("quick", "shipped", [0])
    assert unlearnable.of_run(results.first_run("addition-algorithm-1-none-new")) > 0.4
    assert unlearnable.of_run(results.first_run("addition-abc-unpractised")) == 0
    assert np.isnan(unlearnable.of_run(results.first_run("addition-algorithm-1-plain-new")))
