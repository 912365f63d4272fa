"""Attention to a few keys, compiled and by PyTorch, against its formula in float64; the number of threads."""

import pytest
import torch
from certifying import bias_of, model_of, sampler_of
from hypothesis import given
from hypothesis import strategies as st

from abc_nb import certify_model
from abc_nb.bias.base import CLOSED
from abc_nb.certificates import few_keys
from abc_nb.certificates.rounding import MOST


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
    width = heads * size
    query, key, value = (torch.randn(n, heads, size, generator=draw, dtype=dtype) for n in (count, 30, 30))
    rows = torch.randint(30, (count, slots), generator=draw)
    bias = 3 * torch.randn(slots, heads, generator=draw, dtype=dtype)
    bias = bias.masked_fill(torch.rand(bias.shape, generator=draw) < closed, CLOSED)
    table = torch.cat([x.flatten(1) for x in (key, value, key.square().sum(2), value.square().sum(2))], 1)

    keys, values = key[rows].double(), value[rows].double()
    weights = torch.exp((query.double()[:, None] * keys).sum(3) / size**0.5 + bias.double())
    weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-300)
    wanted = (weights[..., None] * values).sum(1)
    spreads = [
        (weights * (x - (weights[..., None] * x).sum(1)[:, None]).square().sum(3)).sum(1) for x in (keys, values)
    ]
    with torch.inference_mode():
        compiled = few_keys.mixed(query.flatten(1), table, rows, bias)
    lost = 2 * torch.finfo(dtype).eps * MOST
    near = {"rtol": 1e3 * torch.finfo(dtype).eps, "atol": 1e3 * torch.finfo(dtype).eps}
    for mean, spread, share, length in (compiled, few_keys.by_torch(query.flatten(1), table, rows, bias, lost)):
        torch.testing.assert_close(mean.double(), wanted.flatten(1), **near)
        torch.testing.assert_close(share.double(), weights.amax(2), **near)
        torch.testing.assert_close(length.double(), query.double().norm(dim=2), **near)
        # what is lost by rounding is added to a spread, so that none comes out too small
        exact, size_of = torch.cat(spreads, 1).sqrt(), table[rows][..., 2 * width :].double().amax(1)
        assert (spread >= exact * (1 - 1e-6) - 1e-12).all()
        assert (spread.double().square() <= exact.square() + 2 * lost * size_of + 1e-12).all()


def test_an_exponential_is_within_what_certificates_allow_for() -> None:
    """Two keys, the second with the value 1: its weight is exp(x) / (1 + exp(x)). Eight roundings are allowed."""
    for dtype in (torch.float32, torch.float64):
        table = torch.zeros(2, 18, dtype=dtype)
        table[1, 8:16] = 1
        for x in torch.linspace(-80, 0, 101, dtype=dtype):
            with torch.inference_mode():
                found = few_keys.mixed(
                    torch.zeros(1, 8, dtype=dtype), table, torch.tensor([[0, 1]]), torch.stack([0 * x, x])[:, None]
                )
            exact = torch.special.expit(x.to(torch.float64))
            assert (found[0].double() / exact - 1).abs().max() < 8 * torch.finfo(dtype).eps / 2


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abc_nb.certificates.states.ROWS", 7)
    sampler, found = sampler_of("successor"), []
    model, before = model_of(sampler, bias_of("successor", "decoder-only")), torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made = certify_model(model, sampler)
            found.append((made.wrong, made.margin, made.rounding, made.counterexamples))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert repr(found[0]) == repr(found[1])
