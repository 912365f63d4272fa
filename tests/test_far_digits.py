"""Far digits are closed at test alone, and those are far that a plain loop calls far."""

import pytest

from abc_nb.bias.base import CLOSED, Attention, Causal
from abc_nb.bias.window import Near
from abc_nb.problems.layouts import Layout, binary_natural, unary


@pytest.mark.parametrize("name", ["cross", "self"])
@pytest.mark.parametrize("layout", [unary(7), binary_natural(6, "+", 6), binary_natural(5, "*", 1)], ids=str)
@pytest.mark.parametrize("reach", [0, 2])
def test_far_digits_are_closed_and_nothing_else(layout: Layout, reach: int, name: Attention) -> None:
    """A key is far by the digit that its token is: the first input of the decoder is `$`, the next the units."""
    long = [one for one in layout.operands if one.places == layout.width]  # a short factor is needed at every place
    places = {int(column): place for one in long for place, column in enumerate(one.columns)}
    written = [None, *range(layout.target_length)]  # the place of each token that the decoder has read
    dense, usual = Near(reach).dense(layout, name, 0, 4)[0], Causal().dense(layout, name, 0, 4)
    for query in range(layout.target_length):
        for key in range(dense.shape[1]):
            place = places.get(key) if name == "cross" else written[key]
            away = place is not None and (abs(place - query) if name == "cross" else query - place) > reach
            assert dense[query, key] == (CLOSED if away else 0.0 if usual is None else usual[0, query, key])
