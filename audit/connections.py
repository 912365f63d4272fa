"""What calibration is related to: relative position encoding and low-rank adaptation (v4 appendix E)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.results import Results
from abc_nb.bias.base import ENCODER_DECODER, Attention
from abc_nb.bias.lines import Line, Lines, whole_matrix
from abc_nb.calibration.calibrate import Calibration, candidates, line_means
from abc_nb.model.layers import DecoderLayer
from abc_nb.model.positions import Relative
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout, Operand
from abc_nb.problems.sampling import Batch
from abc_nb.training.evaluation import attention_of


def offsets(queries: int, keys: int) -> np.ndarray:
    """The number j - i of the diagonal that each cell is on."""
    return np.arange(keys) - np.arange(queries)[:, None]


def abc_index(queries: int, keys: int, read: tuple[int, int]) -> np.ndarray:
    """Which diagonal's mean a cell gets from calibration of a matrix of the size `read` (figure 12, right).

    Found by step 2.1 itself: every cell of the matrix that it reads holds its j - i. Cells on no line are NaN.
    """
    settings = Calibration(anchor="whole", directions=("diagonal",))
    diagonals = candidates([whole_matrix(read[1])], "cross", settings, read[0])
    means = line_means(torch.from_numpy(offsets(*read))[None].double(), diagonals)[0]
    lines = [Line("cross", 0, 0, *line, mean) for line, mean in zip(diagonals.lines, means.tolist(), strict=True)]
    layout = Layout(keys, (Operand(keys - 1, 1, keys),), (), queries)
    matrix = Lines(1, tuple(lines)).dense(layout, "cross", 0)[0].numpy()
    return np.where(np.isfinite(matrix), matrix, np.nan)


def indices() -> dict[str, np.ndarray]:
    """Figure A0.6: the two indices of a matrix of 8 x 8, RPE's clipped at 3 and ABC's read from one of 3 x 5."""
    return {"RPE, c = 3": offsets(8, 8).clip(-3, 3), "ABC, read from 3 x 5": abc_index(8, 8, read=(3, 5))}


@torch.inference_mode()
def learned_by_offset(model: Transformer, batch: Batch) -> pd.Series:
    """What RPE adds to cross-attention's logits at each j - i, mean over queries, of the highest head of all layers."""
    biases = []
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        attention, queries = layer.cross_attention, list[Tensor]()
        handle = attention.query.register_forward_hook(lambda _m, _i, query, queries=queries: queries.append(query))
        model(batch.source, batch.target[:, :-1], batch.layout)
        handle.remove()
        assert isinstance(attention.encoding, Relative)
        table, clip = attention.position.get_parameter("table"), attention.encoding.clip
        mean = attention.split(queries[0]).mean(dim=(0, 2))  # (head, size)
        biases.append(mean @ table.T / table.shape[1] ** 0.5)
    highest = torch.cat(biases).amax(0).tolist()
    return pd.Series(highest, index=np.arange(len(highest)) - clip)


def by_offset(model: Transformer, study: CalibrationStudy, reach: int = 6) -> pd.DataFrame:
    """RPE's learned bias and ABC's share of attention, each of its highest head, by columns right of the needed digit.

    RPE counts the source from its right end, which is 0: the digit of place i stands at offset j - i = 1.
    """
    learned = learned_by_offset(model, study.batch)
    lines = study.lines[(study.lines.attention == "cross") & (study.lines.direction == "antidiagonal")]
    shares = lines.groupby("offset").share.max()
    frame = pd.DataFrame({"RPE": learned.rename(index=lambda offset: 1 - offset), "ABC": shares})
    frame = frame.rename_axis("offset").loc[-reach:reach].fillna({"ABC": 0.0})
    return frame[::-1].reset_index()


def on_successor(results: Results) -> pd.DataFrame:
    """`by_offset` of the first seed's RPE, its source counted from the right, and of ABC, on Successor."""
    model = results.first_run("successor-rpe-right").model()
    return by_offset(model, CalibrationStudy(results.first_run("successor-abc")))


def logit_change(before: Transformer, after: Transformer, name: Attention, batch: Batch) -> dict[str, Any]:
    """How the first layer's logits of one attention differ between two models on the same problems.

    `closed` is the share of cells that only the second model closes. `spread`, of the others, is the standard deviation
    over inputs of a cell's change, averaged: a change that does not depend on the input has 0.
    """
    first, second = (attention_of(model, batch).logits[name, 0] for model in (before, after))
    change = second - first
    cells = change.isfinite().all(0)
    closed = 1 - (cells.sum() / first.isfinite().all(0).sum()).item()
    spread = change[:, cells].std(0).mean().item()  # (batch, open cells of all heads)
    return {"attention": name, "closed": closed, "spread": spread}


def on_parity(results: Results) -> pd.DataFrame:
    """The change of logits by ABC's bias and by LoRA, of the first seed's plain model of Parity on the same problems.

    Each attention is changed alone: cross-attention's queries come after self-attention, and would carry its change.
    Columns as `logit_change`, and method. Where the LoRA is shipped, ABC is the shipped one, too.
    """
    lora, rows = results.first_run("parity-lora"), []
    if lora.shipped:
        results = replace(results, origin="shipped")
    study, adapted = CalibrationStudy(results.first_run("parity-abc")), lora.model()
    for name in ENCODER_DECODER:
        biased = study.parent.with_bias(study.bias.alone(name))
        for method, model in {"ABC": biased, "LoRA": adapted_in_one(study.parent, adapted, name)}.items():
            rows.append({"method": method} | logit_change(study.parent, model, name, study.batch))
    return pd.DataFrame(rows)


def adapted_in_one(parent: Transformer, adapted: Transformer, name: Attention) -> Transformer:
    """The parent with the queries and keys of one attention, of all layers, as low-rank adaptation left them."""
    model, weights = parent.with_bias(parent.config.bias), adapted.state_dict()
    changes = {key: value for key, value in weights.items() if f".{name}_attention." in key}
    model.load_state_dict(parent.state_dict() | changes)
    return model
