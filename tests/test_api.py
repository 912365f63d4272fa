"""What Python offers: names, bad arguments, and the documented way from attention to a bias."""

import re
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Folders

import abc_nb
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.specs.spec import spec


def test_what_is_no_seed_or_number_of_problems_is_an_input_error(folders: Folders) -> None:
    with pytest.raises(InputError, match="a seed of -1 is not possible: give a whole number from 0 on"):
        abc_nb.load("addition-vanilla", seed=-1)
    with pytest.raises(InputError, match="a seed of '1' is not possible"):
        abc_nb.load("addition-abc", seed="1")  # type: ignore[arg-type]
    sampler = spec("addition-vanilla", "smoke").sampler
    with pytest.raises(InputError, match="0 problems of 6 digits are too few: ask for one at least"):
        abc_nb.evaluate(spec("addition-vanilla", "smoke").build(0), sampler, [(6, 0)])
    assert not folders.runs.exists()


def test_the_documented_way_from_attention_to_a_bias_runs_as_it_stands() -> None:
    """Planted anti-diagonals come out as lines, and as a bias for a thousand digits."""
    text = (paths.ROOT / "docs" / "transformers.md").read_text()
    *_, read, applied, own = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    places = torch.arange(8)
    averaged = torch.full((2, 8, 8, 9), 0.01)
    averaged[:, :, places[:7], 7 - places[:7]] = 0.9
    names: dict[str, Any] = {"abc_nb": abc_nb, "pandas": pd, "averaged": averaged}
    exec(read, names)
    expected = {(layer, head, 0) for layer in (0, 1) for head in range(8)}
    assert {(line.layer, line.head, line.offset) for line in names["bias"].lines} == expected
    assert names["lines"].offset.to_list() == [0] * 16
    assert names["covered"]["mean"].to_list() == pytest.approx([0.9] * 7 + [0.01], abs=1e-6)
    names |= {"x": torch.randn(2, 1001, 16), "memory": torch.randn(2, 1002, 16)}
    names["cross_attention"] = torch.nn.MultiheadAttention(16, 8, batch_first=True)
    exec(applied, names)
    assert names["mixed"].isfinite().all(), "the step of the end has no line"
    assert (names["longer"][:, torch.arange(1000), 1000 - torch.arange(1000)] == 0).all()
    exec(own, names)
    assert names["calibrated"].bias.lines
