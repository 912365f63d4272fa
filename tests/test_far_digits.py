"""Far digits are closed at test alone, and those are far that a plain loop calls far."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

from abc_nb.analysis import attention
from abc_nb.bias.base import CLOSED, Attention, Causal
from abc_nb.bias.window import Near
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.specs.spec import spec


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


def test_far_digits_are_closed_at_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open it is asked as it is, closed with `Near` and the same weights."""
    run = store.Run(spec("addition-nope"), 2, {}, lambda name: pd.DataFrame(), None, Path())
    model = run.spec.build(0)
    monkeypatch.setattr(store.Run, "model", lambda self: model)
    asked = []

    def answered(tested: Transformer, batch: Batch) -> Tensor:
        assert all(torch.equal(a, b) for a, b in zip(tested.parameters(), model.parameters(), strict=True))
        asked.append(tested.config.bias)
        return torch.arange(len(batch.source)) < (3 if tested is model else 7)

    monkeypatch.setattr(attention, "exact_match", answered)
    table = attention.far_digits_closed([run], [5, 9], samples=10)
    assert asked == 2 * [Causal()] + 2 * [Near(2)]
    shares = {f"{length} digits, {how}": share for how, share in (("open", 30), ("closed", 70)) for length in (5, 9)}
    assert table[2].to_dict() == shares
