"""Certificates of models that write tables, against whole forward passes over random problems."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from certifying import UNNEEDED, logits_of, rows, table_model
from torch.testing import assert_close

from abc_nb.bias import Causal
from abc_nb.bias.lines import Line
from abc_nb.certificates.certify import certify_model
from abc_nb.certificates.tables import TableContexts
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task, Width
from abc_nb.training.evaluation import evaluating
from abc_nb.training.problems import train
from abc_nb.training.recipe import TrainingConfig

NO_POOL = np.empty(0, np.int64)


@pytest.mark.parametrize(
    ("task", "widths", "more"),
    [
        (Task("n-by-n", 2), [(1, 1), (1, 4), (5, 1), (2, 2), (3, 6), (7, 5)], ()),
        (Task("n-by-n", 2), [(1, 1), (1, 4), (5, 1), (2, 2), (3, 9), (7, 5), (5, 14), (16, 15)], UNNEEDED),
        (Task("n-by-n", 3), [(1, 2), (4, 4)], ()),
        (Task("n-by-n", 3), [(4, 5), (2, 9)], UNNEEDED[:3]),
        (Task("n-by-n", 2), [(3, 6), (7, 5)], (Line("cross", 0, 2, "antidiagonal", "operand 2", 1, 0.0),)),
    ],
)
def test_every_context_of_random_problems_is_tried_with_the_same_logits(
    task: Task, widths: list[Width], more: tuple[Line, ...]
) -> None:
    model, sampler, rng = table_model(task, more=more), Sampler(task), np.random.default_rng(0)
    contexts = TableContexts(model.config, sampler)
    every = {shape: {row for block in contexts.blocks(shape) for row in rows(block)} for shape in contexts.shapes}
    for width in widths:
        batch = sampler.batch(sampler.draw(NO_POOL, 3, width, rng), width)
        with evaluating(model):
            logits = model(batch.source, batch.target[:, :-1], batch.layout)
        for step in range(batch.layout.target_length):
            shape, block = contexts.seen(batch, step)
            digits = [atom for atom in shape.atoms if atom[0].startswith("by")]
            assert len({contexts.steps(width).digit(atom, step) for atom in digits}) == len(digits)  # one name each
            assert {*rows(block)} <= every[shape]
            assert_close(logits_of(model, contexts, shape, block), logits[:, step], atol=1e-4, rtol=1e-4)


def test_a_trained_model_is_certified_and_perturbed_weights_lose_the_certificate() -> None:
    task = Task("n-by-n", 2)
    model, sampler = table_model(task), Sampler(task, width_count=3)
    config = TrainingConfig(steps=400, batch=32, held_batch=32, hold=200, learned=2.0, validation=64, again=0)
    train(model, sampler, config, 0)
    found = certify_model(model, sampler)
    assert found.certified and found.wrong == 0 < found.margin and not found.counterexamples
    batch = sampler.test_batch((30, 25), 2, 1)
    with evaluating(model):
        assert torch.equal(model(batch.source, batch.target[:, :-1], batch.layout).argmax(-1), batch.target[:, 1:])
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * weights.std(correction=0))
    lost = certify_model(model, sampler)
    assert not lost.certified and lost.wrong > 0 and lost.counterexamples


@pytest.mark.parametrize("change", [{"decoder_layers": 2}, {"position": Sinusoidal(3)}, {"bias": Causal()}])
def test_models_without_such_a_certificate_are_refused(change: dict[str, object]) -> None:
    task = Task("n-by-n", 2)
    model = Transformer(replace(table_model(task).config, **change), len(task.vocabulary))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="with positions, without lines or of several layers"):
        certify_model(model, Sampler(task))


@pytest.mark.parametrize(
    "line",
    [
        Line("cross", 0, 2, "vertical", "operand 1", 0, 0.0),
        Line("cross", 0, 2, "diagonal", "operand 1", -1, 0.0),
        Line("cross", 0, 2, "vertical", "whole", 1, 0.0),
        Line("self", 0, 2, "vertical", "output", 1, 0.0),
    ],
)
def test_lines_that_do_not_follow_the_cells_are_refused(line: Line) -> None:
    """Else two different digits would have one name, and contexts in which they differ would not be tried."""
    task = Task("n-by-n", 2)
    contexts = TableContexts(table_model(task, more=(line,)).config, Sampler(task))
    with pytest.raises(InputError, match="does not follow the cells"):
        contexts.shapes  # noqa: B018
