"""Attention analysis: what a model looks at, as maps to draw and as numbers (v4 section C.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.bias.base import Attention, key_count
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS, Layout
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import TRAINED, Task
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, correct_digits, greedy, record


@dataclass(frozen=True)
class AttentionMaps:
    """Attention on one problem, with the tokens it belongs to.

    `weights[name, layer]` is (head, query, key): query `i` predicts output token `i` and, in
    self-attention, key `i` is the token before it.
    """

    weights: dict[tuple[Attention, int], Tensor]
    source: list[str]  # keys of cross-attention
    inputs: list[str]  # keys of self-attention: the decoder's input tokens
    outputs: list[str]  # what the model says, a token a query
    expected: list[str]
    layout: Layout

    def keys(self, name: Attention) -> list[str]:
        return self.inputs if name == "self" else self.source


@dataclass(frozen=True)
class Panel:
    """One heat map: weights (query, key) and what stands on its axes."""

    title: str
    weights: np.ndarray
    queries: list[str]
    keys: list[str]
    right: list[bool]  # which queries produce the right token
    xlabel: str = "input token"
    needed: np.ndarray | None = None  # the cells that the algorithm needs, booleans (query, key)


def look(model: Transformer, task: Task, batch: Batch) -> AttentionMaps:
    """Attention on the batch's first problem while decoding greedily."""
    one = Batch(batch.source[:1], batch.target[:1], batch.layout)
    said = greedy(model, one.source, one.layout, task.token(SOS))
    inputs = torch.cat([one.target[:, :1], said[:, :-1]], dim=1)
    kept = record(model, one, inputs)
    text = [task.text(tokens[0].tolist()) for tokens in (one.source, inputs, said, one.target[:, 1:])]
    source, keys, outputs, expected = text
    weights = {where: each[0] for where, each in kept.weights.items()}
    return AttentionMaps(weights, source, keys, outputs, expected, one.layout)


def head_panel(maps: AttentionMaps, name: Attention, layer: int, head: int) -> Panel:
    """One head's map, ready to draw."""
    right = [said == wanted for said, wanted in zip(maps.outputs, maps.expected, strict=True)]
    title = f"{name}-attention, layer {layer + 1}, head {head + 1}"
    weights = maps.weights[name, layer][head].numpy()
    xlabel = "input token" if name == "cross" else "token before"
    cells = needed(maps.layout, name).numpy()
    return Panel(title, weights, maps.outputs, maps.keys(name), right, xlabel, cells)


def needed(layout: Layout, name: Attention, operand: int | None = None) -> Tensor:
    """The cells that the algorithm needs, as booleans (query, key).

    Cross-attention: the digits of this place (of one operand or of all), the anti-diagonal of v4
    section C.3. Self-attention: the output digit before, the sub-diagonal of the output tokens; a carry
    is known from it and from what was attended to when it was written.
    """
    cells = torch.zeros(layout.target_length, key_count(layout, name), dtype=torch.bool)
    if name == "self":
        return cells.fill_diagonal_(True)
    chosen = layout.operands if operand is None else layout.operands[operand : operand + 1]
    for part in chosen:
        if layout.is_short(part):  # the digits of a short factor are needed at every place
            cells[: layout.width, torch.from_numpy(part.columns.copy())] = True
        else:
            steps = min(part.places, layout.target_length - 1)
            cells[torch.arange(steps), torch.from_numpy(part.columns[:steps].copy())] = True
    return cells


def masses(model: Transformer, batch: Batch, trained: int) -> pd.DataFrame:
    """Mean attention on the needed cells: attention, layer, head, step, inside (the training length), mass.

    Mass is a fraction from 0 to 1; layers, heads and steps count from 0. Teacher-forced, so that
    each step is asked with the right past. Rows with `operand` None count all operands together.
    """
    kept = record(model, batch)
    rows = []
    for (name, layer), weights in kept.weights.items():
        if name == "source":  # of a decoder-only model: no output token asks there
            continue
        several = name == "cross" and len(batch.layout.operands) > 1
        operands = [None, *range(len(batch.layout.operands))] if several else [None]
        for operand in operands:
            cells = needed(batch.layout, name, operand)
            mass = (weights * cells).sum(-1).mean(0)[:, : batch.layout.width]  # (head, step)
            for head, by_step in enumerate(mass.tolist()):
                rows += [
                    (name, layer, head, operand, step, step < trained, value) for step, value in enumerate(by_step)
                ]
    return pd.DataFrame(rows, columns=["attention", "layer", "head", "operand", "step", "inside", "mass"])


def even_masses(layout: Layout, name: Attention, trained: int) -> tuple[float, float]:
    """What `masses` has where every open key gets the same: the means inside the training length and beyond."""
    open_keys = torch.arange(1, layout.width + 1) if name == "self" else torch.tensor(layout.source_length)
    mass = needed(layout, name)[: layout.width].sum(-1) / open_keys
    return mass[:trained].mean().item(), mass[trained:].mean().item()


def by_head(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean mass by attention, operand (`all` or its number), layer and head: columns inside and beyond."""
    named = frame.assign(operand=frame.operand.map(lambda i: "all" if pd.isna(i) else f"{int(i) + 1}"))
    means = named.groupby(["attention", "operand", "layer", "head", "inside"]).mass.mean().unstack("inside")
    return means.rename(columns={True: "inside", False: "beyond"}).rename_axis(columns=None)


def digit_accuracy(model: Transformer, batch: Batch) -> np.ndarray:
    """Share of problems whose output digit is right, by step, teacher-forced."""
    return correct_digits(model, batch)[:, : batch.layout.width].float().mean(0).numpy()


def mass_and_accuracy(model: Transformer, batch: Batch, frame: pd.DataFrame) -> pd.DataFrame:
    """By decoding step (from 0): cross-attention on the needed digit, and digit accuracy, both from 0 to 1.

    Each operand has a head that looks at its digit most; the operand that is looked at least decides.
    """
    cross = frame[frame.attention == "cross"]
    several = cross.operand.notna().any()
    by_operand = cross[cross.operand.notna()] if several else cross.assign(operand=0)
    mass = by_operand.groupby(["step", "operand"]).mass.max().groupby("step").min()
    return pd.DataFrame({"step": mass.index, "mass": mass.to_numpy(), "accuracy": digit_accuracy(model, batch)})


def by_source(model: Transformer, batch: Batch) -> pd.DataFrame:
    """Where each head's cross-attention goes, over all output digits: each operand, each symbol."""
    kept = record(model, batch)
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
                rows.append({"layer": layer + 1, "head": head + 1, **found})  # as people count
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class AttentionStudy:
    """One run's attention: on problems of `length` digits, and on any problem typed in."""

    run: Run
    length: int = 20
    samples: int = 500
    trained: int = TRAINED  # digits; what is beyond them is beyond the training length

    @cached_property
    def model(self) -> Transformer:
        return self.run.model()

    @property
    def title(self) -> str:
        return self.run.experiment.task.title

    def batch(self, length: int) -> Batch:
        return self.run.experiment.sampler.test_batch(length, self.samples, TEST_SEED)

    @cached_property
    def masses(self) -> pd.DataFrame:
        return masses(self.model, self.batch(self.length), self.run.experiment.task.places(self.trained))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """By output digit: attention on the needed digits, and accuracy of the digit."""
        return mass_and_accuracy(self.model, self.batch(self.length), self.masses)

    @cached_property
    def known(self) -> pd.DataFrame:
        """Masses by head at the training length, where the model is right."""
        places = self.run.experiment.task.places(self.trained)
        return by_head(masses(self.model, self.batch(self.trained), places))

    def best_heads(self) -> pd.DataFrame:
        """In each layer the head that looks most at the needed cells when the model is right, and its fate."""
        longer = by_head(self.masses)
        columns = {f"{self.trained} digits": self.known.inside}
        columns |= {f"{self.length} digits, {part}": longer[part] for part in ("inside", "beyond")}
        table = pd.DataFrame(columns).reset_index().sort_values(f"{self.trained} digits", ascending=False)
        best = table.groupby(["attention", "operand", "layer"], as_index=False).first()
        return best.assign(layer=best.layer + 1, head=best["head"] + 1)  # as people count

    def even(self, name: Attention) -> tuple[float, float]:
        """Mean mass, inside the training length and beyond, of attention that is evenly spread."""
        return even_masses(self.batch(self.length).layout, name, self.run.experiment.task.places(self.trained))

    def by_source(self) -> pd.DataFrame:
        """Where each head looks at the training length, where the model is right."""
        return by_source(self.model, self.batch(self.trained))

    def example(self, text: str) -> AttentionMaps:
        """Attention while decoding a problem greedily, as wide as it is written (zeros in front count)."""
        sampler = self.run.experiment.sampler
        return look(self.model, sampler.task, sampler.typed_batch(text))

    def ranked_heads(self, name: Attention) -> list[tuple[int, int]]:
        """Layer and head (from 0), by how much each looks at the needed cells when the model is right, most first."""
        return [*self.known.loc[name].loc["all"].inside.sort_values(ascending=False).index]

    def best_panels(self, maps: AttentionMaps, *names: Attention) -> list[Panel]:
        """The map of each attention's best head."""
        return [head_panel(maps, name, *self.ranked_heads(name)[0]) for name in names]


def best_heads(studies: Sequence[AttentionStudy]) -> pd.DataFrame:
    """`AttentionStudy.best_heads` of several tasks, over all operands together: each task's best heads."""
    found = pd.concat([study.best_heads().assign(task=study.title) for study in studies], ignore_index=True)
    found = found[found.operand == "all"].drop(columns="operand")
    return found[["task", *(column for column in found if column != "task")]].round(3)
