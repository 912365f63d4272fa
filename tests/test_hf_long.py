"""Long sequences: FlexAttention under a bias gives what the dense matrix gives, and a model takes it by length."""

from __future__ import annotations

import copy
import itertools
import shutil
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from test_hf import HEADS, LAYERS, Drawn, gemma2, gpt2, llama, made, sequences, whole
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from abc_nb import InputError, Layout, Task
from abc_nb.bias import Bias, Lines, Window
from abc_nb.bias.sequence import token_count

pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")
attention = pytest.importorskip("abc_nb.hf.attention")
flex = pytest.importorskip("abc_nb.hf.flex")
sequences_of = pytest.importorskip("abc_nb.hf.sequences")

ADDITION = Task("addition")
LAYOUT = ADDITION.layout(20)
ONE_KEY, CLOSED_ALL = Lines.one_key_per_head(LAYOUT, HEADS, LAYERS), Lines(HEADS, (), empty="closed")
compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler (g++)")
Calls = list[tuple[int, int]]  # queries and keys of each layer that FlexAttention computed


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found, original = Calls(), attention.by_blocks

    def noted(handle: Any, rows: Any, layer: int, query: Tensor, key: Tensor, *rest: Any) -> Tensor | None:
        mixed: Tensor | None = original(handle, rows, layer, query, key, *rest)
        if mixed is not None:
            found.append((query.shape[2], key.shape[2]))
        return mixed

    monkeypatch.setattr(attention, "by_blocks", noted)
    return found


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


def in_parts(model: Any, tokens: Tensor) -> Tensor:
    """Logits where the last token, and the two before it, have all those before them in the cache."""
    cuts, cache, found = [0, tokens.shape[1] - 3, tokens.shape[1] - 1, tokens.shape[1]], None, []
    for start, end in itertools.pairwise(cuts):
        out = model(tokens[:, start:end], past_key_values=cache, use_cache=True)
        cache, found = out.past_key_values, [*found, out.logits]
    return torch.cat(found, 1)


def check(make: Any, dtype: torch.dtype, bias: Bias, layout: Layout, calls: Calls) -> None:
    model, tokens = made(make).to(dtype), sequences(2, layout)
    single = copy.deepcopy(model).float()
    with hf.attach(model, bias, layout) as handle, hf.attach(single, bias, layout):
        exact, dense = single(tokens).logits, model(tokens).logits.float()
        allowed = max(3 * (dense - exact).abs().max().item(), 1e-5 * exact.abs().max().item())
        assert not calls
        handle.long = 0
        assert (model(tokens, use_cache=False).logits - exact).abs().max() <= allowed
        assert (in_parts(model, tokens) - exact).abs().max() <= allowed
    count = tokens.shape[1]
    parts = ((count, count), (count - 3, count - 3), (2, count - 1), (1, count))
    assert calls == [part for part in parts for _ in range(LAYERS)]


@pytest.mark.parametrize(
    ("how", "make", "dtype", "bias"),
    [
        ("untraced", llama, torch.float32, ONE_KEY),
        ("untraced", llama, torch.float32, CLOSED_ALL),
        ("untraced", llama, torch.bfloat16, Window()),
        ("untraced", gpt2, torch.float32, Window()),
        ("untraced", gemma2, torch.float32, ONE_KEY),
        ("traced", gemma2, torch.bfloat16, ONE_KEY),
        *(
            pytest.param("compiled", make, dtype, ONE_KEY, marks=[compiler, pytest.mark.long])
            for make in (llama, gpt2, gemma2)
            for dtype in (torch.float32, torch.bfloat16)
        ),
    ],
)
@torch.no_grad()
def test_a_model_gives_what_it_gives_with_the_dense_matrix(
    how: str, make: Any, dtype: torch.dtype, bias: Bias, calls: Calls, request: pytest.FixtureRequest
) -> None:
    """With shared heads, capped logits, queries without a key, and a cache."""
    request.getfixturevalue(how)
    for width in (3, 60):
        check(make, dtype, bias, ADDITION.layout(width), calls)
        calls.clear()


@pytest.mark.usefixtures("untraced")
@torch.no_grad()
def test_it_is_chosen_by_length_and_the_large_matrix_is_not_made(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = made(llama), sequences(2, LAYOUT)
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        wanted = model(tokens).logits
        assert not calls
        handle.long = 50
        monkeypatch.setattr(sequences_of, "dense_bias", None)
        assert torch.allclose(in_parts(model, tokens), wanted, atol=1e-4)
        assert calls == [(tokens.shape[1] - 3, tokens.shape[1] - 3)] * LAYERS
        handle.layout = ADDITION.layout(3)
        model(sequences(2, ADDITION.layout(3)))
        assert len(calls) == LAYERS


@pytest.mark.usefixtures("untraced")
def test_what_it_cannot_do_takes_the_dense_matrix(calls: Calls) -> None:
    """Padding, weights that are asked for, gradients on a processor, dropout, and a bias of many open keys."""
    model, tokens = made(llama, attention_dropout=0.1), sequences(2, LAYOUT)
    mask = torch.ones_like(tokens)
    mask[0, 0] = 0
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        handle.long = 0
        with torch.no_grad():
            model(tokens[:, :-1], attention_mask=mask[:, :-1])
            assert model(tokens, output_attentions=True).attentions[0].isfinite().all()
        model(tokens).logits.square().mean().backward()
        assert all(each.grad.isfinite().all() for each in model.parameters())
        with torch.no_grad():
            model.train()(tokens)
            handle.bias = Drawn()
            model.eval()(tokens)
    assert not calls


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("fails", ["compiler", "another kernel"])
@torch.no_grad()
def test_where_it_is_not_compiled_the_dense_matrix_is_taken_with_a_warning(
    fails: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("no compiler")

    model, tokens = made(llama), sequences(2, LAYOUT)
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        wanted = model(tokens).logits
        handle.long = 0
        if fails == "compiler":
            monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=failing))
        else:
            monkeypatch.setattr(flex, "COMPILED", 1)
            handle.layout = ADDITION.layout(3)
            model(sequences(2, handle.layout))
            assert len(calls) == LAYERS
            handle.layout = LAYOUT
        calls.clear()
        with pytest.warns(UserWarning, match="is not compiled, so attention takes the dense matrix"):
            assert torch.equal(model(tokens).logits, wanted)
        assert not calls
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(model(tokens).logits, wanted)


# ---- without a model of transformers


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(sum(shape)))


def check_alone(attend: Any, bias: Bias, width: int, tokens: int, new: int = 0, shared: int = 1) -> None:
    """Against softmax with the matrix cell by cell: padded to `tokens`, the last `new` computed, heads shared."""
    layout, first = ADDITION.layout(width), tokens - (new or tokens)
    known = token_count(layout)
    query, (key, value) = random(2, HEADS, tokens - first), (random(2, HEADS // shared, tokens) for _ in range(2))
    wanted = torch.full((HEADS, tokens, tokens), -torch.inf)
    wanted[:, :known, :known] = whole(bias, layout, 1)[:, :tokens, :tokens]
    keys, values = (x.repeat_interleave(shared, 1) for x in (key, value))
    weights = (query @ keys.mT / 4 + wanted[:, first:]).softmax(-1).nan_to_num(0.0)
    score, blocks = hf.score_and_blocks(bias, layout, 1, HEADS, tokens=tokens, offset=first)
    found = attend(query, key, value, score_mod=score, block_mask=blocks, enable_gqa=shared > 1)
    assert torch.allclose(found, weights @ values, atol=1e-5)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("compile_it", [False, pytest.param(True, marks=[compiler, pytest.mark.long])])
@pytest.mark.parametrize("bias", [ONE_KEY, Window()])
@torch.no_grad()
def test_it_is_attention_with_the_matrix_padded_with_shared_heads_and_a_cache(bias: Bias, compile_it: bool) -> None:
    if compile_it:
        torch.compiler.reset()
    attend = torch.compile(flex_attention) if compile_it else flex_attention
    for width in (3, 60):
        known = token_count(ADDITION.layout(width))
        for tokens, more in ((known, {}), (-(-known // 128) * 128, {}), (known - 4, {"shared": 2})):
            check_alone(attend, bias, width, tokens, **more)
        check_alone(attend, bias, width, known - 1, new=1)
        check_alone(attend, bias, width, known, new=3, shared=2)


@pytest.mark.parametrize(
    ("bias", "said"),
    [(ONE_KEY, "4 heads and the model 6"), (Lines(6, ()), "more than 32 keys"), (Drawn(), "more than 32 keys")],
)
def test_a_bias_of_other_heads_or_many_keys_is_refused(bias: Bias, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hf.score_and_blocks(bias, LAYOUT, 0, 6)
