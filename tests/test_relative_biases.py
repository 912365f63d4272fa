"""Transformer-XL, KERPLE, Sandwich and FIRE against their papers' formulas, one query and key at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.positions import AttentionPosition, Fire, Index, Kerple, PositionEncoding, Sandwich, TransformerXL
from abc_nb.problems.layouts import SourceIndex, binary_natural

SIZE, HEADS = 4, 3
ENCODINGS = [TransformerXL(), Kerple(), Sandwich(), Fire()]
QUERIES, KEYS = torch.tensor([0, 1, 2, 9]), torch.tensor([30, 3, 2, 1, 0])  # counted from either end


def module(encoding: PositionEncoding) -> AttentionPosition:
    """With parameters that all matter."""
    torch.manual_seed(0)
    made = encoding.attention(SIZE, HEADS)
    for parameter in made.parameters():
        with torch.no_grad():
            parameter.add_(0.1 * torch.rand_like(parameter))
    return made


def added(position: AttentionPosition, queries: Tensor, keys: Tensor, query: Tensor | None = None) -> Tensor:
    """(batch, head, query, key)"""
    query = torch.ones(1, HEADS, len(queries), SIZE) if query is None else query
    logits = position.logits(query, (queries, keys))
    assert logits is not None
    return logits.expand(len(query), HEADS, len(queries), len(keys)).detach()


def by_loop(queries: Tensor, keys: Tensor, formula: Callable[[int, int, int], float]) -> Tensor:
    cells = [[[formula(h, int(i), int(j)) for j in keys] for i in queries] for h in range(HEADS)]
    return torch.tensor(cells)[None]


@pytest.mark.parametrize("encoding", [TransformerXL(), Kerple(), Sandwich()])
@pytest.mark.parametrize("shift", [1, 40])
def test_only_the_offset_matters(encoding: PositionEncoding, shift: int) -> None:
    position = module(encoding)
    here, there = added(position, QUERIES, KEYS), added(position, QUERIES + shift, KEYS + shift)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-6)  # sinusoids that are turned are rounded anew
    assert not torch.isclose(added(position, QUERIES, KEYS + shift), here).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_keys_of_each_query_alone_get_the_logits_of_all_keys(encoding: PositionEncoding) -> None:
    position, query = module(encoding), torch.randn(2, HEADS, len(QUERIES), SIZE)
    near = torch.tensor([[0, 4], [1, 2], [4, 3], [0, 1]])
    logits = position.logits(query, (QUERIES, KEYS), near)
    assert logits is not None
    expected = added(position, QUERIES, KEYS, query).gather(-1, near.expand(2, HEADS, 4, 2))
    torch.testing.assert_close(logits.expand_as(expected), expected)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_embeddings_and_products_are_left_alone(encoding: PositionEncoding) -> None:
    x = torch.randn(1, HEADS, 5, SIZE)
    assert encoding.embedding(QUERIES, 8) is None
    assert encoding.table(8) is None
    torch.testing.assert_close(module(encoding).rotate(x, torch.arange(5)), x, rtol=0, atol=0)


# ---- Transformer-XL ---------------------------------------------------------------------------------


def test_transformer_xl_is_the_four_terms_of_its_paper() -> None:
    """(W_q x + u) k + (W_q x + v) W_R R_(i-j), over sqrt(d); u is the bias of the query projection."""
    torch.manual_seed(0)
    width = SIZE * HEADS
    attention = MultiHeadAttention(width, HEADS, 0.0, TransformerXL())
    nn.init.normal_(attention.get_parameter("position.v_minus_u"))
    x, memory = torch.randn(1, 4, width), torch.randn(1, 5, width)
    content, w_r = x @ attention.query.weight.T, attention.get_parameter("position.key.weight")
    u = attention.query.bias.view(HEADS, SIZE)
    v = u + attention.get_parameter("position.v_minus_u")[:, 0]
    keys, values = attention.keys_values(memory, KEYS)
    expected = torch.empty(1, HEADS, 4, 5)
    for row, i in enumerate(QUERIES.tolist()):
        for column, j in enumerate(KEYS.tolist()):
            angles = [(i - j) / 10000 ** (2 * m / width) for m in range(width // 2)]
            r = w_r @ torch.tensor([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
            for h in range(HEADS):
                part = slice(h * SIZE, (h + 1) * SIZE)
                first = (content[0, row, part] + u[h]) @ keys[0, h, column]
                expected[0, h, row, column] = (first + (content[0, row, part] + v[h]) @ r[part]) / SIZE**0.5
    mixed = attention.attend(x, (keys, values), None, (QUERIES, KEYS))
    torch.testing.assert_close(mixed, attention.out((expected.softmax(-1) @ values).transpose(1, 2).flatten(2)))


def test_transformer_xl_is_the_same_where_distances_are_many() -> None:
    """More of them than the width: sinusoids are turned then, instead of looked up."""
    torch.manual_seed(0)
    position = module(TransformerXL())
    queries, keys = (torch.randperm(2048)[:count].sort().values for count in (9, 40))
    query = torch.randn(2, HEADS, 9, SIZE)
    found = position.logits(query, (queries, keys))
    assert found is not None
    alone = [position.logits(query, (queries, key[None])) for key in keys]  # few distances each
    torch.testing.assert_close(found, torch.cat([part for part in alone if part is not None], -1), rtol=0, atol=2e-4)


def test_transformer_xl_tells_before_from_after() -> None:
    logits = added(module(TransformerXL()), torch.tensor([5]), torch.tensor([3, 7]))
    assert not torch.isclose(logits[..., 0], logits[..., 1]).any()


# ---- KERPLE -----------------------------------------------------------------------------------------


def test_kerple_is_its_papers_logarithm() -> None:
    position = module(Kerple())
    r1, r2 = (position.get_parameter(name).flatten().tolist() for name in ("r1", "r2"))
    expected = by_loop(QUERIES, KEYS, lambda h, i, j: -r1[h] * math.log(1 + r2[h] * abs(i - j)))
    torch.testing.assert_close(added(position, QUERIES, KEYS), expected)


def test_kerple_never_grows_with_distance_whatever_its_parameters() -> None:
    position = module(Kerple())
    for parameter in position.parameters():
        nn.init.normal_(parameter, std=3.0)
    logits = added(position, torch.tensor([0]), torch.arange(50))
    assert (logits.diff(dim=-1) < 0).all()
    assert (logits[..., 0] == 0).all()


def test_a_parameter_of_kerple_below_its_floor_is_put_back_on_it_and_learns() -> None:
    position = module(Kerple())
    r1, r2 = (position.get_parameter(name) for name in ("r1", "r2"))
    nn.init.constant_(r2, -1.0)
    logits = position.logits(torch.zeros(1, len(r1), len(QUERIES), 4), (QUERIES, KEYS))
    assert logits is not None
    logits.sum().backward()
    assert (r2 == 0.01).all()
    assert r2.grad is not None and (r2.grad != 0).all()


@pytest.mark.parametrize("encoding", [Kerple(), Sandwich()], ids=str)
@pytest.mark.parametrize("counted", ["right", "place"])
@pytest.mark.parametrize(("width", "second"), [(3, 3), (30, 30), (8, 1), (9, 2)])
def test_the_digits_that_a_query_needs_are_at_distance_zero(
    encoding: PositionEncoding, counted: SourceIndex, width: int, second: int
) -> None:
    """Those of both operands by place; from the right, those of the last one that is not short."""
    layout = binary_natural(width, "+", second)
    index = Index(torch.from_numpy(layout.source_index(counted)), torch.arange(layout.target_length))
    source, target = encoding.place(index, layout, SIZE, training=False)
    largest = added(module(encoding), target, source)[0].amax(dim=-1, keepdim=True)
    closest = added(module(encoding), target, source)[0] == largest
    operands = (
        layout.operands if counted == "place" else layout.operands[1:] if second == width else layout.operands[:1]
    )
    for place in range(width):
        columns = sorted(int(one.columns[place]) for one in operands if place < one.places)
        assert set(columns) <= set(closest[:, place].nonzero()[:, 1].tolist())
        assert all(closest[:, place].sum(-1) <= len(columns) + (second < width))  # the sign may stand at a place, too


# ---- Sandwich ---------------------------------------------------------------------------------------


def test_sandwich_is_the_product_of_two_sinusoids() -> None:
    def sinusoid(position: int) -> list[float]:
        return [wave(position / 10000 ** (2 * m / 16)) for m in range(8) for wave in (math.sin, math.cos)]

    def formula(h: int, i: int, j: int) -> float:
        return sum(a * b for a, b in zip(sinusoid(i), sinusoid(j), strict=True)) / (8 * (h + 1) / HEADS)

    expected = by_loop(QUERIES, KEYS, formula)
    torch.testing.assert_close(added(module(Sandwich(size=16)), QUERIES, KEYS), expected, rtol=1e-5, atol=1e-5)


# ---- FIRE -------------------------------------------------------------------------------------------


def test_fire_is_its_papers_function_where_keys_come_before_queries() -> None:
    position, queries = module(Fire()), torch.arange(12)
    c, limit = position.get_parameter("c").item(), 4 * position.get_parameter("multiple").item()
    first, _, second = position.get_submodule("network").children()
    assert 4 < limit < 12
    logits = added(position, queries, queries)
    for i in range(12):
        for j in range(i + 1):
            quotient = math.log(c * (i - j) + 1) / math.log(c * max(limit, i) + 1)
            hidden = torch.relu(first(torch.tensor([quotient])))
            torch.testing.assert_close(logits[0, :, i, j], second(hidden), rtol=1e-4, atol=1e-5)


def test_fire_sees_quotients_between_minus_one_and_one_at_any_length() -> None:
    position, seen = module(Fire()), []
    position.get_submodule("network").register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]))
    added(position, torch.arange(300), torch.arange(500).flip(0))
    added(position, torch.tensor([299]), torch.arange(500))  # one step of decoding
    assert all(quotient.abs().max() <= 1 for quotient in seen)
    assert (seen[0].min().item(), seen[0].max().item()) == pytest.approx((-1, 1), abs=1e-4)
    torch.testing.assert_close(seen[0][299].flip(0), seen[1][0])


@pytest.mark.parametrize("counted", ["right", "place"])
def test_fire_gives_the_digit_that_a_query_needs_the_same_at_any_length(counted: SourceIndex) -> None:
    position, found = module(Fire()), []
    for width in (3, 30, 100):
        layout = binary_natural(width, "+", width)
        index = Index(torch.from_numpy(layout.source_index(counted)), torch.arange(layout.target_length))
        source, target = Fire().place(index, layout, SIZE, training=False)
        columns = torch.from_numpy(layout.operands[1].columns.copy())
        found.append(added(position, target, source)[0][:, torch.arange(width), columns])
    every = torch.cat(found, dim=1)
    torch.testing.assert_close(every, every[:, :1].expand_as(every))


def test_fire_tells_keys_after_the_first_query_apart() -> None:
    """With max(i, j) as the limit they would all have the quotient -1."""
    logits = added(module(Fire()), torch.tensor([0]), torch.arange(40))
    assert (logits[0, :, 0].diff(dim=-1).abs() > 0).all()


def test_fire_depends_on_the_offset_alone_below_its_threshold() -> None:
    position = module(Fire(first_limit=100))
    here, there = added(position, QUERIES, KEYS), added(position, QUERIES + 40, KEYS + 40)
    torch.testing.assert_close(here, there)
    far = added(position, QUERIES + 400, KEYS + 400)
    assert not torch.isclose(here, far).all()
