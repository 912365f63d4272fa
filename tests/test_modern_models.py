"""Each later baseline as a model: its parameters are trained, its tests fit, and training shows what it needs."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from helpers import SAMPLER, TINY, build
from torch import Tensor

from abc_nb.specs.spec import spec
from abc_nb.training.problems import loss_of, phases
from audit.models import MODERN
from audit.positions.distances import ShortRelative


@pytest.mark.parametrize("name", MODERN)
def test_every_parameter_of_the_encoding_gets_a_gradient(name: str) -> None:
    model, batch = build(replace(TINY, position=MODERN[name].position)), SAMPLER.training_batch(0, 0, 16)
    loss, _ = loss_of(model.train(), batch, phases(model, 0, 0, 16))
    loss.backward()
    owned = {key: p for key, p in model.named_parameters() if "position." in key}
    gradients = {key: p.grad for key, p in model.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    for key in owned:
        moves = cast(Tensor, gradients[key]) != 0
        assert moves.any() or key.endswith("network.2.bias"), key  # the same for all keys of a head: softmax drops it


@pytest.mark.parametrize(("name", "clip"), [("addition-rpe-short-by-place", 4), ("parity-rpe-short", 11)])
def test_training_shows_every_vector_of_a_short_clip(name: str, clip: int) -> None:
    """Cross-attention has all distances from one end of the clip to the other, in the narrowest problems too."""
    chosen = spec(name)
    assert chosen.model.position == ShortRelative(clip)
    layout = chosen.task.layout(min(chosen.sampler.widths))
    distances = layout.source_index(chosen.model.source_index)[None, :] - np.arange(layout.target_length)[:, None]
    assert {*range(-clip, clip + 1)} <= {*distances.flatten().tolist()}
