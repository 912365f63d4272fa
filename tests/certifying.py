"""What tests of certificates share: small models under a window or lines, and the contexts of a problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from abc_nb.bias import Bias, Window
from abc_nb.bias.lines import OUTPUT, PROBLEM, Line, Lines
from abc_nb.certificates.contexts import Block, contexts
from abc_nb.certificates.reach import Unrolled, reach
from abc_nb.certificates.shapes import Shape, condensed, kept_places, seen_places
from abc_nb.certificates.states import States
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.automaton import Automaton
from abc_nb.problems.layouts import EOS, SOS
from abc_nb.problems.sampling import Batch, Sampler, make_batch
from abc_nb.problems.tasks import Task

TASKS = ("successor", "addition", "n-by-1", "parity", "listops-max")
BASES = {"parity": 2, "n-by-2": 2}


def sampler_of(task: str, aligned: bool) -> Sampler:
    """Base 3 keeps contexts few."""
    return Sampler(Task(task, BASES.get(task, 3)), "aligned" if aligned else "natural")


def lines_of(task: str) -> Lines:
    """Lines of every kind that extends: this place and the one below, symbols, the start seen from afar.

    For a factor of two digits, which has many more contexts, those of ABS.
    """
    if task == "n-by-2":
        return Lines.by_head(sampler_of(task, aligned=False).layout(1), 2, 2)
    operand = Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.5)
    lines = [replace(operand, layer=layer) for layer in (0, 1)]
    lines += [replace(operand, head=1, offset=1), Line("cross", 1, 1, "vertical", "&", 0, 0.25)]
    if task == "addition":
        lines += [replace(operand, span="operand 2", layer=layer, head=1, value=-0.5) for layer in (0, 1)]
    if task == "n-by-1":
        lines += [Line("cross", layer, 1, "vertical", "operand 2", 0, 0.0) for layer in (0, 1)]
    for layer in (0, 1):
        lines += [Line("self", layer, 0, "diagonal", OUTPUT, 0, 0.0), Line("self", layer, 1, "vertical", SOS, 0, 0.5)]
    return Lines(2, (*lines, Line("self", 0, 1, "diagonal", OUTPUT, -1, 0.0)), empty="closed")


def lines_of_problem() -> tuple[Line, ...]:
    """Lines of source attention: a token itself, the one before it, and the start."""
    itself = Line("source", 0, 0, "diagonal", PROBLEM, 0, 0.25)
    return itself, replace(itself, offset=-1), replace(itself, head=1), Line("source", 0, 1, "vertical", SOS, 0, 0.5)


def model_of(sampler: Sampler, bias: Bias, position: PositionEncoding, seed: int = 0) -> Transformer:
    """Random weights, larger than usual, so that every token matters; decoder-only if the bias has source lines."""
    torch.manual_seed(seed)
    alone = isinstance(bias, Lines) and any(line.attention == "source" for line in bias.lines)
    kind = "decoder-only" if alone else "encoder-decoder"
    config = ModelConfig(width=16, heads=2, feed_forward=32, position=position, bias=bias, kind=kind)
    model = Transformer(config, len(sampler.task.vocabulary))
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(1.5)
    return model.eval()


def problems(sampler: Sampler, width: int, samples: int, seed: int = 0) -> Batch:
    """Random operands of any number of zeros in front, at one width; half of the digits are the largest one."""
    task, rng = sampler.task, np.random.default_rng(seed)
    operands = []
    for places in task.operand_places(width):
        digits = rng.integers(task.base, size=(samples, places))
        digits = np.where(rng.random(digits.shape) < 0.3, task.base - 1, digits)
        if places == width:
            digits[:, width - task.grows :] = 0
        operands.append(digits)
    return make_batch(task, operands, width, sampler.arrangement)


class Contexts:
    """The shape and the context of every step of given problems."""

    def __init__(self, model: Transformer, sampler: Sampler) -> None:
        self.model, self.sampler = model, sampler
        self.automaton: Automaton = sampler.task.automaton()
        self.known = reach(model, sampler, self.automaton.settled)
        self.states = States(model, self.automaton)
        self.listed: dict[Shape, set[tuple[int, ...]]] = {}

    def at(self, batch: Batch, step: int) -> tuple[Shape, Block]:
        width, task = batch.layout.width, self.sampler.task
        unrolled = Unrolled(self.model, self.sampler, width, self.known.near)
        root, kinds = unrolled.node(unrolled.depth, step), unrolled.kinds(True, self.known.narrowest)
        asked = step if step < width else None
        shape = condensed(root, kinds, asked, self.automaton.settled, None if step < width else task.token(EOS))
        kept = kept_places(kinds, seen_places(root, asked), self.automaton.settled)
        columns = [
            self.column(batch, kind, number, place if kind == "factor" else kept[place])
            for kind, number, place in shape.atoms
        ]
        values = np.stack(columns, 1) if columns else np.empty((len(batch.source), 0))
        return shape, Block(values.astype(np.uint8), batch.target[:, step + 1].numpy())

    def column(self, batch: Batch, kind: str, number: int, place: int) -> np.ndarray:
        if kind == "output":
            return batch.target[:, place + 1].numpy()
        operand = batch.layout.operands[-1 if kind == "factor" else number]
        return batch.source[:, operand.columns[place]].numpy()

    def of(self, shape: Shape) -> set[tuple[int, ...]]:
        """All contexts of a shape that are enumerated, each with the right token."""
        if shape not in self.listed:
            blocks = contexts(shape, self.automaton)
            rows = (np.column_stack([block.values, block.right]) for block in blocks)
            self.listed[shape] = {tuple(row) for part in rows for row in part.tolist()}
        return self.listed[shape]


POSITIONS = (Sinusoidal(3), NoPosition())
BIASES = ("window", "lines", "decoder-only")


def bias_of(task: str, kind: str) -> Bias:
    if kind == "decoder-only":
        return replace(lines_of(task), lines=(*lines_of(task).lines, *lines_of_problem()))
    return Window(1) if kind == "window" else lines_of(task)
