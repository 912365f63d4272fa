"""What tests of calibration share: a model of two layers, its answers taken as right, random averages."""

import torch
from helpers import SAMPLER, build
from torch import Tensor

from abc_nb.bias.base import Attention, key_count
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS, Layout
from abc_nb.problems.sampling import Batch
from abc_nb.training.evaluation import greedy

TWO_LAYERS = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, position=Sinusoidal(3))
INFINITY = float("inf")
WHERE: list[tuple[Attention, int]] = [("self", 0), ("cross", 0), ("self", 1), ("cross", 1)]


def two_layers() -> Transformer:
    return build(TWO_LAYERS)


def problems(size: int = 6) -> Batch:
    return SAMPLER.calibration_batch(0, size)


def answered(model: Transformer, size: int = 6) -> Batch:
    """Problems whose right answer is whatever the model says."""
    batch = problems(size)
    said = greedy(model, batch.source, batch.layout, SAMPLER.task.token(SOS))
    return Batch(batch.source, torch.cat([batch.target[:, :1], said], dim=1), batch.layout)


def averages(layout: Layout, heads: int = 2, seed: int = 0) -> dict[tuple[Attention, int], Tensor]:
    """Random attention of two layers."""
    rng = torch.Generator().manual_seed(seed)
    shapes = {(name, layer): (heads, layout.target_length, key_count(layout, name)) for name, layer in WHERE}
    logits = {where: 3 * torch.randn(shape, generator=rng) for where, shape in shapes.items()}
    future = torch.ones(layout.target_length, layout.target_length).triu(1).bool()
    for where in (("self", 0), ("self", 1)):
        logits[where] = logits[where].masked_fill(future, -INFINITY)
    return {where: each.softmax(-1) for where, each in logits.items()}
