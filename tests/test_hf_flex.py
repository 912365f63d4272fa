"""FlexAttention under a bias is attention with the dense matrix: interpreted, and compiled where a compiler is."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hf import HEADS, LAYERS, Drawn, whole
from test_hf_text import TOKENIZER, Known
from test_spans import BIAS as SPANS
from test_spans import PATTERNS, slow_bias, texts
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from abc_nb import InputError, Layout, Task
from abc_nb.bias import Bias, Lines, RunningALiBi, Window
from abc_nb.bias.sequence import token_count
from abc_nb.bias.spans import SpanLines
from abc_nb.problems.spans import spans_in

pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")

LAYER, SIZE = 1, 16
ADDITION = Task("addition")
compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler (g++)")
biases = pytest.mark.parametrize(
    "bias", [Lines.one_key_per_head(ADDITION.layout(3), HEADS, LAYERS), Window(), RunningALiBi(), Drawn(), Bias()]
)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, SIZE, generator=torch.Generator().manual_seed(sum(shape)))


def check(attend: Callable[..., Any], bias: Bias, layout: Layout, tokens: int, new: int = 0, shared: int = 1) -> None:
    """Against softmax with the matrix cell by cell: `tokens` with padding, the last `new` computed, heads shared."""
    known, new = token_count(layout), new or tokens
    first = tokens - new
    query, key, value = random(2, HEADS, new), random(2, HEADS // shared, tokens), random(2, HEADS // shared, tokens)
    wanted = torch.full((HEADS, tokens, tokens), -math.inf)
    wanted[:, :known, :known] = whole(bias, layout, LAYER)[:, :tokens, :tokens]
    keys, values = (x.repeat_interleave(shared, 1) for x in (key, value))
    weights = (query @ keys.mT / SIZE**0.5 + wanted[:, first:]).softmax(-1).nan_to_num(0.0)
    score = hf.score_mod(bias, layout, LAYER, HEADS, offset=first)
    blocks = hf.block_mask(bias, layout, LAYER, HEADS, tokens=tokens, offset=first)
    made = create_block_mask(blocks.mask_mod, None, HEADS, new, tokens, device="cpu")
    assert torch.equal(blocks.to_dense(), made.to_dense())
    found = attend(query, key, value, score_mod=score, block_mask=blocks, enable_gqa=shared > 1)
    assert torch.allclose(found, weights @ values, atol=1e-5)


@pytest.mark.usefixtures("interpreted")
@biases
@pytest.mark.parametrize("width", [3, 60])
@torch.no_grad()
def test_interpreted_it_is_the_same_as_with_the_dense_matrix(bias: Bias, width: int) -> None:
    layout = ADDITION.layout(width)
    known = token_count(layout)
    check(flex_attention, bias, layout, known)
    check(flex_attention, bias, layout, -(-known // 128) * 128)
    check(flex_attention, bias, layout, known - 4, shared=2)
    check(flex_attention, bias, layout, known - 1, new=1)
    check(flex_attention, bias, layout, known, new=3, shared=2)


@compiler
@pytest.mark.long
@biases
@torch.no_grad()
def test_compiled_once_it_is_the_same_at_every_width_padded_with_shared_heads_and_a_cache(bias: Bias) -> None:
    torch.compiler.reset()
    attend, layout = torch.compile(flex_attention), ADDITION.layout(30)
    for width in (10, 20, 70):
        check(attend, bias, ADDITION.layout(width), token_count(ADDITION.layout(width)))
    check(attend, bias, layout, 128)
    check(attend, bias, layout, token_count(layout), shared=2)
    check(attend, bias, layout, token_count(layout) - 1, new=1)


ROWS = st.lists(st.lists(texts(), min_size=1, max_size=3), min_size=1, max_size=3)


def packed(rows: list[list[Known]]) -> tuple[Any, Tensor]:
    """Documents side by side with padding between and behind them, and which keys are open, from the definition."""
    longest = max(sum(len(text) + 2 for text, _ in row) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    documents, wanted = torch.full_like(ids, -1), torch.zeros(len(rows), SPANS.heads, longest, longest, dtype=bool)
    for row, own in enumerate(rows):
        first = 0
        for number, (text, known) in enumerate(own):
            here = slice(first, first + len(text))
            ids[row, here], documents[row, here] = torch.tensor(TOKENIZER.encode(text), dtype=torch.long), number % 2
            for head in range(SPANS.heads):
                wanted[row, head, here, here] = torch.from_numpy(slow_bias(text, known, head))
            first += len(text) + 2
    return hf.PackedText(SPANS, hf.Reader(TOKENIZER, PATTERNS), ids, documents), wanted


@given(rows=ROWS)
@settings(max_examples=20)
def test_text_sees_its_document_and_problems_see_themselves(rows: list[list[Known]]) -> None:
    rows = [[own for own in row if len(spans_in(own[0], PATTERNS)) == len(own[1])] for row in rows]
    if not any(rows):
        return
    text, wanted = packed(rows)
    cells = torch.meshgrid(*map(torch.arange, wanted.shape), indexing="ij")
    assert torch.equal(text.mask_mod(LAYER)(*cells), wanted)
    assert torch.equal(text.score_mod(LAYER)(torch.zeros(()), *cells) == 0, wanted)


TEXT = "it is 12+34=640; and parity(101)=110; or"


def test_positions_begin_with_each_document() -> None:
    text, _ = packed([[(TEXT, []), ("a 7*8=", [])]])
    assert text.positions()[0, : len(TEXT)].tolist() == [*range(6), *[6] * 9, *range(7, 13), *[13] * 15, *range(14, 18)]
    assert text.positions()[0, len(TEXT) :].tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 0, 0]


@pytest.mark.parametrize("bias", [SPANS, SpanLines.whole(PATTERNS, 4, 3)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[compiler, pytest.mark.long])])
@pytest.mark.usefixtures("interpreted")
@torch.no_grad()
def test_attention_in_text_is_that_with_the_rows_of_the_bias(bias: SpanLines, compiled: bool) -> None:
    ids, tokens = torch.tensor(TOKENIZER.encode(TEXT))[None], len(TEXT)
    text = hf.PackedText(bias, hf.Reader(TOKENIZER, PATTERNS), ids, torch.zeros_like(ids))
    query, key, value = (random(1, bias.heads, tokens + extra)[:, :, :tokens] for extra in range(3))
    weights = (query @ key.mT / SIZE**0.5 + bias.rows(bias.spans(TEXT), LAYER, 0, tokens)).softmax(-1)
    blocks = create_block_mask(text.mask_mod(LAYER), 1, bias.heads, tokens, tokens, device="cpu")
    attend = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    found: Any = attend(query, key, value, score_mod=text.score_mod(LAYER), block_mask=blocks)
    assert torch.allclose(found, weights @ value, atol=1e-5)


def test_documents_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"one for each of the tokens \(1, 3\)"):
        hf.PackedText(SPANS, hf.Reader(TOKENIZER, PATTERNS), torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 2))


@pytest.mark.parametrize("make", [hf.score_mod, hf.block_mask])
@pytest.mark.parametrize("bias", [Lines(4, (), empty="closed"), Lines(4, ())])
def test_a_bias_of_other_heads_is_refused(make: Callable[..., object], bias: Bias) -> None:
    with pytest.raises(InputError, match="4 heads and the model 6"):
        make(bias, ADDITION.layout(3), 0, 6)
