"""Position encodings against their papers' formulas, written as loops."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.model.positions import Index, NoPosition, PositionEncoding, Relative, Rotary, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import binary_natural

PLAIN = [NoPosition(), Sinusoidal(), Sinusoidal(3), Rotary(), Relative()]


def test_sinusoidal_is_the_formula_of_vaswani() -> None:
    index, width = [0, 1, 2, 7, 60, 400], 12
    expected = torch.empty(len(index), width, dtype=torch.float64)
    for row, position in enumerate(index):
        for i in range(width // 2):
            angle = position / 10000 ** (2 * i / width)
            expected[row, 2 * i], expected[row, 2 * i + 1] = math.sin(angle), math.cos(angle)
    found = Sinusoidal().embedding(torch.tensor(index), width)
    torch.testing.assert_close(found, expected.float(), rtol=0, atol=1e-4)


@given(st.integers(1, 9))
def test_cyclic_positions_repeat_with_their_period(period: int) -> None:
    table = Sinusoidal(period).embedding(torch.arange(40), 8)
    torch.testing.assert_close(table[period:], table[:-period], rtol=0, atol=0)
    torch.testing.assert_close(table[:period], Sinusoidal().embedding(torch.arange(period), 8), rtol=0, atol=0)
    assert len(table.unique(dim=0)) == period


def test_each_sample_of_a_batch_has_positions_of_its_own() -> None:
    index = torch.tensor([[0, 1, 2], [5, 6, 7]])
    table = Sinusoidal(3).embedding(index, 8)
    for row in range(2):
        torch.testing.assert_close(table[row], Sinusoidal(3).embedding(index[row], 8), rtol=0, atol=0)
    assert not torch.isclose(table[0], table[1]).all()


def test_rotation_is_multiplication_by_a_complex_number() -> None:
    size, index = 8, [0, 1, 5, 33]
    x = torch.randn(2, 3, len(index), size, generator=torch.Generator().manual_seed(0))
    found = Rotary().attention(size, heads=2).rotate(x, torch.tensor(index))
    for row, position in enumerate(index):
        for pair in range(size // 2):
            turn = cmath.exp(1j * position * 10000 ** (-2 * pair / size))
            before = torch.view_as_complex(x[:, :, row, 2 * pair : 2 * pair + 2].contiguous())
            after = torch.view_as_complex(found[:, :, row, 2 * pair : 2 * pair + 2].contiguous())
            torch.testing.assert_close(after, before * turn, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 200))
def test_rotated_products_depend_on_the_offset_alone(query_at: int, key_at: int, shift: int) -> None:
    query, key = torch.randn(2, 1, 1, 1, 16, generator=torch.Generator().manual_seed(1))
    rotate = Rotary().attention(16, heads=1).rotate

    def product(i: int, j: int) -> torch.Tensor:
        return (rotate(query, torch.tensor([i])) * rotate(key, torch.tensor([j]))).sum()

    torch.testing.assert_close(product(query_at + shift, key_at + shift), product(query_at, key_at), rtol=0, atol=1e-3)


def test_rotated_products_do_depend_on_the_offset() -> None:
    x = torch.ones(1, 1, 4, 8)
    rotated = Rotary().attention(8, heads=1).rotate(x, torch.arange(4))
    products = rotated[0, 0] @ rotated[0, 0, 0]
    assert len(products.round(decimals=3).unique()) == 4


@pytest.mark.parametrize("clip", [1, 3, 16])
def test_relative_logits_are_shaws_equation_with_clipped_offsets(clip: int) -> None:
    """e_ij - q_i k_j / sqrt(d) = q_i a_clip(j - i) / sqrt(d)."""
    torch.manual_seed(0)
    size, queries, keys = 4, [0, 1, 2, 9], [0, 1, 2, 3, 30]
    position = Relative(clip).attention(size, heads=2)
    (table,) = (parameter.detach() for parameter in position.parameters())
    query = torch.randn(2, 3, len(queries), size)
    expected = torch.empty(2, 3, len(queries), len(keys))
    for batch in range(2):
        for head in range(3):
            for row, i in enumerate(queries):
                for column, j in enumerate(keys):
                    vector = table[max(-clip, min(clip, j - i)) + clip]
                    product = sum(float(a * b) for a, b in zip(query[batch, head, row], vector, strict=True))
                    expected[batch, head, row, column] = product / math.sqrt(size)
    index = (torch.tensor(queries), torch.tensor(keys))
    torch.testing.assert_close(position.logits(query, index), expected, check_stride=False)


@pytest.mark.parametrize("encoding", [NoPosition(), Rotary(), Relative()])
def test_encodings_inside_attention_leave_embeddings_alone(encoding: PositionEncoding) -> None:
    assert encoding.embedding(torch.arange(5), 8) is None


@pytest.mark.parametrize("encoding", [NoPosition(), Sinusoidal(), Sinusoidal(3)])
def test_encodings_of_embeddings_leave_attention_alone(encoding: PositionEncoding) -> None:
    x = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    attention = encoding.attention(4, heads=2)
    torch.testing.assert_close(attention.rotate(x, torch.arange(5)), x, rtol=0, atol=0)
    assert attention.logits(x, (torch.arange(5), torch.arange(5))) is None
    assert [*attention.parameters()] == []


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("encoding", PLAIN)
def test_plain_encodings_take_the_index_as_it_is(encoding: PositionEncoding, training: bool) -> None:
    layout = binary_natural(4, "+", 4)
    index = Index(torch.arange(layout.source_length), torch.arange(layout.target_length))
    assert encoding.place(index, layout, 8, training) is index
    assert encoding.trained_on(layout) is encoding
    assert encoding.table(8) is None
    shifted = encoding.shifted(index.source, torch.tensor([[0], [2]]), stride=2)
    assert shifted.tolist() == [index.source.tolist(), (index.source + 4).tolist()]


def test_only_a_cyclic_index_starts_anywhere() -> None:
    assert [encoding.phases() for encoding in PLAIN] == [1, 1, 3, 1, 1]


@pytest.mark.parametrize(
    ("encoding", "end", "parameters", "expected"),
    [
        (NoPosition(), "right", 75, [-0.07609, 0.39936, -0.41759, -0.44438]),
        (NoPosition(), "left", 75, [-0.07609, 0.39936, -0.41759, -0.44438]),
        (Sinusoidal(), "right", 75, [-0.19369, 0.29663, -0.43956, -0.40778]),
        (Sinusoidal(), "left", 75, [-0.19600, 0.29913, -0.43680, -0.40669]),
        (Sinusoidal(3), "right", 75, [-0.12022, 0.52655, -0.60000, -0.20952]),
        (Sinusoidal(3), "left", 75, [-0.13316, 0.53105, -0.61187, -0.20108]),
        (Rotary(), "right", 75, [-0.06256, 0.38289, -0.41825, -0.42157]),
        (Rotary(), "left", 75, [-0.08506, 0.39583, -0.43281, -0.41934]),
        (Relative(2), "right", 80, [-1.10487, -1.01935, -0.09671, -1.11881]),
        (Relative(2), "left", 80, [-1.09956, -1.01261, -0.09925, -1.12226]),
    ],
)
def test_models_give_what_they_gave_when_the_shipped_runs_were_trained(
    encoding: PositionEncoding, end: str, parameters: int, expected: list[float]
) -> None:
    """Initial weights from a seed and the logits of the last token, written down then."""
    layout, rng = binary_natural(4, "+", 4), torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    model = Transformer(ModelConfig(8, 2, 16, 1, 2, position=encoding, source_index=end), 15).eval()
    source, target = (torch.randint(15, (3, length), generator=rng) for length in (11, 5))
    assert len(model.state_dict()) == parameters
    found = model(source, target, layout)[0, -1, :4]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=2e-5)
