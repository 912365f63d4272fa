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
from abc_nb.training.evaluation import TEST_SEED, attention_of, greedy


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
    for number in layout.operands if operand is None else [layout.operands[operand]]:
        if layout.is_short(number):  # the digits of a short factor are needed at every place
            cells[: layout.width, number.columns] = True
        else:
            steps = min(number.places, layout.target_length - 1)
            cells[np.arange(steps), number.columns[:steps]] = True
    return torch.from_numpy(cells)


def on_cells(weights: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Mean attention (head, step) on some cells (query, key), of weights (batch, head, query, key)."""
    return (weights * cells).sum(-1).mean(0)[:, : layout.width].double()


def masses(weights: Mapping[tuple[Attention, int], Tensor], layout: Layout, trained: int) -> pd.DataFrame:
    """Mean attention on the needed cells: attention, layer, head, inside the trained places, beyond them.

    `weights` are (batch, head, query, key). Masses are fractions from 0 to 1; layers and heads count from 0.
    """
    rows = []
    for (name, layer), layer_weights in weights.items():
        if name != "source":  # of a decoder-only model: no output token asks there
            mass = on_cells(layer_weights, needed(layout, name), layout)
            parts = zip(mass[:, :trained].mean(1).tolist(), mass[:, trained:].mean(1).tolist(), strict=True)
            rows += [(name, layer, head, inside, beyond) for head, (inside, beyond) in enumerate(parts)]
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

    @property
    def trained_places(self) -> int:
        """The places of operands of the training length."""
        return int(self.run.spec.task.places(TRAINED))

    def masses(self, length: int) -> pd.DataFrame:
        """`masses` on problems of a length."""
        batch = self.batch(length)
        return masses(attention_of(self.model, batch).weights, batch.layout, self.trained_places)

    @cached_property
    def trained_masses(self) -> pd.DataFrame:
        """`masses` at the training length, where the model is right."""
        return self.masses(TRAINED)

    def best_heads(self) -> pd.DataFrame:
        """In each layer the head that looks most at the needed cells when the model is right, and its fate."""
        longer, first = self.masses(self.length), f"{TRAINED} digits"
        table = self.trained_masses.drop(columns="beyond").rename(columns={"inside": first})
        table = table.assign(**{f"{self.length} digits, {part}": longer[part] for part in ("inside", "beyond")})
        best = table.loc[table.groupby(["attention", "layer"])[first].idxmax()].reset_index(drop=True)
        return best.assign(layer=best.layer + 1, head=best["head"] + 1)  # as people count

    def ranked_heads(self, name: Attention) -> list[tuple[int, int]]:
        """Layer and head (from 0), by how much each looks at the needed cells when the model is right, most first."""
        heads = self.trained_masses.query("attention == @name").sort_values("inside", ascending=False)
        return [*heads[["layer", "head"]].itertuples(index=False, name=None)]

    def example(self, text: str) -> Decoded:
        """A problem, decoded greedily and as wide as it is written (zeros in front count), and the attention there."""
        task, batch = self.run.spec.task, self.run.spec.sampler.typed_batch(text)
        outputs = greedy(self.model, batch.source, batch.layout, task.token(SOS))
        inputs = torch.cat([batch.target[:, :1], outputs[:, :-1]], dim=1)
        weights = {key: weights[0] for key, weights in attention_of(self.model, batch, inputs).weights.items()}
        sequences = batch.source, inputs, outputs, batch.target[:, 1:]
        return Decoded(weights, batch.layout, *(task.text(tokens[0].tolist()) for tokens in sequences))

    def best_maps(self, example: Decoded, *names: Attention) -> list[HeadMap]:
        """The map of each attention's best head."""
        return [example.head(name, *self.ranked_heads(name)[0]) for name in names]
