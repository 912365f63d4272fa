"""What calibration is related to: relative position encoding and low-rank adaptation (`000` appendix E)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.biases import Attention
from abc_nb.calibration_study import CalibrationStudy
from abc_nb.diagnosis import under
from abc_nb.lines import Line, open_cells, whole
from abc_nb.model import Transformer
from abc_nb.multihead import Record
from abc_nb.positions import RelativeAttention
from abc_nb.sampling import Batch


def rpe_index(queries: int, keys: int, clip: int) -> np.ndarray:
    """Which learned vector a cell uses in relative position encoding: clip(j - i, k) (figure 12, left)."""
    return np.clip(np.arange(keys) - np.arange(queries)[:, None], -clip, clip)


def abc_index(queries: int, keys: int, read: tuple[int, int]) -> np.ndarray:
    """Which diagonal's mean a cell gets from calibration of a matrix of the size `read` (figure 12, right).

    Read from the bias itself: every diagonal of the small matrix becomes a line whose value is its
    number. Cells on no line are NaN.
    """
    offsets = range(1 - read[0], read[1])
    lines = [Line("cross", 0, 0, "diagonal", "whole", offset, float(offset)) for offset in offsets]
    matrix = open_cells(lines, [whole(queries, keys)], (queries, keys), heads=1).dense(keys)[0].numpy()
    return np.where(np.isfinite(matrix), matrix, np.nan)


def same_index(queries: int, keys: int, read: tuple[int, int]) -> bool:
    """Whether ABC's index is j - i, and there is one exactly for the diagonals of the matrix that was read."""
    unclipped, ours = rpe_index(queries, keys, clip=queries + keys), abc_index(queries, keys, read)
    inside = (unclipped >= 1 - read[0]) & (unclipped <= read[1] - 1)
    return bool((np.isfinite(ours) == inside).all() and (ours[inside] == unclipped[inside]).all())


@torch.inference_mode()
def learned_by_offset(model: Transformer, batch: Batch, name: Attention = "cross") -> pd.DataFrame:
    """What an RPE model adds to the logits at each offset j - i, averaged over queries: layer, head, offset, value."""
    rows: list[pd.DataFrame] = []
    for number, layer in enumerate(model.decoder_layers):
        attention = layer.self_attention if name == "self" else layer.cross_attention
        queries: list[Tensor] = []
        handle = attention.query.register_forward_hook(lambda _m, _i, out, kept=queries: kept.append(out))
        model(batch.source, batch.target[:, :-1], batch.layout)
        handle.remove()
        assert isinstance(attention.position, RelativeAttention)
        table, clip = attention.position.table, attention.position.clip
        mean = attention.split(queries[0]).mean(dim=(0, 2))  # (head, size)
        values = mean @ table.T / table.shape[1] ** 0.5
        wide = pd.DataFrame(values.numpy(), columns=range(-clip, clip + 1)).assign(head=range(1, len(values) + 1))
        rows.append(wide.melt("head", var_name="offset").assign(layer=number + 1))
    return pd.concat(rows, ignore_index=True)[["layer", "head", "offset", "value"]]


def lines_by_offset(study: CalibrationStudy, clip: int) -> pd.DataFrame:
    """The attention on ABC's anti-diagonals by the offset j - i that RPE would use: layer, head, offset, share.

    RPE counts the source from its right end, where the end of the sequence is 0 and the units are 1:
    the digit of place i stands at offset 1, one column to its right at offset 0.
    """
    lines = study.lines
    chosen = lines[(lines.attention == "cross") & (lines.direction == "antidiagonal")]
    found = chosen.assign(offset=1 - chosen.offset)
    return found[found.offset.abs() <= clip][["layer", "head", "offset", "share"]]


def by_offset(model: Transformer, batch: Batch, study: CalibrationStudy, reach: int = 6) -> pd.DataFrame:
    """Over all layers and heads: RPE's learned bias (the highest head) and ABC's share of attention, by offset."""
    learned = learned_by_offset(model, batch).groupby("offset").value.max()
    shares = lines_by_offset(study, reach).groupby("offset").share.sum() / (study.layers * study.bias.heads)
    frame = pd.DataFrame({"RPE": learned, "ABC": shares}).loc[-reach:reach].fillna({"ABC": 0.0})
    return frame.reset_index()


@torch.inference_mode()
def logit_change(before: Transformer, after: Transformer, batch: Batch) -> pd.DataFrame:
    """How the first layer's logits differ between two models on the same inputs.

    Columns attention, closed (share of the cells that only the second model closes) and, over those that stay
    open, mean (absolute change) and spread (standard deviation over inputs of the change of a cell, averaged over
    cells): a change that does not depend on the input has spread 0.
    """
    kept = Record(), Record()
    for model, record in zip((before, after), kept, strict=True):
        model.eval()
        model(batch.source, batch.target[:, :-1], batch.layout, record=record)
    rows = []
    for name in ("self", "cross"):
        first, second = (record.logits[name, 0] for record in kept)
        change = second - first
        cells = change.isfinite().all(0)
        closed = 1 - (cells.sum() / first.isfinite().all(0).sum()).item()
        change = change[:, cells]  # (batch, open cells of all heads)
        rows.append((name, closed, change.abs().mean().item(), change.std(0).mean().item()))
    return pd.DataFrame(rows, columns=["attention", "closed", "mean", "spread"])


def changes(study: CalibrationStudy, adapted: Transformer) -> pd.DataFrame:
    """The change of logits by ABC's bias and by LoRA, of the same parent on the same problems.

    Each attention under its own lines: cross-attention's queries come after self-attention, and
    would carry its change.
    """
    parent, batch = study.parent, study.batch
    parts = [logit_change(parent, adapted, batch).assign(method="LoRA")]
    for name in ("self", "cross"):
        lines = tuple(line for line in study.bias.lines if line.attention == name)
        biased = under(parent, replace(study.bias, lines=lines, empty="transparent"))
        change = logit_change(parent, biased, batch).assign(method="ABC")
        parts.insert(-1, change[change.attention == name])
    return pd.concat(parts, ignore_index=True)
