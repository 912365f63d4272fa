"""Mistakes are found where hand-made answers have them, and far digits are those that a naive loop calls far."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from abc_nb.analysis import error_analysis
from abc_nb.bias.base import CLOSED, Attention, Causal, Near
from abc_nb.experiments.experiment import experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store


@pytest.mark.parametrize("layout", [unary(7), binary_natural(6, "+", 6), binary_natural(5, "*", 1)], ids=str)
@pytest.mark.parametrize("reach", [0, 2])
def test_far_digits_are_closed_and_nothing_else(layout: Layout, reach: int) -> None:
    """A key is far by the digit that its token is: the first input of the decoder is `$`, the next the units."""
    places = {
        int(column): place
        for one in layout.operands
        if one.places == layout.width  # a factor's single digit is needed at every place
        for place, column in enumerate(one.columns)
    }
    written = [None, *range(layout.target_length)]  # the place of each token that the decoder has read
    names: tuple[Attention, ...] = ("cross", "self")
    for name in names:
        found = Near(reach).dense(layout, name, 0, 4)[0]
        usual = Causal().dense(layout, name, 0, 4)
        for query in range(layout.target_length):
            for key in range(found.shape[1]):
                place = places.get(key) if name == "cross" else written[key]
                away = place is not None and (abs(place - query) if name == "cross" else query - place) > reach
                expected = CLOSED if away else 0.0 if usual is None else usual[0, query, key]
                assert found[query, key] == expected


def test_far_digits_are_closed_at_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open it is asked as it is, closed with `Near` and the same weights."""
    run = store.Run(experiment("addition-nope"), 2, Path(), {})
    model = run.experiment.build(0)
    monkeypatch.setattr(store.Run, "model", lambda self: model)
    asked = []

    def answered(tested: Transformer, batch: Batch) -> Tensor:
        assert all(torch.equal(a, b) for a, b in zip(tested.parameters(), model.parameters(), strict=True))
        asked.append(tested.config.bias)
        return torch.arange(len(batch.source)) < (3 if tested is model else 7)

    monkeypatch.setattr(error_analysis, "exact_match", answered)
    found = error_analysis.without_far_digits([run], [5, 9], samples=10)
    assert asked == 2 * [Causal(), Near(2)]
    assert found.loc[0].to_list() == ["addition", "nope", 10, 2, 5, 10, pytest.approx(30), pytest.approx(70)]
    assert found.length.to_list() == [5, 9]
