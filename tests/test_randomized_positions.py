"""Randomized positions: random and shared, in training anew, in evaluation the same for each length."""

from __future__ import annotations

import pytest
import torch

from abc_nb.common.errors import InputError
from abc_nb.model.positions import Index, Randomized
from abc_nb.problems.layouts import Layout, binary_natural, unary


def placed(position: Randomized, layout: Layout, training: bool) -> Index:
    index = Index(torch.arange(layout.source_length).flip(0), torch.arange(layout.target_length))
    return position.place(index, layout, 4, training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [unary(5), binary_natural(7, "+", 7)])
def test_positions_are_distinct_in_order_and_the_digits_stand_where_they_are_needed(
    layout: Layout, training: bool
) -> None:
    source, target = placed(Randomized(longest=100), layout, training)
    ordered = source.flip(0)
    assert (ordered.diff() > 0).all()
    assert ordered[0] >= 0 and ordered[-1] < 100
    last = layout.operands[-1]
    torch.testing.assert_close(target[: last.places], source[torch.from_numpy(last.columns.copy())], rtol=0, atol=0)
    assert (target.diff() > 0).all() and {*target.tolist()} <= {*source.tolist()}


def test_the_target_of_a_product_may_go_on_beyond_its_source() -> None:
    layout = binary_natural(
        9, "*", 1
    )  # $ and nine digits, *, a digit, &; ten output tokens, the first one at the units
    source, target = placed(Randomized(longest=13), layout, training=True)
    assert (source.flip(0).tolist(), target.tolist()) == ([*range(13)], [*range(3, 13)])


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


def test_evaluation_draws_one_subset_a_length_whatever_else_was_drawn() -> None:
    first, second = [], []
    for seed, found in enumerate((first, second)):
        torch.manual_seed(seed)
        found += [placed(Randomized(), unary(width), training=False).source.tolist() for width in range(1, 50)]
    assert first == second
    other = [placed(Randomized(drawn=1), unary(width), training=False).source.tolist() for width in range(1, 50)]
    assert all(one != another for one, another in zip(first, other, strict=True))


def test_the_subsets_of_evaluation_are_spread_like_those_of_training() -> None:
    units = [placed(Randomized(longest=99), unary(width), training=False).source[-1].item() for width in range(1, 50)]
    expected = [100 / (width + 3) - 1 for width in range(1, 50)]  # the mean least of `width + 2` of 0 to 98
    assert sum(units) / sum(expected) == pytest.approx(1, abs=0.25)


def test_as_many_tokens_as_the_range_fit_and_more_are_an_error() -> None:
    position = Randomized(longest=12)
    for training in (True, False):
        assert placed(position, unary(10), training).source.tolist() == [*range(11, -1, -1)]
        with pytest.raises(InputError, match="13 tokens are too many: this model draws their positions from 12"):
            placed(position, unary(11), training)
