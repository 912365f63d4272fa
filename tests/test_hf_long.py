"""Long sequences: FlexAttention under a bias gives what the dense matrix gives, and a model takes it by length."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from test_hf import HEADS, LAYERS, Drawn, gemma2, gpt2, llama, made, sequences
from torch import Tensor

from abc_nb import Task
from abc_nb.bias import Bias, Lines, Window

hf = pytest.importorskip("abc_nb.hf")
attention = pytest.importorskip("abc_nb.hf.attention")
flex = pytest.importorskip("abc_nb.hf.flex")

ADDITION = Task("addition")
LAYOUT = ADDITION.layout(20)
ONE_KEY, CLOSED_ALL = Lines.one_key_per_head(LAYOUT, HEADS, LAYERS), Lines(HEADS, (), empty="closed")
compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler (g++)")
Calls = list[int]  # tokens of each layer that FlexAttention computed


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    tokens, original = Calls(), attention.by_blocks

    def noted(handle: Any, run: Any, layer: int, query: Tensor, *rest: Any) -> Tensor | None:
        mixed: Tensor | None = original(handle, run, layer, query, *rest)
        if mixed is not None:
            tokens.append(query.shape[2])
        return mixed

    monkeypatch.setattr(attention, "by_blocks", noted)
    return tokens


@pytest.fixture
def untraced(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attention computes at once, without being traced for a compiler, which takes most of the time."""
    flex.compiled.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    yield
    flex.compiled.cache_clear()


@pytest.fixture
def compiled() -> None:
    torch.compiler.reset()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What PyTorch's compiler traces is run as it is, since kernels take seconds to build."""
    torch.compiler.reset()
    flex.compiled.cache_clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    yield
    flex.compiled.cache_clear()


@pytest.mark.parametrize(
    ("how", "make", "dtype", "bias"),
    [
        ("untraced", llama, torch.float32, CLOSED_ALL),
        ("untraced", gpt2, torch.float32, Window()),
        ("traced", llama, torch.bfloat16, ONE_KEY),
        pytest.param("compiled", llama, torch.float32, ONE_KEY, marks=[compiler, pytest.mark.long]),
    ],
)
@torch.no_grad()
def test_a_model_gives_what_it_gives_with_the_dense_matrix(
    how: str, make: Any, dtype: torch.dtype, bias: Bias, calls: Calls, request: pytest.FixtureRequest
) -> None:
    """From a length on, with shared heads and queries without a key; what follows on a cache takes the matrix."""
    request.getfixturevalue(how)
    model = made(make).to(dtype)
    single = copy.deepcopy(model).float()
    for width in (3, 60):
        layout = ADDITION.layout(width)
        tokens = sequences(2, layout)
        with hf.attach(model, bias, layout) as handle, hf.attach(single, bias, layout):
            exact, dense = single(tokens).logits, model(tokens).logits.float()
            allowed = max(3 * (dense - exact).abs().max().item(), 1e-5 * exact.abs().max().item())
            assert not calls
            handle.long = 10
            begun = model(tokens[:, :-3], use_cache=True)
            rest = model(tokens[:, -3:], past_key_values=begun.past_key_values).logits
            assert (torch.cat([begun.logits, rest], 1) - exact).abs().max() <= allowed
        assert calls == [tokens.shape[1] - 3] * LAYERS
        calls.clear()


@pytest.mark.usefixtures("untraced")
def test_what_it_cannot_do_takes_the_dense_matrix(calls: Calls) -> None:
    """Weights that are asked for, capped logits, gradients on a processor, dropout, and a bias of many open keys."""
    model, tokens = made(llama, attention_dropout=0.1), sequences(2, LAYOUT)
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        handle.long = 0
        with torch.no_grad():
            assert model(tokens, output_attentions=True).attentions[0].isfinite().all()
        model(tokens).logits.square().mean().backward()
        assert all(weights.grad.isfinite().all() for weights in model.parameters())
        with torch.no_grad():
            model.train()(tokens)
            with handle.lent(bias=Drawn()):
                model.eval()(tokens)
    capped = made(gemma2)
    with hf.attach(capped, ONE_KEY, LAYOUT) as handle, torch.no_grad():
        handle.long = 0
        capped(tokens)
    assert not calls


@pytest.mark.usefixtures("traced")
@torch.no_grad()
def test_where_it_is_not_compiled_the_dense_matrix_is_taken_with_a_warning(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("no compiler")

    model, tokens = made(llama), sequences(2, LAYOUT)
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        wanted = model(tokens).logits
        handle.long = 0
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=failing))
        with pytest.warns(UserWarning, match="is not compiled, so attention takes the dense matrix"):
            assert torch.equal(model(tokens).logits, wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(model(tokens).logits, wanted)
        assert not calls
