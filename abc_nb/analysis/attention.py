"""What a model looks at, on one problem to draw and on many as numbers (v4 section C.3)."""

from collections.abc import Mapping
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
from abc_nb.problems.tasks import TRAINED
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, greedy, record


@dataclass(frozen=True)
class HeadMap:
    """One head's attention on one problem, with the tokens it belongs to."""

    title: str
    weights: np.ndarray  # (query, key), from 0 to 1
    keys: list[str]
    outputs: list[str]  # the token that each query predicts
    right: list[bool]  # whether that token is right
    needed: np.ndarray  # the cells that the algorithm needs, booleans (query, key)
    xlabel: str = "token of the problem"


@dataclass(frozen=True)
class Decoded:
    """One problem as a model decoded it, greedily."""

    weights: dict[tuple[Attention, int], Tensor]  # (head, query, key): query i predicts output token i
    layout: Layout
    source: list[str]  # keys of cross-attention
    inputs: list[str]  # keys of self-attention: the decoder's input tokens
    outputs: list[str]  # what the model says, a token a query
    expected: list[str]

    @property
    def right(self) -> list[bool]:
        return [*map(str.__eq__, self.outputs, self.expected)]

    def head(self, name: Attention, layer: int, head: int) -> HeadMap:
        """One head's map; layers and heads count from 0."""
        cross = name == "cross"
        return HeadMap(
            f"{name}-attention, layer {layer + 1}, head {head + 1}",
            self.weights[name, layer][head].numpy(),
            self.source if cross else self.inputs,
            self.outputs,
            self.right,
            needed(self.layout, name).numpy(),
            "token of the problem" if cross else "token before",
        )


def needed(layout: Layout, name: Attention, operand: int | None = None) -> Tensor:
    """The cells that the algorithm needs, as booleans (query, key).

    Cross-attention: the digits of this place (of one operand or of all), the anti-diagonal of v4 section C.3.
    Self-attention: the output digit before; a carry is known from it and from what was attended to when it was written.
    """
    cells = np.zeros((layout.target_length, key_count(layout, name)), bool)
    if name == "self":
        np.fill_diagonal(cells, True)
        return torch.from_numpy(cells)
    for part in layout.operands if operand is None else [layout.operands[operand]]:
        if layout.is_short(part):  # the digits of a short factor are needed at every place
            cells[: layout.width, part.columns] = True
        else:
            steps = min(part.places, layout.target_length - 1)
            cells[np.arange(steps), part.columns[:steps]] = True
    return torch.from_numpy(cells)


def on_cells(weights: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Mean attention (head, step) on some cells (query, key), of weights (batch, head, query, key)."""
    return (weights * cells).sum(-1).mean(0)[:, : layout.width].double()


def masses(weights: Mapping[tuple[Attention, int], Tensor], layout: Layout, trained: int) -> pd.DataFrame:
    """Mean attention on the needed cells: attention, layer, head, inside the trained places, beyond them.

    `weights` are (batch, head, query, key). Masses are fractions from 0 to 1; layers and heads count from 0.
    """
    rows = []
    for (name, layer), own in weights.items():
        if name != "source":  # of a decoder-only model: no output token asks there
            mass = on_cells(own, needed(layout, name), layout)
            inside, beyond = mass[:, :trained].mean(1).tolist(), mass[:, trained:].mean(1).tolist()
            rows += [(name, layer, head, *both) for head, both in enumerate(zip(inside, beyond, strict=True))]
    return pd.DataFrame(rows, columns=["attention", "layer", "head", "inside", "beyond"])


@dataclass(frozen=True)
class AttentionStudy:
    """One run's attention, teacher-forced on problems of `length` digits, and on any problem that is typed."""

    run: Run
    length: int = 20
    samples: int = 500

    @cached_property
    def model(self) -> Transformer:
        return self.run.model()

    def batch(self, length: int) -> Batch:
        return self.run.spec.sampler.test_batch(length, self.samples, TEST_SEED)

    def masses_of(self, weights: Mapping[tuple[Attention, int], Tensor], layout: Layout) -> pd.DataFrame:
        """`masses`, in which the places of operands of the training length are inside."""
        return masses(weights, layout, self.run.spec.task.places(TRAINED))

    @cached_property
    def known(self) -> pd.DataFrame:
        """`masses` at the training length, where the model is right."""
        batch = self.batch(TRAINED)
        return self.masses_of(record(self.model, batch).weights, batch.layout)

    def best_heads(self) -> pd.DataFrame:
        """In each layer the head that looks most at the needed cells when the model is right, and its fate."""
        batch, first = self.batch(self.length), f"{TRAINED} digits"
        longer = self.masses_of(record(self.model, batch).weights, batch.layout)
        table = self.known.drop(columns="beyond").rename(columns={"inside": first})
        table = table.assign(**{f"{self.length} digits, {part}": longer[part] for part in ("inside", "beyond")})
        best = table.loc[table.groupby(["attention", "layer"])[first].idxmax()].reset_index(drop=True)
        return best.assign(layer=best.layer + 1, head=best["head"] + 1)  # as people count

    def ranked_heads(self, name: Attention) -> list[tuple[int, int]]:
        """Layer and head (from 0), by how much each looks at the needed cells when the model is right, most first."""
        own = self.known[self.known.attention == name].sort_values("inside", ascending=False)
        return [*own[["layer", "head"]].itertuples(index=False, name=None)]

    def example(self, text: str) -> Decoded:
        """A problem, decoded greedily and as wide as it is written (zeros in front count), and the attention there."""
        task, batch = self.run.spec.task, self.run.spec.sampler.typed_batch(text)
        said = greedy(self.model, batch.source, batch.layout, task.token(SOS))
        inputs = torch.cat([batch.target[:, :1], said[:, :-1]], dim=1)
        weights = {where: every[0] for where, every in record(self.model, batch, inputs).weights.items()}
        every = batch.source, inputs, said, batch.target[:, 1:]
        return Decoded(weights, batch.layout, *(task.text(tokens[0].tolist()) for tokens in every))

    def best_maps(self, example: Decoded, *names: Attention) -> list[HeadMap]:
        """The map of each attention's best head."""
        return [example.head(name, *self.ranked_heads(name)[0]) for name in names]
