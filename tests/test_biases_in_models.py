"""Every bias in both kinds of model: shapes, causality, decoding, queries without an open key."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from abc_nb.bias import CLOSED, Attention, Bias, Causal, Line, Lines, OpenKeys, Window
from abc_nb.bias.alibi import ALiBi, PlacedALiBi, RunningALiBi
from abc_nb.bias.window import Near
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS, Layout, binary_natural, units_first

LAYOUT = binary_natural(4, "+", 4)
KINDS = ("encoder-decoder", "decoder-only")


@dataclass(frozen=True)
class Shut(Bias):
    """No key is open to anybody."""

    few: bool = False

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        if not self.few:
            return None
        count = layout.source_length if attention == "source" else layout.target_length
        return OpenKeys(torch.zeros(count, 1, dtype=torch.long), torch.full((1, count, 1), CLOSED))

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        keys = layout.target_length if attention == "self" else layout.source_length
        queries = layout.source_length if attention == "source" else layout.target_length
        return torch.full((1, queries, keys), CLOSED)


LINES = Lines(
    2, (Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.5), Line("self", 1, 1, "vertical", SOS, 0, 1.0))
)
BIASES = [
    Causal(), ALiBi(), ALiBi(cross=True), PlacedALiBi(cross=True), RunningALiBi(), Near(1), Window(), Window(2, "both"),
    LINES, Lines.one_key_a_head(LAYOUT, 2, 2), Lines.by_head(LAYOUT, 2, 2), Shut(), Shut(few=True),
]  # fmt: skip


def made(bias: Bias, kind: str) -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=2, bias=bias, kind=kind)  # type: ignore[arg-type]
    return Transformer(config, 14).eval()


def tokens(count: int, seed: int) -> Tensor:
    return torch.randint(14, (3, count), generator=torch.Generator().manual_seed(seed))


def test_all_biases_of_the_package_are_here() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    ours = {kind for kind in below(Bias) if kind.__module__.startswith("abc_nb.")} - {Bias}
    assert ours == {type(bias) for bias in BIASES} - {Shut}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: repr(bias)[:40])
@torch.no_grad()
def test_no_output_depends_on_later_tokens_and_decoding_gives_the_same(bias: Bias, kind: str) -> None:
    model, source, target = made(bias, kind), tokens(LAYOUT.source_length, 1), tokens(LAYOUT.target_length, 2)
    logits = model(source, target, LAYOUT)
    assert logits.shape == (3, LAYOUT.target_length, 14) and logits.isfinite().all()
    changed = target.clone()
    changed[:, 2:] = (changed[:, 2:] + 1) % 14
    torch.testing.assert_close(model(source, changed, LAYOUT)[:, :2], logits[:, :2], rtol=0, atol=0)
    frame, caches = model.start(source, LAYOUT)
    steps = [model.step(target[:, step], step, frame, caches) for step in range(LAYOUT.target_length)]
    for found in (torch.stack(steps, 1), model(source, target, LAYOUT, dense=True)):
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(source, target[:, :3], LAYOUT), logits[:, :3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: repr(bias)[:40])
@torch.no_grad()
def test_in_a_decoder_only_model_no_token_of_the_problem_depends_on_later_ones(bias: Bias) -> None:
    """ALiBi let them; `Near` failed with an error of shapes."""
    model, source = made(bias, "decoder-only"), tokens(LAYOUT.source_length, 1)
    changed = source.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 14
    opened = [bias.opened(LAYOUT, "source", layer) for layer in range(2)]
    assert all(each.shape[-2:] == (LAYOUT.source_length,) * 2 and not each.triu(1).any() for each in opened)
    states = []
    for given in (source, changed):
        _, caches = model.start(given, LAYOUT)
        states.append([values[:, :, :5] for cache in caches for values in cache["sequence"]])
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [ALiBi(cross=True), Near(), Window()])
def test_a_bias_that_slides_refuses_units_that_stand_first(bias: Bias, kind: str) -> None:
    model, layout = made(bias, kind), units_first(LAYOUT)
    with pytest.raises(InputError, match="take Lines"):
        model(tokens(layout.source_length, 1), tokens(layout.target_length, 2), layout)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", [False, True])
def test_queries_without_an_open_key_have_finite_gradients(few: bool, kind: str) -> None:
    model = made(Shut(few), kind).train()
    model(tokens(LAYOUT.source_length, 1), tokens(LAYOUT.target_length, 2), LAYOUT).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
