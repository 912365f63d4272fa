"""What the audit measures of a model's attention: needed digits by step, operands, evenly spread attention."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.analysis.attention import AttentionStudy, needed, on_cells
from abc_nb.bias.base import Attention, key_count
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import TRAINED
from abc_nb.training.evaluation import correct_digits, record


def weakest_operand(weights: Mapping[tuple[Attention, int], Tensor], layout: Layout) -> np.ndarray:
    """Cross-attention on the needed digit by step: its best head's, of the operand that is looked at least."""
    cross = torch.cat([own for (name, _), own in weights.items() if name == "cross"], dim=1)
    operands = range(len(layout.operands))
    best = [on_cells(cross, needed(layout, "cross", operand), layout).amax(0) for operand in operands]
    return torch.stack(best).amin(0).numpy()


def steps(study: AttentionStudy) -> pd.DataFrame:
    """By output digit: attention on the needed digits and accuracy of the digit, both from 0 to 1."""
    batch = study.batch(study.length)
    accuracy = correct_digits(study.model, batch)[:, : batch.layout.width].float().mean(0).numpy()
    mass = weakest_operand(record(study.model, batch).weights, batch.layout)
    return pd.DataFrame({"mass": mass, "accuracy": accuracy})


def even(study: AttentionStudy, name: Attention) -> tuple[float, float]:
    """Mean mass, inside the training length and beyond, of attention that is evenly spread over open keys."""
    layout = study.batch(study.length).layout
    cells = torch.ones(1, 1, layout.target_length, key_count(layout, name))
    cells = cells.tril() if name == "self" else cells
    (row,) = study.masses_of({(name, 0): cells / cells.sum(-1, keepdim=True)}, layout).to_dict("records")
    return row["inside"], row["beyond"]


def by_operand(study: AttentionStudy, model: Transformer | None = None) -> pd.DataFrame:
    """The share of each cross-attention head (row) on each operand (column) at training length, of any model."""
    batch = study.batch(TRAINED)
    every = record(model or study.model, batch, average=True).weights
    kept = [own for (name, _), own in every.items() if name == "cross"]
    means = torch.cat([weights[:, : batch.layout.width].mean(1) for weights in kept]).numpy()  # (head, key)
    operands = enumerate(batch.layout.operands, 1)
    return pd.DataFrame({f"operand {number}": means[:, part.columns].sum(-1) for number, part in operands})


def best_heads(studies: Sequence[AttentionStudy]) -> pd.DataFrame:
    """`AttentionStudy.best_heads` of several tasks."""
    rows = pd.concat({study.run.spec.task.title: study.best_heads() for study in studies}, names=["task"])
    return rows.round(3).reset_index("task").reset_index(drop=True)
