"""Benchmarks: what is timed is what users get, and it is right, or there is no number."""

import sys

import pytest
import torch

from abc_nb.common import paths
from abc_nb.specs.spec import spec

sys.path.insert(0, str(paths.ROOT / "benchmarks"))

import baselines
import run


def test_a_model_that_is_not_right_has_no_time() -> None:
    """In the profile smoke, which learns nothing: all is made, from the plain model to the last round of practice."""
    with pytest.raises(SystemExit, match=r"addition-abc, seed 0, is right on 0\.0% at 60 digits, and has to be"):
        run.from_nothing(0, profile="smoke")


def test_the_baseline_decodes_what_one_pass_says() -> None:
    chosen = spec("addition-vanilla", changes=["model.encoder_layers=1"])
    torch.manual_seed(0)
    model = baselines.TorchTransformer(chosen.model, len(chosen.task.vocabulary)).eval()
    batch = chosen.sampler.test_batch(3, 8, 0)
    said = baselines.decode_from_the_start(model, batch)
    full = torch.cat([batch.target[:, :1], said], dim=1)
    logits = model.decode(full[:, :-1], model.transformer.encoder(model.embed(batch.source)))
    assert torch.equal(logits.argmax(-1), said) and model.loss(batch).isfinite()
