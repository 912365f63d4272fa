"""Can this model be calibrated, and with which threshold? Asked before retraining, on training numbers alone.

The test is the model itself: with a bias that closes all keys off its lines, and not trained again,
how many digits does it still get right? Where the lines carry what the algorithm needs, most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor

from abc_nb.biases import CLOSED, Attention, Bias
from abc_nb.calibration import Calibration, calibrate
from abc_nb.evaluation import correct_digits
from abc_nb.layouts import Layout
from abc_nb.lines import Line, Lines
from abc_nb.model import Transformer
from abc_nb.multihead import Record
from abc_nb.sampling import Batch

Averages = Mapping[tuple[Attention, int], Tensor]  # (head, query, key) by attention and layer
SHARES = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05)  # those that are tried, sparsest bias first
INTERPOLATES = 0.99  # exact match that a model needs before it is worth calibrating


@torch.inference_mode()
def average_attention(model: Transformer, batch: Batch, source: str = "weights") -> dict[tuple[Attention, int], Tensor]:
    """Step 2: attention (head, query, key) of each attention and layer, averaged over the batch.

    Teacher-forced, which is what decoding gives for problems that the model answers. Logits are
    averaged before softmax; what the causal mask closes has the lowest one instead of minus infinity.
    """
    kept = Record()
    model.eval()
    device = next(model.parameters()).device
    model(batch.source.to(device), batch.target[:, :-1].to(device), batch.layout, record=kept)
    found = kept.weights if source == "weights" else kept.logits
    means = {where: each.mean(0).cpu() for where, each in found.items()}
    return {where: each.nan_to_num(neginf=each[each.isfinite()].min().item()) for where, each in means.items()}


def read_lines(averages: Averages, layout: Layout, settings: Calibration) -> list[Line]:
    """Lines for every layer: each layer's own, or the last one's for all."""
    last = max(layer for _, layer in averages)
    lines = []
    for name, layer in averages:
        origin = last if settings.layers == "last" else layer
        own = calibrate(averages[name, origin], layout, name, settings, origin)
        lines += [replace(line, layer=layer) for line in own]
    return lines


def as_bias(lines: Sequence[Line], heads: int, settings: Calibration) -> Lines:
    return Lines(heads, tuple(lines), settings.floor, settings.empty)


def under(model: Transformer, bias: Bias) -> Transformer:
    """The same weights with another bias."""
    changed = Transformer(replace(model.config, bias=bias), model.embedding.num_embeddings)
    changed.load_state_dict(model.state_dict())
    return changed.to(next(model.parameters()).device).eval()


def skill(model: Transformer, batch: Batch) -> float:
    """Share of output tokens that the model gets right."""
    return correct_digits(model, batch).float().mean().item()


@dataclass(frozen=True)
class Calibrated:
    """A bias read out of a model, and what was found on the way."""

    bias: Lines
    share: float | None  # the threshold used; None where kappa decided
    tried: pd.DataFrame  # share, lines, skill (of the model under that bias, from 0 to 1)


def calibrate_model(model: Transformer, batch: Batch, settings: Calibration | None = None) -> Calibrated:
    """A bias from a model's own attention on `batch`, problems that it was trained on.

    Without a fixed share the sparsest bias is taken under which the model, as it is, still gets
    `keep` of its digits right; of all shares tried the lowest, if none does.
    """
    settings = settings or Calibration()
    averages = average_attention(model, batch, settings.source)
    heads, fixed = model.config.heads, settings.kappa is not None or settings.share is not None
    tried = []
    for share in (settings.share,) if fixed else SHARES:
        lines = read_lines(averages, batch.layout, replace(settings, share=share))
        bias = as_bias(lines, heads, settings)
        left = skill(under(model, as_bias([replace(line, value=0.0) for line in lines], heads, settings)), batch)
        tried.append((share, len(lines), left))
        if left >= settings.keep:
            break
    return Calibrated(bias, share, pd.DataFrame(tried, columns=["share", "lines", "skill"]))


def coverage(averages: Averages, bias: Lines, layout: Layout) -> pd.DataFrame:
    """Attention on kept lines by attention and decoding step: of all heads and layers the mean and the highest."""
    parts: dict[Attention, list[Tensor]] = {}
    for (name, layer), weights in averages.items():
        opened = bias.dense(layout, name, layer, bias.heads) > CLOSED
        parts.setdefault(name, []).append((weights * opened).sum(-1))  # (head, query)
    rows = []
    for name, masses in parts.items():
        mass = torch.cat(masses)
        steps = zip(mass.mean(0).tolist(), mass.amax(0).tolist(), strict=True)
        rows += [(name, step, mean, highest) for step, (mean, highest) in enumerate(steps)]
    return pd.DataFrame(rows, columns=["attention", "step", "mean", "highest"])


def diagnose(
    model: Transformer, batch: Batch, bias: Lines, left: float, settings: Calibration | None = None
) -> list[str]:
    """Why calibration cannot be expected to work, a sentence each; nothing if it can.

    `batch` holds problems of training length that the model was not trained on, `left` is the skill
    that it keeps under the bias.
    """
    settings = settings or Calibration()
    reasons = []
    exact = correct_digits(model, batch).all(1).float().mean().item()
    if exact < INTERPOLATES:
        reasons.append(f"the model answers {exact:.1%} of problems of training length: train it to {INTERPOLATES:.0%}")
    if left < settings.keep:
        reasons.append(
            f"under its own lines alone the model gets {left:.1%} of digits right, less than {settings.keep:.1%}: "
            "its attention follows other patterns than lines that extend"
        )
    covered = coverage(average_attention(model, batch), bias, batch.layout)
    for name, part in covered[covered.highest == 0].groupby("attention"):
        steps = ", ".join(str(step + 1) for step in part.step)
        reasons.append(f"no key that the model looks at is open in {name}-attention at output token {steps}")
    return reasons
