"""A bias for a whole model, read out of its own attention: every attention and layer (v4 appendix D)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd
import torch
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate import Calibration, calibrate, checked_settings, valid_means
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch
from abc_nb.training.evaluation import attention_of, correct_tokens

Averages = Mapping[tuple[Attention, int], Tensor]  # (head, query, key) by attention and layer
SHARES = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05)  # those that are tried, sparsest bias first


@dataclass(frozen=True)
class Calibrated:
    """A bias read out of a model, and what was found on the way."""

    bias: Lines
    tried: pd.DataFrame  # share (None where kappa decides), lines, skill (of the model under them, from 0 to 1)

    @property
    def skill(self) -> float:
        """Share of output tokens that the model gets right under the lines alone; 0 or 1 of `Determining`."""
        return float(self.tried.skill.iloc[-1])


def calibrate_model(model: Transformer, batch: Batch, settings: Calibration | None = None) -> Calibrated:
    """A bias from a model's own attention on `batch`, problems that it was trained on.

    Without a fixed share the sparsest bias is taken under which the model, as it is, still gets `keep` of its digits
    right; of all shares tried the lowest, if none does.
    """
    settings = checked_settings(settings)

    def skill(bias: Lines) -> float:
        return correct_tokens(model.with_bias(as_mask(bias)), batch).float().mean().item()

    return sparsest(average_attention(model, batch, settings.source), batch.layout, settings, skill)


def sparsest(
    averages: Averages,
    layout: Layout,
    settings: Calibration,
    skill_under: Callable[[Lines], float],
    shares: Sequence[float] = SHARES,
) -> Calibrated:
    """The sparsest bias under which a share `keep` of a model's tokens is right, or that of the fixed threshold.

    `skill_under` gives the share of output tokens that the model gets right under a bias, which closes all keys off its
    lines.
    """
    fixed = settings.kappa is not None or settings.share is not None
    tried, skill = [], cache(skill_under)  # two shares can give the same lines
    for share in (settings.share,) if fixed else shares:
        bias = bias_from_attention(averages, layout, replace(settings, share=share))
        tried.append((share, len(bias.lines), skill(replace(bias, floor=None, empty="closed"))))
        if tried[-1][-1] >= settings.keep:
            break
    return Calibrated(bias, pd.DataFrame(tried, columns=["share", "lines", "skill"]))


def as_mask(bias: Lines) -> Lines:
    """The lines without their values."""
    return replace(bias, lines=tuple(replace(line, value=0.0) for line in bias.lines))


def average_attention(model: Transformer, batch: Batch, source: str = "weights") -> dict[tuple[Attention, int], Tensor]:
    """Step 2: attention (head, query, key) of each attention and layer, averaged over the batch.

    Teacher-forced. Of logits, what the causal mask closes has the lowest one instead of minus infinity.
    """
    recorded = attention_of(model, batch, average=True)
    means = recorded.logits if source == "logits" else recorded.weights
    return {key: mean.cpu().nan_to_num(neginf=mean[mean.isfinite()].min().item()) for key, mean in means.items()}


def bias_from_attention(averages: Averages, layout: Layout, settings: Calibration | None = None) -> Lines:
    """The bias that averaged attention gives, any model's: each layer has its own lines, or all the last one's.

    `averages` are (head, query, key) by attention and layer, as in `{("cross", 0): ...}`; those that are not given have
    no line. Without a share or kappa, and for InputError, see `calibrate`.
    """
    settings, heads, lines = checked_settings(settings), heads_of(averages), list[Line]()
    last_layers = dict(sorted(averages))  # of each attention
    for name, layer in averages:
        origin = last_layers[name] if settings.layers == "last" else layer
        calibrated = calibrate(averages[name, origin], layout, name, settings, origin)
        lines += [replace(line, layer=layer) for line in calibrated]
    return Lines(heads, tuple(lines), settings.floor, settings.empty)


def heads_of(averages: Averages) -> int:
    """How many heads all attentions have; InputError if they differ, or where there is no attention."""
    if not isinstance(averages, Mapping) or not averages:
        raise InputError('give averaged attention by name and layer, as in {("cross", 0): attention}')
    heads = {len(attention) for attention in averages.values()}
    if len(heads) > 1:
        raise InputError(f"attentions of one bias have the same heads, not {sorted(heads)}: calibrate them apart")
    return heads.pop()


def coverage(averages: Averages, bias: Lines, layout: Layout) -> pd.DataFrame:
    """The share of attention that lies on lines, by attention and decoding step (from 0).

    Columns attention, step, mean and highest, of all heads and layers. Raises InputError for what are no weights
    of the bias's heads in this layout.
    """
    if (heads := heads_of(averages)) != bias.heads:
        raise InputError(f"the attention has {heads} heads and the bias {bias.heads}: give the bias read from it")
    masses: dict[Attention, list[Tensor]] = {}
    for (name, layer), attention in averages.items():
        weights = valid_means(attention, layout, name, Calibration(), layer)
        masses.setdefault(name, []).append((weights * bias.covers(layout, name, layer)).sum(-1))  # (head, query)
    rows = []
    for name, of_layers in masses.items():
        mass = torch.cat(of_layers)
        steps = zip(mass.mean(0).tolist(), mass.amax(0).tolist(), strict=True)
        rows += [(name, step, mean, highest) for step, (mean, highest) in enumerate(steps)]
    return pd.DataFrame(rows, columns=["attention", "step", "mean", "highest"])
