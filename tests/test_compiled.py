"""The compiled attention against a computation in float64, its gradients, and what there is without a compiler."""

from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import CLOSED
from abc_nb.model import compiled
from abc_nb.model.attention import over_all_keys
from abc_nb.model.dropout import drop_threshold, random_numbers

needs_compiler = pytest.mark.skipif(compiled.kernels(8) is None, reason="no C compiler")
SIZES = st.sampled_from(compiled.HEAD_SIZES)


def in_float64(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Attention by its formula."""
    logits = query @ key.mT / query.shape[-1] ** 0.5 + bias
    closed = (logits == CLOSED).all(-1, keepdim=True)
    return torch.softmax(logits.masked_fill(closed, 0.0), -1).masked_fill(closed, 0.0) @ value


@needs_compiler
@given(SIZES, st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_output_and_gradients_are_those_of_the_formula(
    size: int, heads: int, queries: int, keys: int, seed: int, data: st.DataObject
) -> None:
    """With any bias that broadcasts, closed keys and queries without an open key."""
    draw = torch.Generator().manual_seed(seed)
    given = [torch.randn(2, n, heads * size, generator=draw) for n in (queries, keys, keys)]
    shape = [data.draw(st.sampled_from([1, n])) for n in (2, heads)] + [queries, keys]
    bias = torch.randn(shape, generator=draw) * data.draw(st.sampled_from([1.0, 30.0]))
    bias = bias.masked_fill(torch.rand(shape, generator=draw) < data.draw(st.sampled_from([0.0, 0.5, 1.0])), CLOSED)
    weight = torch.randn(2, heads, queries, size, generator=draw)
    found, wanted = (
        outcome(attend, [x.to(kind) for x in (*given, bias)], heads, weight.to(kind))
        for attend, kind in ((compiled.attend, torch.float32), (in_float64, torch.float64))
    )
    for own, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.double(), exact, rtol=1e-4, atol=1e-4)


def outcome(attend, tensors: list[Tensor], heads: int, weight: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The output, and the gradients of its weighted sum."""
    tensors = [x.requires_grad_() for x in tensors]
    parts = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in tensors[:3]]
    out = attend(*parts, tensors[3])
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)]


@needs_compiler
@pytest.mark.parametrize("size", compiled.HEAD_SIZES)
def test_weights_are_dropped_as_by_the_formula_on_one_thread_and_on_two(size: int) -> None:
    """Weights below the threshold are dropped; output and gradients are those of the others, enlarged."""
    draw = torch.Generator().manual_seed(size)
    given = [torch.randn(2, n, 3 * size, generator=draw) for n in (7, 21, 21)]
    bias, weight = torch.randn(2, 3, 7, 21, generator=draw), torch.randn(2, 3, 7, size, generator=draw)
    bias = bias.masked_fill(torch.rand(bias.shape, generator=draw) < 0.3, CLOSED)
    torch.manual_seed(0)
    kept = (random_numbers((2, 3, 7, 21)) >= drop_threshold(0.3)).double() / 0.7

    def formula(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        return torch.softmax(query @ key.mT / size**0.5 + bias, -1) * kept @ value

    wanted = outcome(formula, [x.double() for x in (*given, bias)], 3, weight.double())
    found, attend = [], partial(compiled.attend, dropout=0.3)
    for threads in (1, 2):
        torch.manual_seed(0)
        with patch.object(torch, "get_num_threads", lambda threads=threads: threads):
            found.append(outcome(attend, [x.clone() for x in (*given, bias)], 3, weight))
    for one, two, exact in zip(*found, wanted, strict=True):
        assert torch.equal(one, two)
        torch.testing.assert_close(one.double(), exact, rtol=1e-4, atol=1e-4)


@needs_compiler
def test_an_exponential_is_within_what_certificates_allow_for() -> None:
    """Two keys, the second with the value 1: its weight is exp(x) / (1 + exp(x)). Eight roundings are allowed."""
    x = torch.linspace(-80, 0, 100_001)
    zero, value = torch.zeros(1, 1, len(x), 8), torch.zeros(1, 1, 2, 8)
    value[0, 0, 1] = 1
    bias = torch.stack([torch.zeros_like(x), x], 1)[None, None]
    found = compiled.attend(zero, torch.zeros(1, 1, 2, 8), value, bias)[0, 0, :, 0]
    assert (found.double() / torch.sigmoid(x.double()) - 1).abs().max() < 8 * torch.finfo(torch.float32).eps / 2


@needs_compiler
def test_values_of_bfloat16_beside_queries_of_float32_are_not_taken_for_float32() -> None:
    """As under autocast in a model with rotary positions."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 9, 8, generator=draw) for _ in range(3))
    bias = torch.randn(1, 3, 9, 9, generator=draw)
    with torch.autocast("cpu", torch.bfloat16):
        found = over_all_keys(query, key, value.bfloat16(), bias)
    torch.testing.assert_close(found.float(), over_all_keys(query, key, value, bias), rtol=0.05, atol=0.05)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(9, 9), (1, 9), (3, 9, 9), (2, 1, 1, 9), (1, 1, 9, 1)])
def test_a_bias_of_another_type_or_shape_is_not_read_as_something_else(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 9, 8, generator=draw) for _ in range(3))
    bias = (3 * torch.randn(shape, generator=draw)).to(dtype)
    wanted = in_float64(*(x.double() for x in (query, key, value, bias)))
    for strided in (bias, bias.mT.contiguous().mT):
        found = over_all_keys(query, key, value, strided)
        torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)


@needs_compiler
def test_arrays_that_do_not_fit_together_are_refused() -> None:
    query, key = torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 4, 8)
    with pytest.raises(TypeError, match="do not fit together"):
        compiled.attend(query, key, key[:, :, :3], None)


@pytest.mark.parametrize("compiler", ["no-such-compiler", "cc"])
def test_without_a_compiler_or_a_folder_pytorchs_attention_is_used(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "cache"
    in_the_way.write_text("in the way of the folder")
    monkeypatch.setenv("ABC_NB_CACHE", str(in_the_way))
    monkeypatch.setenv("CC", compiler)
    assert compiled.compiled_library.__wrapped__("-DSIZE=8") is None


@needs_compiler
def test_compiled_files_go_to_the_users_cache_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ABC_NB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert compiled.compiled_library.__wrapped__("-DSIZE=8") is not None
    monkeypatch.setenv("ABC_NB_CACHE", str(tmp_path / "chosen"))
    assert compiled.compiled_library.__wrapped__("-DSIZE=8") is not None
    files = [path.relative_to(tmp_path).parent for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path("home/abc_nb"), Path("chosen")] or files == [Path("chosen"), Path("home/abc_nb")]
