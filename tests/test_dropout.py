"""Dropout: as many elements as it says, none of them twice in the same place, and the mean kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from abc_nb.model.dropout import Dropout, drop


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_others_scaled(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.full((97, 1009), 3.0)  # not a multiple of what one random number decides about
    dropped = drop(x, rate)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept].unique(), torch.tensor([3.0 / (1 - rate)]), rtol=1e-4, atol=0)
    low, high = binom.interval(1 - 1e-9, x.numel(), rate)
    assert low <= int((~kept).sum()) <= high
    by_column = (~kept).sum(0)
    low, high = binom.interval(1 - 1e-9, len(x), rate)
    assert (by_column >= low).all() and (by_column <= high).all()


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(1)
    kept = (drop(torch.ones(400_000), 0.3) != 0).double()
    for lag in (1, 2, 3, 4, 8, 64):
        correlation = torch.corrcoef(torch.stack([kept[:-lag], kept[lag:]]))[0, 1].item()
        assert abs(correlation) < 5 / kept.numel() ** 0.5


@given(st.floats(0.05, 0.95), st.integers(0, 2**31))
def test_what_is_dropped_follows_from_the_seed_and_gradients_from_what_is_dropped(rate: float, seed: int) -> None:
    x = torch.linspace(1, 2, 77, requires_grad=True)
    torch.manual_seed(seed)
    first = drop(x, rate)
    torch.manual_seed(seed)
    assert torch.equal(first, drop(x, rate))
    (gradient,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient * x, first)
    assert not torch.equal(drop(x, 0.5), drop(x, 0.5)), "the next one drops others"


def test_nothing_happens_without_a_rate_or_in_evaluation() -> None:
    x = torch.ones(5)
    assert drop(x, 0.0) is drop(x, 0.5, training=False) is Dropout(0.0)(x) is Dropout(0.5).eval()(x) is x
