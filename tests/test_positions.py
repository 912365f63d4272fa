"""Position encodings: each one against its paper's definition, written as a loop, and where tokens stand."""

import cmath
import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from helpers import SAMPLER, TINY, build, table
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.positions import Index, NoPosition, PositionEncoding, Relative, Rotary, Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout, SourceIndex, binary_aligned, binary_natural, unary
from abc_nb.specs.spec import spec
from abc_nb.training.problems import loss_of, phases
from audit.models import MODERN
from audit.positions.digits import Abacus, Coupling, Learned, TableCoupling
from audit.positions.distances import (
    Fire,
    InterpolatedRotary,
    Kerple,
    NTKRotary,
    Randomized,
    Sandwich,
    ShortRelative,
    TransformerXL,
)

SIZE, HEADS = 8, 3
QUERIES, KEYS = torch.tensor([0, 1, 2, 9]), torch.tensor([30, 3, 2, 1, 0])  # counted from either end


def attention_with(encoding: PositionEncoding) -> MultiHeadAttention:
    """With parameters that all matter."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(HEADS * SIZE, HEADS, 0.0, encoding)
    for parameter in attention.parameters():
        with torch.no_grad():
            parameter.add_(0.1 * torch.rand_like(parameter))
    return attention


def waves(position: float, width: int) -> list[float]:
    """Sine and cosine of each frequency (Vaswani et al. 2017)."""
    angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
    return [wave(angle) for angle in angles for wave in (math.sin, math.cos)]


def plain_index(layout: Layout, counted: SourceIndex = "right") -> Index:
    return Index(torch.from_numpy(layout.source_index(counted)), torch.arange(layout.target_length))


def placed(encoding: PositionEncoding, layout: Layout, training: bool = False) -> Index:
    return encoding.place(plain_index(layout), layout, SIZE, training)


@pytest.mark.parametrize("period", [None, 1, 3, 7])
def test_sinusoids_are_the_formula_of_vaswani_of_the_index_modulo_the_period(period: int | None) -> None:
    index = [[0, 1, 2, 7], [60, 400, 5, 6]]  # of two samples
    expected = [[waves(place if period is None else place % period, 12) for place in sample] for sample in index]
    embedding = Sinusoidal(period).embedding(torch.tensor(index), 12)
    torch.testing.assert_close(embedding, torch.tensor(expected), rtol=0, atol=1e-4)


ANGLES: list[tuple[Rotary, Callable[[int, int, float], float]]] = [  # of a position and a pair, so much beyond training
    (Rotary(), lambda position, pair, _: position * 10000 ** (-2 * pair / SIZE)),
    (InterpolatedRotary(12), lambda position, pair, beyond: position / beyond * 10000 ** (-2 * pair / SIZE)),
    (NTKRotary(12), lambda at, pair, beyond: at * (10000 * beyond ** (SIZE / (SIZE - 2))) ** (-2 * pair / SIZE)),
]


@pytest.mark.parametrize("width", [1, 6, 10, 40])
@pytest.mark.parametrize(("encoding", "angle"), ANGLES)
def test_a_rotation_is_multiplication_by_a_complex_number(
    encoding: Rotary, angle: Callable[[int, int, float], float], width: int
) -> None:
    """Up to the training length, 12 tokens, all three are RoPE."""
    layout = unary(width)
    x = torch.randn(2, 3, layout.source_length, SIZE, generator=torch.Generator().manual_seed(0))
    index = Index(torch.arange(layout.source_length) - layout.units, torch.arange(layout.target_length))
    rotated = encoding.rotate(x, encoding.place(index, layout, SIZE, training=False).source)
    for column in range(layout.source_length):
        for pair in range(SIZE // 2):
            turn = cmath.exp(1j * angle(column - layout.units, pair, max(1, layout.source_length / 12)))
            before, after = (
                torch.complex(*part[:, :, column, 2 * pair : 2 * pair + 2].unbind(-1)) for part in (x, rotated)
            )
            torch.testing.assert_close(after, before * turn, rtol=1e-4, atol=1e-5)


Formula = Callable[[nn.Module, Tensor, int, int, int], Tensor | float]  # of a query, head, i, j


def shaw(position: nn.Module, query: Tensor, head: int, i: int, j: int) -> Tensor:
    """q_i a_clip(j - i) / sqrt(d), equation 4."""
    return query @ position.get_parameter("table")[max(-3, min(3, j - i)) + 3] / math.sqrt(SIZE)


def transformer_xl(position: nn.Module, query: Tensor, head: int, i: int, j: int) -> Tensor:
    """(q + v) W R_(i-j) / sqrt(d), section 3.3; the query has its bias u already."""
    key = position.get_parameter("key.weight") @ torch.tensor(waves(i - j, SIZE * HEADS))
    here = query + position.get_parameter("v_minus_u")[head, 0]
    return here @ key[head * SIZE : (head + 1) * SIZE] / math.sqrt(SIZE)


def kerple(position: nn.Module, query: Tensor, head: int, i: int, j: int) -> float:
    r1, r2 = (position.get_parameter(name).flatten()[head].item() for name in ("r1", "r2"))
    return -r1 * math.log(1 + r2 * abs(i - j))


def sandwich(position: nn.Module, query: Tensor, head: int, i: int, j: int) -> float:
    product = sum(a * b for a, b in zip(waves(i, 16), waves(j, 16), strict=True))
    return product / (8 * (head + 1) / HEADS)


def fire(position: nn.Module, query: Tensor, head: int, i: int, j: int, last: int = 30) -> Tensor:
    """Section 3; for keys after the query the function is odd, and the last key takes the query's place as limit."""
    c, limit = position.get_parameter("c").item(), 4 * position.get_parameter("multiple").item()
    quotient = math.log(c * abs(i - j) + 1) / math.log(c * max(limit, i if j <= i else last) + 1)
    first, _, second = position.get_submodule("network").children()
    hidden = torch.relu(first(torch.tensor([math.copysign(quotient, i - j)])))
    out: Tensor = second(hidden)[head]
    return out


FORMULAS: list[tuple[PositionEncoding, Formula]] = [
    (NoPosition(), lambda *_: 0.0), (Relative(3), shaw), (TransformerXL(), transformer_xl), (Kerple(), kerple),
    (Sandwich(16), sandwich), (Fire(), fire),
]  # fmt: skip


@pytest.mark.parametrize("keys", [KEYS, torch.arange(31)], ids=["few", "many"])  # Transformer-XL has a way for each
@pytest.mark.parametrize(("encoding", "formula"), FORMULAS)
@torch.no_grad()
def test_attention_is_the_formula_one_query_and_key_at_a_time(
    encoding: PositionEncoding, formula: Formula, keys: Tensor
) -> None:
    """With a bias, too, that closes some keys."""
    attention = attention_with(encoding)
    x, memory = (torch.randn(1, len(index), HEADS * SIZE) for index in (QUERIES, keys))
    bias = torch.randn(HEADS, len(QUERIES), len(keys)).masked_fill(torch.rand(len(keys)) < 0.3, -math.inf)
    attended = attention.attend(x, attention.keys_values(memory, keys), bias, (QUERIES, keys))
    query = attention.query(x).view(-1, HEADS, SIZE)
    key, value = (part(memory).view(-1, HEADS, SIZE) for part in (attention.key, attention.value))
    mixed = torch.empty_like(query)
    for head in range(HEADS):
        for row, i in enumerate(QUERIES.tolist()):
            query_of_head = query[row, head]
            logits = bias[head, row].clone()
            for column, j in enumerate(keys.tolist()):
                logits[column] += query_of_head @ key[column, head] / math.sqrt(SIZE)
                logits[column] += formula(attention.position, query_of_head, head, i, j)
            mixed[row, head] = logits.softmax(-1) @ value[:, head]
    torch.testing.assert_close(attended, attention.out(mixed.flatten(1))[None], rtol=1e-4, atol=2e-5)


def test_a_parameter_of_kerple_below_its_floor_is_put_back_on_it_and_learns() -> None:
    position = attention_with(Kerple()).position
    r2 = position.get_parameter("r2")
    torch.nn.init.constant_(r2, -1.0)
    logits = Kerple().logits(position, torch.zeros(1, HEADS, len(QUERIES), SIZE), (QUERIES, KEYS))
    logits.sum().backward()
    assert (r2 == 0.01).all() and r2.grad is not None and (r2.grad != 0).all()


def test_a_learned_vector_of_the_index_is_added_to_each_token() -> None:
    layout = unary(5)
    model = Transformer(replace(TINY, encoder_layers=0, position=Learned(20)), 15)
    tokens = torch.randint(15, (2, layout.source_length), generator=torch.Generator().manual_seed(1))
    encoded, table = model.encode(tokens, model.layout_inputs(layout)), model.get_parameter("position.weight")
    expected = 8**0.5 * (model.embedding.weight[tokens] + table[: layout.source_length].flip(0))
    torch.testing.assert_close(encoded, expected)
    assert table.shape == (20, 8)


@pytest.mark.parametrize(("width", "second"), [(3, 3), (30, 30), (8, 1), (9, 2)])
@pytest.mark.parametrize("counted", ["right", "place"])
@pytest.mark.parametrize("encoding", [Kerple(), Sandwich(), Fire()])
def test_the_digit_that_a_query_needs_is_at_distance_zero(
    encoding: PositionEncoding, counted: SourceIndex, width: int, second: int
) -> None:
    """Those of both operands by place; from the right, those of the last one that is not short."""
    layout = binary_natural(width, "+", second)
    source, target = encoding.place(plain_index(layout, counted), layout, SIZE, training=False)
    last = layout.operands[1:] if second == width else layout.operands[:1]
    for operand in layout.operands if counted == "place" else last:
        assert source[operand.columns.tolist()].tolist() == target[: operand.places].tolist()


@pytest.mark.parametrize("task", ["addition", "parity", "listops-max"])
def test_specs_say_how_many_tokens_they_train_on(task: str) -> None:
    chosen = spec(f"{task}-rope-ntk")
    assert isinstance(chosen.model.position, InterpolatedRotary)
    batches = [chosen.sampler.training_batch(0, step, 4) for step in range(40)]
    assert chosen.model.position.trained == max(batch.source.shape[1] for batch in batches)


ABACUS, COUPLING = Abacus(starts=1), Coupling(starts=1)


@pytest.mark.parametrize(
    ("encoding", "layout", "source", "target"),
    [
        (ABACUS, unary(3), [0, 3, 2, 1, 0], [0, 1, 2, 3]),  # $ 3 2 1 &
        (ABACUS, unary(2, "SM"), [0, 0, 2, 1, 0], [0, 1, 2]),  # $ SM 2 1 &
        (ABACUS, binary_natural(3, "*", 1), [0, 3, 2, 1, 0, 1, 0], [0, 1, 2, 3]),  # $ 3 2 1 * 1 &
        (ABACUS, binary_aligned(3, "+"), [0, 0, 3, 3, 2, 2, 1, 1, 0], [0, 1, 2, 3]),  # $ + 3 3 2 2 1 1 &
        (COUPLING, unary(3), [0, 4, 3, 2, 0], [1, 2, 3, 4]),  # the operator and SOS stand beside the units
        (COUPLING, unary(2, "SM"), [0, 1, 3, 2, 0], [1, 2, 3]),
        (COUPLING, binary_natural(3, "*", 1), [0, 4, 3, 2, 1, 2, 0], [1, 2, 3, 4]),
        (COUPLING, binary_aligned(2, "+"), [0, 1, 3, 3, 2, 2, 0], [1, 2, 3]),
    ],
)
def test_places_are_counted_from_the_units_of_each_number(
    encoding: Abacus, layout: Layout, source: list[int], target: list[int]
) -> None:
    index = placed(encoding, layout)
    assert (index.source.tolist(), index.target.tolist()) == (source, target)


def test_what_is_no_digit_stays_at_zero_wherever_counting_starts() -> None:
    shifted = Abacus().shifted(torch.tensor([0, 3, 2, 1, 0]), torch.tensor([[0], [4]]), stride=2)
    assert shifted.tolist() == [[0, 3, 2, 1, 0], [0, 7, 6, 5, 0]]
    moved = TableCoupling(starts=7).shifted(torch.tensor([[2, 1, 0], [0, 5, 6]]), torch.tensor([[3 + 4 * 7 + 6 * 49]]))
    assert moved.tolist() == [[[5, 5, 0], [0, 9, 12]]], "column, row and place start each for itself"


@pytest.mark.parametrize(("encoding", "width", "start"), [(Abacus, 7, 46), (Coupling, 7, 46), (Abacus, 120, 0)])
def test_evaluation_starts_in_the_middle_of_trainings_starts(encoding: type[Abacus], width: int, start: int) -> None:
    """With as many places below the number as above it; a number longer than the starts begins at the first."""
    first, middle = (placed(encoding(starts=101), unary(width), training) for training in (True, False))
    for here, there in zip(first, middle, strict=True):
        assert there.tolist() == [place + start if place else 0 for place in here.tolist()]


@pytest.mark.parametrize(("position", "count"), [(Sinusoidal(3), 3), (Abacus(64, starts=50), 50), (Sinusoidal(), 1)])
def test_each_problem_of_a_training_step_starts_at_random_if_it_may(position: PositionEncoding, count: int) -> None:
    model = build(replace(TINY, position=position))
    drawn = [torch.as_tensor(phases(model, 0, step, 500)) for step in (0, 1, 0)]
    assert {*torch.stack(drawn).flatten().tolist()} == {*range(count)}
    assert torch.equal(drawn[0], drawn[2])
    if isinstance(position, Abacus):
        assert len(model.get_parameter("position.weight")) == 63 + 49 + 1  # to the last place, from the last start


def test_coupled_positions_are_the_papers_counted_from_the_other_end() -> None:
    """Section 3, from start 1, as the authors count `653+049=` and the answer 702, units first."""
    problem, answer = [2, 3, 4, 5, 2, 3, 4, 5], [4, 3, 2]
    index = placed(COUPLING, binary_natural(3, "+", 3))
    dollar, *middle, ampersand = index.source.tolist()
    assert (dollar, ampersand) == (0, 0)
    assert [*middle, index.target[0]] == [6 - position for position in problem]
    assert index.target[1:].tolist() == [6 - position for position in answer]


@pytest.mark.parametrize(("digits", "rows"), [(3, 2), (2, 4), (1, 1)])
def test_numbers_of_a_table_are_the_papers_but_that_a_row_begins_with_the_end_of_the_last(
    digits: int, rows: int
) -> None:
    """Cho et al. 2025, from start 1; there a sign stands before each row, at (1, 1 + row, 1 + row)."""
    layout = table((digits, rows), (rows, digits + 1))
    index = placed(TableCoupling(starts=1), layout)
    first, second = (index.source[operand.columns.tolist()].tolist() for operand in layout.operands)
    assert first == [[2 + place, 0, 0] for place in range(digits)]
    assert second == [[0, 1 + row, 0] for row in range(rows)]
    assert {tuple(index.source[column].tolist()) for column, _ in layout.symbols} == {(0, 0, 0)}
    expected = [[1, 1, 1]]
    for row in range(rows):
        expected += [[2 + column, 1 + row, 2 + row + column] for column in range(digits)]
        expected += [[1, 2 + row, 2 + row + digits]]  # the next row's sign, but for the place
    assert index.target.tolist() == expected


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [unary(5), binary_natural(7, "+", 7)])
def test_random_positions_are_in_order_and_the_digits_stand_where_they_are_needed(
    layout: Layout, training: bool
) -> None:
    source, target = placed(Randomized(longest=100), layout, training)
    ordered, last = source.flip(0), layout.operands[-1]
    assert (ordered.diff() > 0).all() and ordered[0] >= 0 and ordered[-1] < 100
    assert target[: last.places].tolist() == source[last.columns.tolist()].tolist()
    assert (target.diff() > 0).all() and {*target.tolist()} <= {*source.tolist()}


def test_evaluation_draws_one_subset_a_length_whatever_else_was_drawn() -> None:
    for width in range(1, 50):
        torch.rand(3)
        once, again, other = (placed(Randomized(drawn=drawn), unary(width)).source.tolist() for drawn in (0, 0, 1))
        assert once == again != other


@pytest.mark.parametrize(
    ("encoding", "widest"),
    [(Learned(12), 10), (Abacus(12, starts=1), 11), (Coupling(12, starts=1), 10), (Randomized(longest=12), 10)],
)
@pytest.mark.parametrize("training", [True, False])
def test_what_has_no_position_is_an_error_that_says_how_many_there_are(
    encoding: PositionEncoding, widest: int, training: bool
) -> None:
    index = placed(encoding, unary(widest), training)
    assert max(index.source.max(), index.target.max()) == 11
    with pytest.raises(InputError, match=r"^13 positions are too many: .* 12$"):
        placed(encoding, unary(widest + 1), training)
    with pytest.raises(InputError, match="need an output that is a table"):
        placed(TableCoupling(), unary(widest), training)


def test_the_target_of_a_product_may_go_on_beyond_its_source() -> None:
    """$ and nine digits, *, a digit, &; ten output tokens, the first one at the units."""
    source, target = placed(Randomized(longest=13), binary_natural(9, "*", 1), training=True)
    assert (source.flip(0).tolist(), target.tolist()) == ([*range(13)], [*range(3, 13)])


# ---- models with these encodings


@pytest.mark.parametrize("name", MODERN)
def test_every_parameter_of_the_encoding_gets_a_gradient(name: str) -> None:
    model, batch = build(replace(TINY, position=MODERN[name].position)), SAMPLER.training_batch(0, 0, 16)
    loss, _ = loss_of(model.train(), batch, phases(model, 0, 0, 16))
    loss.backward()
    owned = {key: p for key, p in model.named_parameters() if "position." in key}
    gradients = {key: p.grad for key, p in model.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    for key in owned:
        moves = cast(Tensor, gradients[key]) != 0
        assert moves.any() or key.endswith("network.2.bias"), key  # the same for all keys of a head: softmax drops it


@pytest.mark.parametrize(("name", "clip"), [("addition-rpe-short-by-place", 4), ("parity-rpe-short", 11)])
def test_training_shows_every_vector_of_a_short_clip(name: str, clip: int) -> None:
    """Cross-attention has all distances from one end of the clip to the other, in the narrowest problems too."""
    chosen = spec(name)
    assert chosen.model.position == ShortRelative(clip)
    layout = chosen.task.layout(min(chosen.sampler.widths))
    distances = layout.source_index(chosen.model.source_index)[None, :] - np.arange(layout.target_length)[:, None]
    assert {*range(-clip, clip + 1)} <= {*distances.flatten().tolist()}
