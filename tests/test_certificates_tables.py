"""Certificates of models that write tables, against whole forward passes over random problems."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from abc_nb.bias import Causal
from abc_nb.bias.lines import Line, Lines
from abc_nb.certificates import tables
from abc_nb.certificates.certify import can_be_certified, certify_model, weights_of
from abc_nb.certificates.checking import check as checking
from abc_nb.certificates.checking.forward import Forward
from abc_nb.certificates.checking.tables import steps
from abc_nb.certificates.tables import TableShape
from abc_nb.common.config import to_data
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Batch, Sampler, make_batch
from abc_nb.problems.tasks import Task, Width
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Trainer

HEADS = 5
Kind = Literal["encoder-decoder", "decoder-only"]


# What no cell needs: neighbours of the digits and of the cells that it does need.
UNNEEDED = tuple(
    Line(name, 0, head, direction, span, offset, 0.0)
    for name, head, direction, span, offset in (
        ("cross", 0, "antidiagonal", "operand 1", 1),
        ("cross", 1, "by row", "operand 2", 1),
        ("cross", 2, "by row", "operand 1", 2),
        ("self", 3, "diagonal", "output", -1),
        ("self", 4, "above", "output", 1),
    )
)


def small(task: Task, seed: int = 0, more: tuple[Line, ...] = (), kind: Kind = "encoder-decoder") -> Transformer:
    """ABS with random weights, and more lines if they are given."""
    layout = task.layout((3, 3) if task.operator else 3)
    config = ModelConfig(width=20, heads=HEADS, feed_forward=24, decoder_layers=1, kind=kind)
    torch.manual_seed(seed)
    bias = Lines.one_key_a_head(layout, HEADS, 1)
    bias = replace(bias, lines=(*bias.lines, *more))
    return Transformer(replace(config, position=NoPosition(), bias=bias), len(task.vocabulary)).eval()


def tried(model: Transformer, sampler: Sampler) -> dict[TableShape, dict[tuple[int, ...], tuple[int, torch.Tensor]]]:
    """The right token and the logits of every context that is enumerated, by shape and tokens."""
    states = tables.TableStates(model, tables.RADIX)
    found: dict[TableShape, dict[tuple[int, ...], tuple[int, torch.Tensor]]] = {}
    with evaluating(model):
        for shape in tables.shapes(model, sampler):
            own = found.setdefault(shape, {})
            for block in tables.contexts(shape, sampler.task):
                if len(block.right):
                    rows = zip(block.values.tolist(), block.right.tolist(), states.logits(shape, block), strict=True)
                    own |= {tuple(values): (right, logits) for values, right, logits in rows}
    return found


def token_at(batch: Batch, shape: TableShape, atom: tuple[str, int, int], row: int, column: int) -> int:
    """The token of the batch's first problem at an atom, read off the problem and its table."""
    kind, x, y = atom
    columns = batch.layout.row
    assert columns is not None
    if kind == "parity":
        return (row + column) % 2
    if kind == "cell":
        return int(batch.target[0, 1 + (row + x) * columns + column + y])
    operand = batch.layout.operands[x - 1]
    return int(batch.source[0, operand.columns[(column if kind == "by column" else row) - y]])


@pytest.mark.parametrize(
    ("task", "widths", "more"),
    [
        (Task("n-by-n", 2), [(1, 1), (1, 4), (5, 1), (2, 2), (3, 6), (7, 5)], ()),
        (Task("n-by-n", 2), [(1, 1), (1, 4), (5, 1), (2, 2), (3, 9), (7, 5), (5, 14), (16, 15)], UNNEEDED),
        (Task("n-by-n", 3), [(1, 2), (4, 4)], ()),
        (Task("n-by-n", 3), [(4, 5), (2, 9)], UNNEEDED[:3]),
        (Task("sorting", 2), [1, 2, 3, 6], ()),
    ],
)
def test_every_context_of_random_problems_is_tried_with_the_same_logits(
    task: Task, widths: list[Width], more: tuple[Line, ...]
) -> None:
    model, sampler, rng = small(task, more=more), Sampler(task), np.random.default_rng(0)
    known = tried(model, sampler)
    for width in widths:
        operands = task.draw(np.empty(0, np.int64), 1, width, rng)
        batch, steps = make_batch(task, operands, width, "natural"), tables.Steps(model, sampler, width)
        with evaluating(model):
            logits = model(batch.source, batch.target[:, :-1], batch.layout)[0]
        for step in range(batch.layout.target_length):
            shape = steps.shape(step)
            row, column = divmod(step, steps.columns)
            values = tuple(token_at(batch, shape, atom, row, column) for atom in shape.names)
            right, own = known[shape][values]
            assert right == int(batch.target[0, step + 1])
            assert_close(own, logits[step], atol=1e-4, rtol=1e-4)


def test_a_trained_model_is_certified_and_perturbed_weights_lose_the_certificate() -> None:
    task = Task("n-by-n", 2)
    model, sampler = small(task), Sampler(task, width_count=3)
    config = TrainingConfig(steps=400, batch=32, held_batch=32, hold=200, learned=2.0, validation=64, again=0)
    Trainer(model, sampler, config, 0).run()
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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"decoder_layers": 2}, "of several layers"),
        ({"position": Sinusoidal(3)}, "with positions, or without lines"),
        ({"bias": Causal()}, "with positions, or without lines"),
    ],
)
def test_models_without_such_a_certificate_are_refused(change: dict[str, object], sentence: str) -> None:
    task = Task("n-by-n", 2)
    model = Transformer(replace(small(task).config, **change), len(task.vocabulary))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=sentence):
        certify_model(model, Sampler(task))
    assert not can_be_certified(model, Sampler(task)) and can_be_certified(small(task), Sampler(task))


@pytest.mark.parametrize(
    ("base", "kind", "more"),
    [(2, "encoder-decoder", UNNEEDED), (2, "decoder-only", UNNEEDED), (3, "decoder-only", UNNEEDED[:2])],
)
def test_the_independent_check_agrees_context_by_context(base: int, kind: Kind, more: tuple[Line, ...]) -> None:
    sampler = Sampler(Task("n-by-n", base))
    model = small(sampler.task, more=more, kind=kind)
    data, bias = asdict(certify_model(model, sampler)), to_data(model.config.bias)
    facts, _ = checking.read(data)
    forward = Forward(weights_of(model), facts)
    for (step, tree), (shape, known) in zip(steps(facts, bias), tried(model, sampler).items(), strict=True):
        for values, right in step.contexts(tree):
            contexts = zip(*(values[atom].tolist() for atom in shape.names), strict=True)
            own = [known.pop(context) for context in contexts]
            assert sorted(values) == [*shape.names] and right.tolist() == [each for each, _ in own]
            logits = torch.from_numpy(forward.logits(tree, values, len(right))).float()
            assert_close(logits, torch.stack([logits for _, logits in own]), atol=1e-4, rtol=1e-4)
        assert not known
    checked = checking.check(data, weights_of(model), bias)
    assert checked.agrees and checked.wrong == data["wrong"] > 0
    assert not checking.check(data | {"contexts": data["contexts"] - 1}, weights_of(model), bias).agrees
    with pytest.raises(InputError, match="another bias"):
        checking.check(data, weights_of(model), bias | {"lines": bias["lines"][1:]})


def test_the_independent_check_knows_no_other_table() -> None:
    sampler = Sampler(Task("n-by-n", 2))
    data = asdict(certify_model(small(sampler.task), sampler))
    with pytest.raises(InputError, match="knows no task 'sorting'"):
        checking.read(data | {"facts": data["facts"] | {"task": "sorting"}})
