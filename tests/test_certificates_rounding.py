"""The bound on rounding: no evaluation in float32, in any order of sums, is further from float64 than it says."""

from copy import deepcopy
from functools import lru_cache

import numpy as np
import pytest
import torch
from certifying import bias_of, lines_of, model_of, sampler_of, table_model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from abc_nb import certify_model
from abc_nb.bias.base import CLOSED
from abc_nb.certificates import few_keys
from abc_nb.certificates.certify import Margins, contexts_of
from abc_nb.certificates.contexts import Block, Contexts, Shape
from abc_nb.certificates.rounding import Rounding
from abc_nb.certificates.states import States
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import evaluating

U = 2.0**-24
CASES = [
    ("addition", "window", Sinusoidal(3), "pre"),
    ("addition", "lines", NoPosition(), "pre"),
    ("successor", "decoder-only", Sinusoidal(3), "pre"),
    ("n-by-n", "lines", NoPosition(), "pre"),
    ("addition", "lines", Sinusoidal(3), "none"),
    ("successor", "decoder-only", NoPosition(), "none"),
]
shared = lru_cache(contexts_of)


def with_contexts(
    task: str, kind: str, position: PositionEncoding, seed: int = 0, norm: str = "pre"
) -> tuple[Transformer, Contexts]:
    tables = task == "n-by-n"
    sampler = Sampler(Task(task, 2)) if tables else sampler_of(task, aligned=kind == "window")
    model = table_model(sampler.task) if tables else model_of(sampler, bias_of(task, kind), position, seed, norm=norm)
    return model, shared(model.config, sampler)


def some_contexts(contexts: Contexts, number: int, rows: int = 40) -> tuple[Shape, Block]:
    """Some contexts of one of the shapes."""
    shape = [*contexts.shapes][number % len(contexts.shapes)]
    block = next(block for block in contexts.blocks(shape) if len(block.right))
    chosen = np.random.default_rng(number).choice(len(block.right), rows)
    return shape, Block(block.values[chosen], block.right[chosen])


def final(rules: Rounding, contexts: Contexts, shape: Shape, block: Block) -> tuple[Tensor, Tensor]:
    """The last states of contexts and their errors."""
    states = States(rules, shape.leaves, contexts.task.base, 0).take(block.values)
    with torch.inference_mode():
        x, error = states.layer(shape.root)(torch.arange(len(block)))
    return x.double(), error.double()


def shuffled(model: Transformer, rng: np.random.Generator) -> Transformer:
    """The same function with its heads, hidden numbers and numbers of a head in another order: other orders of sums."""
    found = deepcopy(model)
    size = model.config.head_size
    with torch.no_grad():
        for module in found.modules():
            if hasattr(module, "out"):
                first = np.arange(0, len(module.out.bias), size)[:, None]
                order, other = (torch.from_numpy((first + rng.permutation(size)).ravel()) for _ in range(2))
                for linear in (module.query, module.key):
                    permute(linear, order)
                permute(module.value, other)
                module.out.weight.copy_(module.out.weight[:, other])
            if isinstance(module, nn.Sequential):
                order = torch.from_numpy(rng.permutation(len(module[0].weight)))
                permute(module[0], order)
                module[3].weight.copy_(module[3].weight[:, order])
    return found


def permute(linear: nn.Linear, order: Tensor) -> None:
    linear.weight.copy_(linear.weight[order])
    linear.bias.copy_(linear.bias[order])


def disturbed(model: Transformer, draw: torch.Generator) -> Transformer:
    """Each linear map is off by as much as the arithmetic allows: gamma times absolute values, with random signs."""

    def disturb(module: nn.Module, given: tuple[Tensor], value: Tensor) -> Tensor:
        assert isinstance(module, nn.Linear)
        gamma = (module.in_features + 1) * U
        size = nn.functional.linear(given[0].abs(), module.weight.abs(), module.bias.abs())
        sign = torch.randint(0, 2, value.shape, generator=draw) * 2 - 1
        return value + gamma * size * sign

    found = deepcopy(model)
    for module in found.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(disturb)
    return found


@pytest.mark.parametrize(("task", "kind", "position", "norm"), CASES)
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1000))
def test_every_evaluation_is_within_the_bound_of_float64(
    task: str, kind: str, position: PositionEncoding, norm: str, seed: int
) -> None:
    """In float32 in any order of sums, and in float64 with errors as large as those of float32 can be."""
    model, contexts = with_contexts(task, kind, position, seed, norm)
    shape, block = some_contexts(contexts, seed)
    double = deepcopy(model).double()
    x, error = final(Rounding(model), contexts, shape, block)
    exact, less = final(Rounding(double), contexts, shape, block)
    assert (less < 1e-6 * error).all()
    assert ((x - exact).norm(dim=1) <= error).all() and (error > 0).all()
    other, _ = final(Rounding(shuffled(model, np.random.default_rng(seed))), contexts, shape, block)
    assert not torch.equal(other, x) and ((other - exact).norm(dim=1) <= error).all()
    rules = Rounding(double)
    rules.u = U  # as if every sum were rounded as much
    _, error = final(rules, contexts, shape, block)
    moved, _ = final(Rounding(disturbed(double, torch.Generator().manual_seed(seed))), contexts, shape, block)
    distance = (moved - exact).norm(dim=1)
    assert (distance <= error).all() and (distance > 0).any()


def test_one_sum_by_hand() -> None:
    """LayerNorm of (1, -1) is itself up to its epsilon; a map of weights 3 and 4 makes 5 times its error of it."""
    sampler = sampler_of("successor")
    rules = Rounding(Transformer(ModelConfig(2, 1, 2, 0, 1, bias=lines_of("successor")), len(sampler.task.vocabulary)))
    linear, norm = nn.Linear(2, 1), nn.LayerNorm(2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[3.0, 4.0]]))
        linear.bias.fill_(0.0)
    gain = rules.gain(linear, norm, 2**0.5)
    assert float(gain.factor) == pytest.approx(5, rel=2e-3)
    assert float(gain.rounding) == pytest.approx(5 * U * 5 * 2**0.5, rel=3e-3)  # five roundings of |3 x| + |4 y|
    _, error = rules.normed(norm, torch.tensor([[1.0, -1.0]]), torch.tensor([1e-2]))
    assert 1e-2 < float(error) < 1.03e-2
    assert float(rules.normed(norm, torch.tensor([[1.0, 1.0]]), torch.tensor([1e-2]))[1]) == float("inf")


def test_a_margin_within_the_bound_is_not_certified() -> None:
    """Two tokens whose logits are the same but for less than rounding: right in this pass, and not proven."""
    model, contexts = with_contexts("successor", "lines", NoPosition())
    shape, block = some_contexts(contexts, 0)
    with torch.no_grad():
        head = model.head
        head.weight.copy_(head.weight[:1].expand_as(head.weight))
        head.bias.zero_()
        head.bias[int(block.right[0])] = 1e-6
    same, left = Block(block.values[:1], block.right[:1]), {}
    for own in (model, deepcopy(model).double()):
        with evaluating(own):
            margin, left[own] = Margins(Rounding(own), contexts)(shape, same)
        assert margin[0] == pytest.approx(1e-6, rel=0.1)
    in_float32, in_float64 = left.values()
    assert in_float32[0] < 0 < in_float64[0] < 1.1e-6


# ---- attention to a few keys, compiled and by PyTorch


@given(
    st.sampled_from([torch.float32, torch.float64]),
    *(st.integers(1, most) for most in (20, 9, 4)),
    st.sampled_from([1, 4, 8, 16]),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(0, 2**32),
)
def test_both_ways_give_what_the_formula_gives(
    dtype: torch.dtype, count: int, slots: int, heads: int, size: int, closed: float, seed: int
) -> None:
    """With heads that a key is closed to, and heads without an open key."""
    draw = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(n, heads, size, generator=draw, dtype=dtype) for n in (count, 30, 30))
    rows = torch.randint(30, (count, slots), generator=draw)
    bias = 3 * torch.randn(slots, heads, generator=draw, dtype=dtype)
    bias = bias.masked_fill(torch.rand(bias.shape, generator=draw) < closed, CLOSED)
    turned = [x.mT.flatten(1) for x in (key, value)]  # the first numbers of all heads come first
    table = torch.cat([*turned, key.square().sum(2), value.square().sum(2)], 1)
    asked = query.mT.flatten(1)

    keys, values = key[rows].double(), value[rows].double()
    weights = torch.exp((query.double()[:, None] * keys).sum(3) / size**0.5 + bias.double())
    weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-300)
    wanted = (weights[..., None] * values).sum(1)
    spreads = [
        (weights * (x - (weights[..., None] * x).sum(1)[:, None]).square().sum(3)).sum(1) for x in (keys, values)
    ]
    with torch.inference_mode():
        compiled = few_keys.mixed(asked, table, rows, bias)
    lost = few_keys.lost_by(size, slots, dtype)
    near = {"rtol": 1e3 * torch.finfo(dtype).eps, "atol": 1e3 * torch.finfo(dtype).eps}
    for mean, length, *spread in (compiled, few_keys.by_torch(asked, table, rows, bias, lost)):
        torch.testing.assert_close(mean.double(), wanted.mT.flatten(1), **near)
        torch.testing.assert_close(length.double(), query.double().norm(dim=2), **near)
        # what is lost by rounding is added to a spread, so that none comes out too small
        for own, exact, of_key in zip(spread, spreads, (key, value), strict=True):
            assert (own >= exact.sqrt() * (1 - 1e-6) - 1e-12).all()
            size = of_key[rows].square().sum(3).double().amax(1)
            assert (own.double().square() <= exact + 2 * lost * size + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [8, 64, 1024, 4096])
def test_no_spread_is_too_small_where_every_sum_is_rounded_up(dtype: torch.dtype, size: int) -> None:
    """Two vectors that are nearly equal, the squares of whose numbers are a little more than half a unit of the sum."""
    unit = torch.finfo(dtype).eps / 2
    vectors = torch.full((2, size), (1.02 * unit) ** 0.5, dtype=dtype)
    for apart in (300, 1000, 4000):
        vectors[:, 0] = 1 + (apart * unit) ** 0.5 * torch.tensor([1.0, -1.0])
        squares = vectors.square().sum(1, keepdim=True)
        query, table, rows = torch.zeros(1, size, dtype=dtype), torch.cat([vectors, vectors, squares, squares], 1), 2
        given = query, table, torch.arange(rows)[None], torch.zeros(rows, 1, dtype=dtype)
        exact = (vectors.double() - vectors.double().mean(0)).square().sum(1).mean().sqrt()
        with torch.inference_mode():
            found = [few_keys.mixed(*given), few_keys.by_torch(*given, few_keys.lost_by(size, rows, dtype))]
        assert all(spread >= exact for _, _, *spreads in found for spread in spreads)


def test_an_exponential_is_within_what_certificates_allow_for() -> None:
    """Two keys, the second with the value 1: its weight is exp(x) / (1 + exp(x)). Eight roundings are allowed."""
    for dtype in (torch.float32, torch.float64):
        query, table, rows = torch.zeros(1, 8, dtype=dtype), torch.zeros(2, 18, dtype=dtype), torch.tensor([[0, 1]])
        table[1, 8:16] = 1
        for x in torch.linspace(-80, 0, 101, dtype=dtype):
            with torch.inference_mode():
                found = few_keys.mixed(query, table, rows, torch.stack([0 * x, x])[:, None])[0]
            assert (found.double() / torch.sigmoid(x.double()) - 1).abs().max() < 8 * torch.finfo(dtype).eps / 2


def test_a_certificate_says_its_arithmetic_and_the_number_of_threads_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler, certificates = sampler_of("successor"), []
    model, before = model_of(sampler, bias_of("successor", "decoder-only")), torch.get_num_threads()
    whole = certify_model(model, sampler)
    assert 0 < whole.rounding["bound"] < 1e-6 and "holds in float64" in whole.statement
    monkeypatch.setattr("abc_nb.certificates.states.CONTEXTS_AT_ONCE", 7)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            parts = certify_model(model, sampler)
            certificates.append(repr((parts.wrong, parts.margin, parts.rounding, parts.counterexamples)))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert certificates[0] == certificates[1]
    assert parts.wrong == whole.wrong and parts.margin == pytest.approx(whole.margin, abs=1e-4)
