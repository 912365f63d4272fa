"""Weights of 8 bits: rounded no further than that, kept exactly, and those of other weights left alone."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import nn

from abc_nb.model.eight_bits import packed, round_weights, split, unpacked, value

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
    found = unpacked(kept)
    assert found.keys() == weights.keys() and all(found[name].equal(weights[name]) for name in weights)


def test_a_rounded_model_stays_as_it_is_in_bfloat16() -> None:
    model = nn.Linear(5, 3)
    before = [weights.detach().clone() for weights in model.parameters()]
    round_weights(model)
    for weights, own in zip(model.parameters(), before, strict=True):
        assert not weights.equal(own) and weights.bfloat16().float().equal(weights)
