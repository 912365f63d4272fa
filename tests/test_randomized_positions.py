"""Randomized positions: random and shared in training, evenly spread in evaluation."""

from __future__ import annotations

import pytest
import torch

from abc_nb.errors import InputError
from abc_nb.layouts import Layout, binary_natural, unary
from abc_nb.positions import Index, Randomized


def placed(position: Randomized, layout: Layout, training: bool) -> Index:
    index = Index(torch.arange(layout.source_length).flip(0), torch.arange(layout.target_length))
    return position.place(index, layout, 4, training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [unary(5), binary_natural(7, "+", 7)])
def test_positions_are_distinct_in_order_and_the_same_for_equal_indices(layout: Layout, training: bool) -> None:
    source, target = placed(Randomized(longest=100), layout, training)
    ordered = source.flip(0)
    assert (ordered.diff() > 0).all()
    assert ordered[0] >= 0 and ordered[-1] < 100
    torch.testing.assert_close(target, ordered[: len(target)], rtol=0, atol=0)


def test_training_draws_them_anew_from_the_generator() -> None:
    position, layout = Randomized(), unary(6)
    torch.manual_seed(0)
    first, second = (placed(position, layout, training=True).source.tolist() for _ in range(2))
    assert first != second
    torch.manual_seed(0)
    assert placed(position, layout, training=True).source.tolist() == first


def test_every_subset_is_as_likely() -> None:
    torch.manual_seed(0)
    position, layout = Randomized(longest=5), unary(1)  # three tokens of five: ten subsets
    drawn = [tuple(placed(position, layout, training=True).source.tolist()) for _ in range(2000)]
    counts = torch.tensor([drawn.count(subset) for subset in {*drawn}])
    assert len(counts) == 10
    assert counts.min() > 150 and counts.max() < 250


def test_in_evaluation_they_are_where_training_has_them_on_average() -> None:
    torch.manual_seed(0)
    position, layout = Randomized(longest=99), unary(7)  # nine tokens: 10, 20, ... of 99, counted from 1
    assert placed(position, layout, training=False).source.flip(0).tolist() == [*range(9, 99, 10)]
    drawn = torch.stack([placed(position, layout, training=True).source for _ in range(2000)]).float()
    average = placed(position, layout, training=False).source
    torch.testing.assert_close(drawn.mean(0), average.float(), rtol=0, atol=2)


def test_as_many_tokens_as_the_range_fit_and_more_are_an_error() -> None:
    position = Randomized(longest=12)
    for training in (True, False):
        assert placed(position, unary(10), training).source.tolist() == [*range(11, -1, -1)]
        with pytest.raises(InputError, match="13 tokens are too many: this model draws their positions from 12"):
            placed(position, unary(11), training)
