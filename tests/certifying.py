"""What tests of certificates share: small models under a window or lines, and their problems."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from abc_nb.bias import Bias, Window
from abc_nb.bias.lines import OUTPUT, PROBLEM, Line, Lines
from abc_nb.certificates.contexts import Block, Contexts, Shape
from abc_nb.certificates.rounding import Rounding
from abc_nb.certificates.states import States
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import evaluating
from audit.models import by_head

TASKS = ("successor", "addition", "n-by-1", "parity", "listops-max")
BASES = {"parity": 2, "n-by-2": 2, "subtraction": 2, "cycle-navigation": 5}
POSITIONS = (Sinusoidal(3), NoPosition())
BIASES = ("window", "lines", "decoder-only")
CASES = [  # of every task and bias one position; the other one is long
    pytest.param(task, kind, position, marks=[] if (i + j + k) % 2 == 0 else [pytest.mark.long])
    for i, task in enumerate(TASKS)
    for j, kind in enumerate(BIASES)
    for k, position in enumerate(POSITIONS)
] + [pytest.param("n-by-2", "lines", NoPosition())]
# Lines of a table that no cell needs: neighbours of the digits and of the cells that it does need.
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


def sampler_of(task: str, aligned: bool = False) -> Sampler:
    """Base 3 keeps contexts few."""
    return Sampler(Task(task, BASES.get(task, 3)), "aligned" if aligned else "natural")


def lines_of(task: str) -> Lines:
    """Lines of every kind that extends: this place and the one below, symbols, the start seen from afar.

    For a factor of two digits, which has many more contexts, those of ABS.
    """
    if task == "n-by-2":
        return by_head(sampler_of(task).layout(1), 2, 2)
    operand = Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.5)
    lines = [replace(operand, layer=layer) for layer in (0, 1)]
    lines += [replace(operand, head=1, offset=1), Line("cross", 1, 1, "vertical", "&", 0, 0.25)]
    if task in ("addition", "subtraction"):
        lines += [replace(operand, span="operand 2", layer=layer, head=1, value=-0.5) for layer in (0, 1)]
    if task == "n-by-1":
        lines += [Line("cross", layer, 1, "vertical", "operand 2", 0, 0.0) for layer in (0, 1)]
    for layer in (0, 1):
        lines += [Line("self", layer, 0, "diagonal", OUTPUT, 0, 0.0), Line("self", layer, 1, "vertical", "$", 0, 0.5)]
    return Lines(2, (*lines, Line("self", 0, 1, "diagonal", OUTPUT, -1, 0.0)), empty="closed")


def bias_of(task: str, kind: str) -> Bias:
    if kind == "window":
        return Window(1)
    if kind == "cross":
        return replace(lines_of(task), lines=tuple(line for line in lines_of(task).lines if line.attention == "cross"))
    itself = Line("source", 0, 0, "diagonal", PROBLEM, 0, 0.25)
    start = Line("source", 0, 1, "vertical", "$", 0, 0.5)
    of_problem = (itself, replace(itself, offset=-1), replace(itself, head=1), start) if kind == "decoder-only" else ()
    return replace(lines_of(task), lines=(*lines_of(task).lines, *of_problem))


def model_of(
    sampler: Sampler, bias: Bias, position: PositionEncoding = POSITIONS[1], seed: int = 0, **size: Any
) -> Transformer:
    """Random weights, larger than usual, so that every token matters; decoder-only if the bias has source lines."""
    torch.manual_seed(seed)
    alone = isinstance(bias, Lines) and any(line.attention == "source" for line in bias.lines)
    kind = "decoder-only" if alone else "encoder-decoder"
    config = ModelConfig(width=16, heads=2, feed_forward=32, position=position, bias=bias, kind=kind)
    model = Transformer(replace(config, **size), len(sampler.task.vocabulary))
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(1.5)
    return model.eval()


def table_model(task: Task, more: tuple[Line, ...] = ()) -> Transformer:
    """ABS of products with random weights, and more lines if they are given."""
    torch.manual_seed(0)
    bias = Lines.one_key_per_head(task.layout((3, 3)), 5, 1)
    bias = replace(bias, lines=(*more, *bias.lines))  # the first line that opens a key would name it
    config = ModelConfig(20, 5, 24, decoder_layers=1, position=NoPosition(), bias=bias)
    return Transformer(config, len(task.vocabulary)).eval()


def problems(sampler: Sampler, width: int, samples: int, seed: int = 0) -> Batch:
    """Random operands of any number of zeros in front, at one width; the largest digit comes often."""
    task, rng = sampler.task, np.random.default_rng(seed)
    operands = []
    for places in task.operand_places(width):
        digits = rng.integers(task.base, size=(samples, places))
        digits = np.where(rng.random(digits.shape) < 0.3, task.base - 1, digits)
        if places == width:
            digits[np.arange(width) >= rng.integers(1, width - task.grows + 1, (samples, 1))] = 0
        operands.append(digits)
    return sampler.batch(operands, width)


rules_of = lru_cache(maxsize=1)(Rounding)  # of a model whose weights stay as they are


def logits_of(model: Transformer, contexts: Contexts, shape: Shape, block: Block) -> torch.Tensor:
    with evaluating(model):
        states = States(rules_of(model), shape.leaves, contexts.task.base, len(block.right) / 2)
        return states.take(block.values).logits(shape.root)


def rows(block: Block) -> Iterator[tuple[int, ...]]:
    """The tokens of each context, and the right one."""
    return map(tuple, np.column_stack([block.values, block.right]).tolist())


def listed(contexts: Contexts, shape: Shape) -> set[tuple[int, ...]]:
    """Every context of a shape, each of which is listed once."""
    found = [row for block in contexts.blocks(shape) for row in rows(block)]
    assert len(found) == len({*found})
    return {*found}
