"""Weights: of low rank in LoRA, which at first change nothing and are merged; of 8 bits, kept exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import SAMPLER, TINY, build
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from abc_nb.model import lora
from abc_nb.model.eight_bits import packed, split, unpacked, value
from abc_nb.model.transformer import Transformer
from abc_nb.runs import runner
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name

CONFIG = replace(TINY, decoder_layers=2)


def outputs(model: Transformer) -> Tensor:
    batch = SAMPLER.test_batch(3, 5, seed=0)
    with torch.inference_mode():
        out: Tensor = model.eval()(batch.source, batch.target[:, :-1], batch.layout)
    return out


def adapted(rank: int = 2) -> Transformer:
    """A model under adaptation whose B, which starts at zero, has become something."""
    model = build(CONFIG)
    lora.adapt(model, rank, seed=0)
    for name, parameter in model.named_parameters():
        if name.endswith(".b"):
            torch.nn.init.normal_(parameter)
    return model


def rank_of(change: Tensor) -> int:
    """How many directions a change has that are more than rounding."""
    values = torch.linalg.svdvals(change)
    return int((values > 1e-4 * values[0]).sum())


def is_adapted(name: str) -> bool:
    return name.endswith((".query.weight", ".key.weight"))


def test_adaptation_changes_no_output_at_first_follows_from_its_seed_and_disturbs_no_other_random_numbers() -> None:
    matrices = []
    for seed in (0, 0, 1):
        model = build(CONFIG)
        before, expected = torch.random.get_rng_state(), outputs(model)
        lora.adapt(model, 2, seed)
        torch.testing.assert_close(torch.random.get_rng_state(), before)
        torch.testing.assert_close(outputs(model), expected)
        matrices.append(torch.cat([p.flatten() for name, p in model.named_parameters() if name.endswith(".a")]))
    torch.testing.assert_close(matrices[0], matrices[1], rtol=0, atol=0)
    assert not torch.equal(matrices[0], matrices[2])


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_merged_model_is_an_ordinary_one_whose_change_has_no_more_than_the_rank(rank: int) -> None:
    plain, model = build(CONFIG), adapted(rank)
    before, expected = {name: p.clone() for name, p in plain.state_dict().items()}, outputs(model)
    lora.merge(model)
    after = model.state_dict()
    changes = {name: after[name] - old for name, old in before.items() if not torch.equal(after[name], old)}
    assert {*changes} == {name for name in before if is_adapted(name)}
    assert {rank_of(change) for change in changes.values()} == {rank}
    assert all(parameter.requires_grad for parameter in model.parameters())
    plain.load_state_dict(after)  # the same names
    for merged in (model, plain):
        torch.testing.assert_close(outputs(merged), expected)


def test_an_adapted_run_changes_queries_and_keys_alone(run: Run) -> None:
    recipe = replace(run.spec.training, optimizer="adamw", learning_rate=0.05)
    adapting = replace(run.spec, identity=Name("successor", "lora", 10), parent=run.spec, start="parent", rank=2)
    child = runner.ensure(replace(adapting, training=recipe), 0)
    before, after = run.model().state_dict(), child.model().state_dict()
    assert {*after} == {*before} and child.bias() is None
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    assert changed == {name for name in before if is_adapted(name)}
    assert all(1 <= rank_of(after[name] - before[name]) <= 2 for name in changed)


NUMBERS = st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)
TENSORS = arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=5), elements=NUMBERS)


@given(TENSORS)
def test_rounding_moves_no_weight_by_more_than_a_hundredth_of_the_largest_of_its_row(numbers: np.ndarray) -> None:
    whole, exponent = split(torch.from_numpy(numbers))
    rows = numbers.reshape(-1, *(numbers.shape[-1:] or (1,))).astype(float)
    exact = whole.numpy().reshape(rows.shape).astype(float) * 2.0 ** exponent.numpy()[:, None]
    assert np.array_equal(value(whole, exponent).numpy().reshape(rows.shape), exact)
    assert (np.abs(exact - rows) <= np.abs(rows).max(1, keepdims=True) / 100).all()


@given(TENSORS, TENSORS)
def test_rounded_weights_are_kept_in_a_byte_each_and_all_weights_exactly(first: np.ndarray, second: np.ndarray) -> None:
    rounded = value(*split(torch.from_numpy(first)))
    weights = {"rounded": rounded, "other": torch.from_numpy(second)}
    kept = packed(weights)
    assert kept["rounded"].dtype == torch.int8
    read_back = unpacked(kept)
    assert read_back.keys() == weights.keys() and all(read_back[name].equal(weights[name]) for name in weights)
