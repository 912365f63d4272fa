"""Products of given sizes: what a model is right on, against Python's integers."""

import numpy as np
import pytest
import torch
from helpers import integers

import abc_nb
from abc_nb.analysis import products
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import NUMBERS, Task


def test_a_shipped_model_multiplies_long_thin_products() -> None:
    found = products.of_sizes(abc_nb.load("n-by-n-abs-unpractised"), [(3, 40), (40, 3)], 3)
    assert found.values.tolist() == [["3 x 40", 160, 3, 3], ["40 x 3", 123, 3, 3]]


def test_a_model_made_wrong_is_wrong_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    run = abc_nb.load("n-by-n-abs-unpractised")
    model = run.model()
    torch.nn.init.zeros_(model.head.weight)
    monkeypatch.setattr(run.__class__, "model", lambda self: model)
    assert products.of_sizes(run, [(3, 4)], 5).right.tolist() == [0]


@pytest.mark.parametrize("base", range(2, 17))
def test_factors_of_training_are_at_most_a_million(base: int) -> None:
    """2^20, in every base; the sizes of base 10 are those of every base where they fit."""
    task = Task("n-by-n", base)
    sizes = Sampler(task, width_count=3).widths
    assert len(sizes) == 5 and (base > 10 or sizes == Sampler(Task("n-by-n"), width_count=3).widths)
    for size in sizes:
        assert all(base**places - 1 <= NUMBERS for places in size)
        drawn = task.draw(np.empty(0, np.int64), 200, size, np.random.default_rng(0))
        assert all(max(integers(digits, base)) <= NUMBERS for digits in drawn)
