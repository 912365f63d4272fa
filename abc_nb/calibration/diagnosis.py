"""Can this model be calibrated? Asked before retraining, on training numbers alone.

The test is the model itself: with a bias that closes all keys off its lines, and not trained again,
how many digits does it still get right? Where the lines carry what the algorithm needs, most of them.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration, checked
from abc_nb.calibration.of_model import Averages, Calibrated, average_attention, heads_of
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch
from abc_nb.training.evaluation import exact_match

INTERPOLATES = 0.99  # exact match that a model needs before it is worth calibrating


def diagnose(model: Transformer, batch: Batch, found: Calibrated) -> list[str]:
    """Why retraining under the bias found cannot be expected to work, a sentence each; nothing if it can.

    `batch` holds problems of training length that the model was not trained on.
    """
    reasons, keep = [], found.settings.keep
    exact = exact_match(model, batch).float().mean().item()
    if exact < INTERPOLATES:
        reasons.append(f"the model answers {exact:.1%} of problems of training length: train it to {INTERPOLATES:.0%}")
    if found.skill < keep:
        reasons.append(
            f"under its own lines alone the model gets {found.skill:.1%} of digits right, less than {keep:.1%}: "
            "its attention follows other patterns than lines that extend"
        )
    covered = coverage(average_attention(model, batch), found.bias, batch.layout)
    if model.config.kind == "decoder-only":  # whose outputs look at problem and answer at once
        of_outputs = covered[covered.attention != "source"]
        covered = of_outputs.groupby("step", as_index=False).highest.max().assign(attention="its")
    for name, part in covered[covered.highest == 0].groupby("attention"):
        steps = ", ".join(str(step + 1) for step in part.step)
        where = "its attention" if name == "its" else f"{name}-attention"
        reasons.append(f"no key that the model looks at is open in {where} at output token {steps}")
    return reasons


def coverage(averages: Averages, bias: Lines, layout: Layout) -> pd.DataFrame:
    """The share of attention that lies on lines, by attention and decoding step (from 0).

    Columns attention, step, mean and highest, of all heads and layers. Raises InputError for what are no weights
    of the bias's heads in this layout.
    """
    if (heads := heads_of(averages)) != bias.heads:
        raise InputError(f"the attention has {heads} heads and the bias {bias.heads}: give the bias read from it")
    parts: dict[Attention, list[Tensor]] = {}
    for (name, layer), attention in averages.items():
        weights = checked(attention, layout, name, Calibration(), layer)
        parts.setdefault(name, []).append((weights * bias.covers(layout, name, layer)).sum(-1))  # (head, query)
    rows = []
    for name, masses in parts.items():
        mass = torch.cat(masses)
        steps = zip(mass.mean(0).tolist(), mass.amax(0).tolist(), strict=True)
        rows += [(name, step, mean, highest) for step, (mean, highest) in enumerate(steps)]
    return pd.DataFrame(rows, columns=["attention", "step", "mean", "highest"])
