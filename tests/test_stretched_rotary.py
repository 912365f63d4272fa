"""RoPE beyond its training length: interpolated positions, and the NTK-aware base."""

from __future__ import annotations

import cmath

import pytest
import torch
from torch import Tensor

from abc_nb.model.positions import Index, InterpolatedRotary, NTKRotary, Rotary
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.specs.spec import spec

SIZE = 8
LONG = unary(40)  # 42 tokens
BOTH = [InterpolatedRotary(12), NTKRotary(12)]


def rotated(encoding: Rotary, layout: Layout, x: Tensor) -> Tensor:
    """The units stand at zero."""
    index = Index(torch.arange(layout.source_length) - layout.units, torch.arange(layout.target_length))
    return encoding.attention(SIZE, 2).rotate(x, encoding.place(index, layout, SIZE, training=False).source)


def numbers(layout: Layout) -> Tensor:
    return torch.randn(1, 2, layout.source_length, SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("encoding", BOTH)
@pytest.mark.parametrize("width", [1, 6, 10])
def test_up_to_the_training_length_it_is_rope(encoding: Rotary, width: int) -> None:
    layout = unary(width)
    x = numbers(layout)
    torch.testing.assert_close(rotated(encoding, layout, x), rotated(Rotary(), layout, x), rtol=0, atol=0)


@pytest.mark.parametrize("encoding", BOTH)
def test_beyond_it_each_pair_turns_as_published(encoding: InterpolatedRotary) -> None:
    x, stretch = numbers(LONG), 42 / 12
    found = rotated(encoding, LONG, x)
    for column in range(LONG.source_length):
        position = column - LONG.units
        for pair in range(SIZE // 2):
            if isinstance(encoding, NTKRotary):
                angle = position * (10000 * stretch ** (SIZE / (SIZE - 2))) ** (-2 * pair / SIZE)
            else:
                angle = position / stretch * 10000 ** (-2 * pair / SIZE)
            before = torch.view_as_complex(x[:, :, column, 2 * pair : 2 * pair + 2].contiguous())
            after = torch.view_as_complex(found[:, :, column, 2 * pair : 2 * pair + 2].contiguous())
            torch.testing.assert_close(after, before * cmath.exp(1j * angle), rtol=1e-4, atol=1e-5)


def test_interpolated_positions_stay_within_the_training_length() -> None:
    index = Index(torch.arange(42), torch.arange(41))
    source, target = InterpolatedRotary(12).place(index, LONG, SIZE, training=False)
    assert source.max() - source.min() < 12 and target.max() < 12
    assert source[LONG.units] == target[0] == 0
    torch.testing.assert_close(source[:, 0].diff(), torch.full((41,), 12 / 42))


def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest() -> None:
    factor = NTKRotary(12).factor(3.5, SIZE)
    assert factor[0] == 1
    assert factor[-1].item() == pytest.approx(1 / 3.5)
    assert (factor.diff() < 0).all()
    assert NTKRotary(12).factor(3.5, 2).tolist() == [1]


@pytest.mark.parametrize("encoding", BOTH)
def test_products_depend_on_the_offset_alone(encoding: Rotary) -> None:
    x = numbers(LONG)[:, :, :1].expand(-1, -1, LONG.source_length, -1)
    products = (turned := rotated(encoding, LONG, x))[0, 0] @ turned[0, 0].T
    for offset in (0, 1, 7):
        diagonal = products.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", ["rope-interpolated", "rope-ntk"])
@pytest.mark.parametrize("profile", ["quick", "paper"])
@pytest.mark.parametrize("task", ["addition", "parity", "listops-max"])
def test_experiments_say_how_many_tokens_they_train_on(task: str, model: str, profile: str) -> None:
    found = spec(f"{task}-{model}", profile)
    assert isinstance(found.model.position, InterpolatedRotary)
    batches = [found.sampler.training_batch(0, step, 4) for step in range(40)]
    assert found.model.position.trained == max(batch.source.shape[1] for batch in batches)


def test_default_is_the_source_of_addition() -> None:
    assert spec("addition-rope-ntk").model.position == NTKRotary()
    assert binary_natural(9, "+", 9).source_length == 21
