"""Decoder-only models: one sequence, one softmax, and the same layouts, biases and calibration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from abc_nb import InputError
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.of_model import bias_from_attention, calibrate_model
from abc_nb.model.decoders import CrossDecoder, SequenceDecoder
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Batch
from abc_nb.specs.models import DECODER_ONLY
from abc_nb.specs.spec import Spec, spec
from abc_nb.specs.studies import ARITHMETIC
from abc_nb.training.evaluation import greedy, record
from abc_nb.training.trainer import Trainer


def made(name: str, seed: int = 0) -> tuple[Spec, Transformer, Batch]:
    """A new small model, with weights larger than usual, and a few problems."""
    found = spec(name, "smoke")
    model = found.build(seed).eval()
    assert isinstance(model.decoder, SequenceDecoder)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(1.5)
    return found, model, found.sampler.training_batch(seed, 0, 8)


@pytest.mark.parametrize("task", ARITHMETIC)
@pytest.mark.parametrize("name", [name for name in DECODER_ONLY if DECODER_ONLY[name].calibration is None])
@torch.no_grad()
def test_dense_biases_open_keys_and_decoding_step_by_step_agree(task: str, name: str) -> None:
    _, model, batch = made(f"{task}-{name}")
    inputs, layout = batch.target[:, :-1], batch.layout
    wanted = model(batch.source, inputs, layout, dense=True)
    frame, caches = model.start(batch.source, layout)
    steps = torch.stack([model.step(inputs[:, i], i, frame, caches) for i in range(layout.target_length)], 1)
    for found in (model(batch.source, inputs, layout, dense=False), steps):
        assert torch.allclose(found, wanted, atol=1e-4)
    assert torch.allclose(model(batch.source, inputs[:, :3], layout), wanted[:, :3], atol=1e-4)


def test_attention_on_problem_and_answer_adds_up_to_one() -> None:
    _, model, batch = made("n-by-1-decoder-rpe")
    deep = Transformer(replace(model.config, decoder_layers=2), model.embedding.num_embeddings)
    weights = record(deep, batch).weights
    both = {(name, layer) for name in ("self", "cross") for layer in (0, 1)}
    assert weights.keys() == both | {("source", 0)}, "nobody looks at the problem's states after the last layer"
    for layer in (0, 1):
        total = weights["cross", layer].sum(-1) + weights["self", layer].sum(-1)
        assert torch.allclose(total, torch.ones_like(total), atol=1e-5)
    problem = weights["source", 0]
    assert torch.allclose(problem.sum(-1), torch.ones(problem.shape[:-1]), atol=1e-5)
    assert (problem.triu(1) == 0).all()


def test_a_head_keeps_no_line_where_it_hardly_looks() -> None:
    layout = spec("addition-decoder-abs").sampler.layout(6)
    steps, cross = layout.target_length, torch.zeros(2, layout.target_length, layout.source_length)
    own = torch.zeros(2, steps, steps)
    columns = layout.operands[0].columns.tolist()
    for step in range(steps):
        cross[0, step, columns[min(step, len(columns) - 1)]], own[0, step, step] = 0.9, 0.1
        cross[1, step, columns[min(step, len(columns) - 1)]], own[1, step, step] = 0.1, 0.9
    found = bias_from_attention({("cross", 0): cross, ("self", 0): own}, layout, Calibration(share=0.3))
    assert {(line.attention, line.head) for line in found.lines} == {("cross", 0), ("self", 1)}


@pytest.mark.slow
def test_a_model_is_trained_calibrated_and_retrained_under_its_lines() -> None:
    found = spec("successor-decoder-vanilla", "smoke")
    model = found.build(0)
    Trainer(model, found.sampler, found.training, 0).run()
    bias = calibrate_model(model, found.sampler.calibration_batch(0, 50)).bias
    child = spec("successor-decoder-abc", "smoke").build(0, bias)
    before = [weights.clone() for weights in child.parameters()]
    Trainer(child, found.sampler, found.training, 0).run()
    assert isinstance(child.decoder, SequenceDecoder) and child.config.bias == bias
    assert any(not torch.equal(old, new) for old, new in zip(before, child.parameters(), strict=True))
    batch = found.sampler.test_batch(30, 2, 0)
    said: Tensor = greedy(child, batch.source, batch.layout, found.task.token(SOS))
    assert said.shape == (2, batch.layout.target_length)


def test_a_decoder_only_model_has_no_encoder() -> None:
    with pytest.raises(InputError, match="has no encoder"):
        ModelConfig(kind="decoder-only", encoder_layers=1)
    assert isinstance(spec("addition-vanilla").build(0).decoder, CrossDecoder)
