"""Attention analysis: what a model looks at, as maps to draw and as numbers (`000` section C.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.biases import Attention, key_count
from abc_nb.evaluation import correct_digits, greedy
from abc_nb.layouts import Layout
from abc_nb.model import Record, Transformer
from abc_nb.sampling import Batch, make_batch
from abc_nb.tasks import SOS, Task


@dataclass(frozen=True)
class Maps:
    """Attention on one problem, with the tokens it belongs to.

    `weights[name, layer]` is (head, query, key): query `i` predicts output token `i` and, in
    self-attention, key `i` is the token before it.
    """

    weights: dict[tuple[Attention, int], Tensor]
    source: list[str]  # keys of cross-attention
    inputs: list[str]  # keys of self-attention: the decoder's input tokens
    outputs: list[str]  # what the model says, a token a query
    expected: list[str]

    def keys(self, name: Attention) -> list[str]:
        return self.inputs if name == "self" else self.source


def problem(task: Task, text: str, arrangement: str = "natural", regime: str = "tight") -> Batch:
    """A batch of the one problem in `text`, as wide as it is written (zeros in front count)."""
    from abc_nb.compute import read, widen

    places = max(len(part) for part in text.replace("*", "+").split("+"))
    width = task.width_for(places, regime)
    return make_batch(
        task, widen(read(task, text), width, task), width, "aligned" if arrangement == "aligned" else "natural"
    )


@torch.inference_mode()
def record(model: Transformer, batch: Batch, inputs: Tensor) -> Record:
    """All attention of a pass over `inputs` (batch, target_length), the decoder's input tokens."""
    kept = Record()
    model.eval()
    model(batch.source, inputs, batch.layout, record=kept)
    return kept


def look(model: Transformer, task: Task, batch: Batch, decode: bool = True) -> Maps:
    """Attention on the batch's first problem while decoding greedily, or over the right answer."""
    one = Batch(batch.source[:1], batch.target[:1], batch.layout)
    inputs = one.target[:, :-1]
    said = greedy(model, one.source, one.layout, task.token(SOS)) if decode else None
    if said is not None:
        inputs = torch.cat([inputs[:, :1], said[:, :-1]], dim=1)
    kept = record(model, one, inputs)
    if said is None:
        with torch.inference_mode():
            said = model(one.source, inputs, one.layout).argmax(-1)
    text = [task.text(tokens[0].tolist()) for tokens in (one.source, inputs, said, one.target[:, 1:])]
    return Maps({where: weights[0] for where, weights in kept.weights.items()}, *text)


def needed(layout: Layout, name: Attention, operand: int | None = None) -> Tensor:
    """The cells that the algorithm needs, as booleans (query, key).

    Cross-attention: the digits of this place (of one operand or of all), the anti-diagonal of `000`
    section C.3. Self-attention: the output digit before, from which a carry is known: the
    sub-diagonal of the output tokens.
    """
    cells = torch.zeros(layout.target_length, key_count(layout, name), dtype=torch.bool)
    if name == "self":
        return cells.fill_diagonal_(True)
    chosen = layout.operands if operand is None else layout.operands[operand : operand + 1]
    for part in chosen:
        if part.places == 1 < layout.width:  # a single digit is needed at every place
            cells[: layout.width, part.last] = True
        else:
            steps = min(part.places, layout.target_length - 1)
            cells[torch.arange(steps), torch.from_numpy(part.columns[:steps].copy())] = True
    return cells


def masses(model: Transformer, batch: Batch, trained: int) -> pd.DataFrame:
    """Mean attention on the needed cells: attention, layer, head, step, inside (the training length), mass.

    Teacher-forced, so that each step is asked with the right past. Rows with `operand` None count
    all operands together.
    """
    kept = record(model, batch, batch.target[:, :-1])
    rows = []
    for (name, layer), weights in kept.weights.items():
        operands = [None, *range(len(batch.layout.operands))] if name == "cross" else [None]
        for operand in operands:
            cells = needed(batch.layout, name, operand)
            mass = (weights * cells).sum(-1).mean(0)[:, : batch.layout.width]  # (head, step)
            for head, by_step in enumerate(mass.tolist()):
                rows += [
                    (name, layer, head, operand, step, step < trained, value) for step, value in enumerate(by_step)
                ]
    return pd.DataFrame(rows, columns=["attention", "layer", "head", "operand", "step", "inside", "mass"])


def digit_accuracy(model: Transformer, batch: Batch) -> np.ndarray:
    """Share of problems whose output digit is right, by step, teacher-forced."""
    return correct_digits(model, batch)[:, : batch.layout.width].float().mean(0).numpy()


def attention_against_accuracy(model: Transformer, batch: Batch, trained: int) -> pd.DataFrame:
    """By decoding step: the largest cross-attention mass on a needed cell over heads, and digit accuracy."""
    frame = masses(model, batch, trained)
    cross = frame[(frame.attention == "cross") & frame.operand.isna()]
    best = cross.groupby("step").mass.max()
    accuracy = digit_accuracy(model, batch)
    return pd.DataFrame({"step": best.index, "mass": best.to_numpy(), "accuracy": accuracy[best.index]})


def shares(model: Transformer, batch: Batch) -> pd.DataFrame:
    """Where each head's cross-attention goes, over all output digits: each operand, each symbol."""
    kept = record(model, batch, batch.target[:, :-1])
    groups: dict[str, Sequence[int]] = {
        f"operand {i + 1}": part.columns.tolist() for i, part in enumerate(batch.layout.operands)
    }
    groups |= {symbol: [column] for column, symbol in batch.layout.symbols}
    rows = []
    for (name, layer), weights in kept.weights.items():
        if name == "cross":
            mean = weights[:, :, : batch.layout.width].mean(dim=(0, 2))  # (head, key)
            for head, by_key in enumerate(mean):
                found = {group: by_key[list(columns)].sum().item() for group, columns in groups.items()}
                rows.append({"layer": layer, "head": head, **found})
    return pd.DataFrame(rows)
