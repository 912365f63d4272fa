"""Problems of other widths in one batch, with padding: each row gives what it gives alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_hf import (
    HEADS,
    LAYERS,
    NAMES,
    PAD,
    TOKENS,
    Drawn,
    gemma2,
    gpt2,
    llama,
    made,
    neox,
    opt,
    qwen3,
    whole,
)
from torch import Tensor

from abc_nb import InputError, Task
from abc_nb.bias import Lines
from abc_nb.bias.sequence import token_count
from abc_nb.problems.layouts import binary_aligned, binary_natural

transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")

WIDTHS = (2, 3, 5)
LAYOUTS = [Task("addition").layout(width) for width in WIDTHS]
BIAS = Lines.one_key_per_head(LAYOUTS[0], HEADS, LAYERS)


six = pytest.mark.parametrize("make", [llama, gpt2, neox, gemma2, qwen3, opt], ids=NAMES.get)


def padded(parts: list[Tensor], sides: list[str], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Rows of tokens, and their mask."""
    longest = max(len(part) for part in parts)
    rows, mask = torch.full((len(parts), longest), fill), torch.zeros(len(parts), longest, dtype=torch.long)
    for row, (part, side) in enumerate(zip(parts, sides, strict=True)):
        first = longest - len(part) if side == "left" else 0
        rows[row, first : first + len(part)], mask[row, first : first + len(part)] = part, 1
    return rows, mask


def drawn(seed: int, lengths: list[int]) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(TOKENS, (length,), generator=rng) for length in lengths]


@six
@pytest.mark.parametrize("period", [None, 3])
@torch.no_grad()
def test_a_row_beside_others_gives_what_it_gives_alone(make: Any, period: int | None) -> None:
    model, parts = made(make), drawn(1, [token_count(layout) for layout in LAYOUTS])
    tokens, mask = padded(parts, ["left", "right", "left"])
    with hf.attach(model, BIAS, LAYOUTS, period) as handle:
        together = model(tokens, attention_mask=mask).logits
        for row, layout in enumerate(LAYOUTS):
            handle.layout = layout
            alone = model(parts[row][None]).logits[0]
            assert torch.allclose(together[row, mask[row] == 1], alone, atol=1e-4 * alone.abs().max())
    assert together.isfinite().all()


@six
@pytest.mark.parametrize("period", [None, 3])
def test_mixed_widths_are_generated_together_with_the_cache_and_without(make: Any, period: int | None) -> None:
    """The cache, beams and a batch answer as each row does alone; a short row goes on behind its end meanwhile."""
    model, parts = made(make), drawn(2, [layout.source_length + 1 for layout in LAYOUTS])
    tokens, mask = padded(parts, ["left"] * len(parts))
    more = {"do_sample": False, "pad_token_id": PAD, "max_new_tokens": LAYOUTS[-1].target_length}
    with hf.attach(model, BIAS, LAYOUTS, period) as handle:
        found = [
            model.generate(tokens, attention_mask=mask, use_cache=cache, **more)[:, tokens.shape[1] :]
            for cache in (True, False)
        ]
        beams = model.generate(tokens, attention_mask=mask, num_beams=2, **more)[:, tokens.shape[1] :]
        for row, layout in enumerate(LAYOUTS):
            handle.layout, end = layout, layout.target_length
            own = more | {"max_new_tokens": end}
            alone = model.generate(parts[row][None], use_cache=False, **own)[0, len(parts[row]) :]
            assert all(torch.equal(each[row, :end], alone) for each in found)
            if layout is LAYOUTS[-1]:
                best = model.generate(parts[row][None], num_beams=2, **own)[0, len(parts[row]) :]
                assert torch.equal(beams[row, :end], best)


def test_rows_that_do_not_fit_are_refused_in_a_sentence() -> None:
    model, parts = made(llama), drawn(3, [token_count(layout) for layout in LAYOUTS])
    tokens, mask = padded(parts, ["left"] * len(parts))
    with hf.attach(model, BIAS, LAYOUTS) as handle:
        with pytest.raises(InputError, match="19 tokens and the layout 7 of the problem and 10"):
            model(tokens)
        with pytest.raises(InputError, match="2 rows and the handle 3 layouts"):
            model(tokens[:2], attention_mask=mask[:2])
        with pytest.raises(InputError, match=r"attention_mask \(row, token\) of 3 x 19"):
            model(tokens, attention_mask=mask[:, 1:])
        cache = model(tokens[:, :-1], attention_mask=mask[:, :-1]).past_key_values
        with pytest.raises(InputError, match="the attention_mask of all tokens at every step"):
            model(tokens[:, -1:], past_key_values=cache)
        handle.layout = LAYOUTS[::-1]
        with pytest.raises(InputError, match="or to one for each row"):
            model(tokens, attention_mask=mask)
        handle.layout = []
        with pytest.raises(InputError, match="one for each row"):
            model(tokens)


@torch.no_grad()
def test_an_answer_ends_where_its_layout_does() -> None:
    """Unless another row goes on, a token behind the end is one too many."""
    model, (prompt,) = made(llama), drawn(7, [LAYOUTS[0].source_length + 1])
    more = {"do_sample": False, "pad_token_id": PAD}
    with hf.attach(model, BIAS, LAYOUTS[0]):
        end = LAYOUTS[0].target_length
        for cache in (True, False):
            model.generate(prompt[None], max_new_tokens=end, use_cache=cache, **more)
            with pytest.raises(InputError, match="11 tokens and the layout"):
                model.generate(prompt[None], max_new_tokens=end + 1, use_cache=cache, **more)


@torch.no_grad()
def test_rows_of_one_length_and_other_layouts_need_no_mask() -> None:
    layouts = [binary_natural(3, "+", 3), binary_aligned(3, "+")]
    model, parts = made(llama), drawn(8, [token_count(layout) for layout in layouts])
    with hf.attach(model, Drawn(), layouts) as handle:
        handle.bias = BIAS
        together = model(torch.stack(parts)).logits
        for row, layout in enumerate(layouts):
            handle.layout = layout
            assert torch.allclose(together[row], model(parts[row][None]).logits[0], atol=1e-4)
    assert not torch.equal(whole(BIAS, layouts[0], 0), whole(BIAS, layouts[1], 0))


@torch.no_grad()
def test_positions_that_are_given_are_kept() -> None:
    model, parts = made(gpt2), drawn(9, [token_count(layout) for layout in LAYOUTS])
    tokens, mask = padded(parts, ["left"] * len(parts))
    positions = (mask.cumsum(1) + 4).clamp(min=0)
    with hf.attach(model, BIAS, LAYOUTS) as handle:
        together = model(tokens, attention_mask=mask, position_ids=positions).logits
        handle.layout = LAYOUTS[0]
        alone = model(parts[0][None], position_ids=torch.arange(5, 5 + len(parts[0]))[None]).logits[0]
    assert torch.allclose(together[0, mask[0] == 1], alone, atol=1e-4 * alone.abs().max())
