"""Causal language models of transformers, made from a configuration alone: their attention, and a bias on it."""

from __future__ import annotations

import copy
import inspect
import io
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import abc_nb
from abc_nb import InputError, Layout, Task
from abc_nb.bias import CLOSED, Attention, Bias, Lines, Window
from abc_nb.bias.base import causal, key_count, query_count
from abc_nb.bias.sequence import cyclic_positions

transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")

HEADS, LAYERS, TOKENS, PAD = 4, 2, 14, 14
LAYOUT = Task("addition").layout(3)


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
SIZES |= {"vocab_size": TOKENS + 1, "eos_token_id": None, "bos_token_id": None}
FEW = {"n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": TOKENS + 1, "eos_token_id": None}
FULL = {"head_dim": 8, "layer_types": ["full_attention"] * LAYERS}
Make = Callable[..., Any]


def maker(model: str, config: str, **sizes: Any) -> Make:
    """Makes a model of transformers, with these sizes or others."""
    return lambda **other: getattr(transformers, model)(getattr(transformers, config)(**sizes | other))


llama = maker("LlamaForCausalLM", "LlamaConfig", **SIZES, num_key_value_heads=2)
gpt2 = maker("GPT2LMHeadModel", "GPT2Config", **FEW)
neox = maker("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES)
gemma2 = maker("Gemma2ForCausalLM", "Gemma2Config", **SIZES, **FULL, num_key_value_heads=2)  # logits are capped
qwen3 = maker("Qwen3ForCausalLM", "Qwen3Config", **SIZES, num_key_value_heads=2)
opt = maker("OPTForCausalLM", "OPTConfig", **SIZES, word_embed_proj_dim=32, ffn_dim=48, pad_token_id=PAD)
smollm3 = maker("SmolLM3ForCausalLM", "SmolLM3Config", **SIZES, no_rope_layer_interval=2)  # some without positions
sliding = maker("MistralForCausalLM", "MistralConfig", **SIZES, num_key_value_heads=1, sliding_window=5)
gptj = maker("GPTJForCausalLM", "GPTJConfig", **FEW, rotary_dim=4)
NAMES = {llama: "llama", gpt2: "gpt2", neox: "neox", gemma2: "gemma2", qwen3: "qwen3", opt: "opt", smollm3: "smollm3"}
families = pytest.mark.parametrize("make", [llama, gpt2, neox], ids=NAMES.get)
capped = maker("Gemma2ForCausalLM", "Gemma2Config", **SIZES, **FULL, num_key_value_heads=2, attn_logit_softcapping=0.5)


def made(make: Make, **other: Any) -> Any:
    """A model in evaluation, with weights larger than usual, so that attention is far from uniform."""
    torch.manual_seed(0)
    model = make(**other).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1 and "emb" not in name and "wte" not in name:
                weights.mul_(6.0)
    return model


def sequences(count: int = 3, layout: Layout = LAYOUT) -> Tensor:
    tokens = layout.source_length + layout.target_length
    return torch.randint(TOKENS, (count, tokens), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Drawn(Bias):
    """Another matrix for every attention, layer and head; half of the keys are closed, but never a query's own."""

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        rng = torch.Generator().manual_seed(10 * layer + len(attention))
        shape = query_count(layout, attention), key_count(layout, attention)
        matrix = 3 * torch.randn(heads, *shape, generator=rng)
        matrix = matrix.masked_fill(torch.rand(heads, *shape, generator=rng) < 0.5, CLOSED)
        if attention == "cross":
            return matrix
        matrix.diagonal(dim1=1, dim2=2).fill_(0.5)
        return matrix + causal(shape[0])


@dataclass(frozen=True)
class Filled(Bias):
    """One number everywhere, in a matrix of as many columns too many."""

    number: float
    wider: int = 0

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int) -> Tensor:
        return torch.full((1, query_count(layout, attention), key_count(layout, attention) + self.wider), self.number)


def whole(bias: Bias, layout: Layout, layer: int, heads: int = HEADS) -> Tensor:
    """The bias of problem and answer, put together cell by cell."""
    sources, count = layout.source_length, layout.source_length + layout.target_length
    parts: dict[Attention, Tensor | None] = {}
    names: tuple[Attention, ...] = ("self", "cross", "source")
    for name in names:
        parts[name] = bias.dense(layout, name, layer, heads)
    matrix = torch.full((heads, count, count), -math.inf)
    for query in range(count):
        for key in range(query + 1):
            name = "source" if query < sources else "cross" if key < sources else "self"
            part = parts[name]
            row, column = query - sources * (query >= sources), key - sources * (key >= sources)
            matrix[:, query, key] = 0.0 if part is None else part[:, row, column]
    return matrix


@contextmanager
def eager_with(model: Any, mask: Callable[[int], Tensor]) -> Iterator[None]:
    """The library's own plain attention, whose mask is replaced in every layer, by its number."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    layers = [module for name, module in model.named_modules() if name.endswith((".attn", ".attention", "self_attn"))]
    assert len(layers) == LAYERS

    def masked(layer: int, _: object, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        assert len(args) < 2, "the mask is no positional argument"
        return args, given | {"attention_mask": mask(layer)[None]}

    hooks = [
        module.register_forward_pre_hook(partial(masked, number), with_kwargs=True)
        for number, module in enumerate(layers)
    ]
    yield
    for hook in hooks:
        hook.remove()
    model.set_attn_implementation(before)


def drawn_mask(layer: int) -> Tensor:
    return whole(Drawn(), LAYOUT, layer)


@pytest.mark.parametrize("make", [llama, gpt2, neox, capped], ids=NAMES.get)
@torch.no_grad()
def test_a_bias_on_each_layer_is_the_same_as_the_librarys_own_attention_with_that_mask(make: Make) -> None:
    model, tokens = made(make), sequences()
    plain = model(tokens).logits
    with eager_with(model, drawn_mask):
        wanted = model(tokens).logits
    with hf.attach(model, Drawn(), LAYOUT):
        found = model(tokens).logits
        cut = model(tokens[:, :-2]).logits
    assert torch.allclose(found, wanted, atol=1e-4)
    assert torch.allclose(cut, wanted[:, :-2], atol=1e-4)
    assert (found - plain).abs().max() > 1e-2


@families
@torch.no_grad()
def test_a_detached_model_is_as_it_was(make: Make) -> None:
    model, tokens = made(make, attn_implementation="eager"), sequences()
    before, attributes = model(tokens).logits, {id(module): {*vars(module)} for module in model.modules()}
    with hf.attach(model, Drawn(), LAYOUT, period=3) as handle:
        assert not torch.equal(model(tokens).logits, before)
    handle.detach()
    assert torch.equal(model(tokens).logits, before)
    assert model.config._attn_implementation == "eager"
    assert {id(module): {*vars(module)} for module in model.modules()} == attributes
    assert not model._forward_pre_hooks


@families
@torch.no_grad()
def test_a_query_without_an_open_key_attends_to_nothing(make: Make) -> None:
    model, tokens = made(make), sequences()
    with hf.attach(model, Lines(HEADS, (), empty="closed"), LAYOUT):
        found = model(tokens).logits
    last = ("o_proj", "dense", "attn.c_proj")
    outputs = [module for name, module in model.named_modules() if name.endswith(last) and "mlp" not in name]
    assert len(outputs) == LAYERS
    for output in outputs:
        output.register_forward_pre_hook(lambda _, args: (torch.zeros_like(args[0]),))
    assert torch.allclose(found, model(tokens).logits, atol=1e-5)


@torch.no_grad()
def test_cyclic_positions_count_from_the_units_and_are_no_packed_sequences() -> None:
    assert cyclic_positions(LAYOUT, 100).tolist() == [4, 3, 2, 1, 4, 3, 2, 1, 0, 0, 1, 2, 3]
    model, tokens = made(gpt2), sequences()
    index = cyclic_positions(LAYOUT, 3)
    assert index.tolist() == [1, 0, 2, 1, 1, 0, 2, 1, 0, 0, 1, 2, 0]
    with hf.attach(model, Window(), LAYOUT, period=3):
        found = model(tokens, use_cache=False).logits
    with hf.attach(model, Window(), LAYOUT):
        model.transformer.wpe.weight[: len(index)] = model.transformer.wpe.weight[index].clone()
        assert torch.allclose(model(tokens).logits, found, atol=1e-5)


def test_a_bias_takes_part_in_training_with_gradients_and_changes_with_the_layout() -> None:
    model = made(llama).train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    handle = hf.attach(model, Drawn(), LAYOUT, period=3)
    assert [module.training for module in model.modules()] == modes
    assert all(weights.grad is None for weights in model.parameters())
    for width in (3, 5, 3):
        layout = handle.layout = Task("addition").layout(width)
        model.zero_grad()
        model(sequences(2, layout), use_cache=False).logits.square().mean().backward()
        assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
    with pytest.raises(InputError, match="22 tokens and the layout 9 of the problem and 13"):
        model(sequences(2, Task("addition").layout(6)))


ONE_KEY = Lines.one_key_per_head(LAYOUT, HEADS, LAYERS)


@families
@torch.no_grad()
def test_models_of_one_configuration_are_independent(make: Make) -> None:
    """Each has its own bias or none, and what is set of one takes the bias off no other."""
    old, tokens = made(make), sequences()
    new, third = (type(old)(old.config).eval() for _ in range(2))
    plain = old(tokens).logits
    with hf.attach(new, ONE_KEY, LAYOUT) as handle:
        under = new(tokens).logits
        assert torch.equal(old(tokens).logits, plain)
        with hf.attach(third, Window(), LAYOUT):
            assert hf.attached(new) is handle and hf.attached(old) is None
            old.set_attn_implementation("eager")
            assert torch.equal(new(tokens).logits, under)
    assert torch.allclose(old(tokens).logits, plain, atol=1e-4)


@families
@pytest.mark.parametrize("biased", [False, True])
@torch.no_grad()
def test_attention_is_read_as_the_librarys_own_plain_attention_has_it(make: Make, biased: bool) -> None:
    """Under a bias or without, whichever attention the model has; what is set meanwhile takes no bias off."""
    model, tokens, sources = made(make).train(), sequences(70), LAYOUT.source_length
    handle = hf.attach(model, Drawn(), LAYOUT) if biased else None
    found = hf.averaged_attention(model, tokens, LAYOUT)
    assert model.training and hf.attached(model) is handle
    under = model.eval()(tokens).logits
    with eager_with(model, drawn_mask) if biased else nullcontext():
        model.set_attn_implementation("eager")
        weights = model(tokens, output_attentions=True).attentions
    for layer, wanted in enumerate(each.mean(0) for each in weights):
        parts = {"cross": wanted[:, sources:, :sources], "self": wanted[:, sources:, sources:]}
        for name, part in (parts | {"source": wanted[:, :sources, :sources]}).items():
            assert torch.allclose(found[name, layer], part, atol=1e-5)
    assert abc_nb.bias_from_attention(found, LAYOUT).lines and model(tokens).attentions is None
    if handle is not None:
        model.set_attn_implementation("eager")
        assert torch.equal(model(tokens).logits, under)
        handle.detach()
        assert model.config._attn_implementation == "eager" and not torch.equal(model(tokens).logits, under)


def test_lines_are_read_a_second_time_out_of_a_model_under_a_bias() -> None:
    sampler = abc_nb.Sampler(Task("addition"))
    model, batch = made(llama, vocab_size=len(sampler.task.vocabulary)), sampler.calibration_batch(0, 20)
    with hf.attach(model, ONE_KEY, LAYOUT) as handle:
        twice = hf.calibrate_model(model, batch, abc_nb.Calibration(share=0.1))
        assert handle.bias is ONE_KEY and handle.layout == LAYOUT
    own = {(line.direction, line.span, line.offset) for line in ONE_KEY.lines if line.attention == "cross"}
    assert {(line.direction, line.span, line.offset) for line in twice.bias.lines if line.attention == "cross"} <= own


@torch.no_grad()
def test_a_lost_bias_is_noticed_and_can_still_be_detached() -> None:
    model, tokens = made(llama), sequences()
    handle = hf.attach(model, Drawn(), LAYOUT)
    model.model.layers[1].self_attn.config = model.config
    with pytest.raises(InputError, match="was lost"):
        model(tokens)
    handle.detach()
    assert model(tokens).logits.isfinite().all()


@pytest.mark.parametrize("period", [None, 3])
@torch.no_grad()
def test_answers_are_generated_with_the_cache_without_and_with_beams(period: int | None) -> None:
    """Up to the layout's end; a token behind it is one too many."""
    model, prompts = made(gpt2), sequences()[:, : LAYOUT.source_length + 1]
    more = {"do_sample": False, "pad_token_id": PAD, "max_new_tokens": LAYOUT.target_length}
    with hf.attach(model, ONE_KEY, LAYOUT, period):
        first, second = (model.generate(prompts, use_cache=cache, **more) for cache in (True, False))
        assert torch.equal(first, second)
        beams = model.generate(prompts, num_beams=2, **more)
        assert torch.equal(beams[0], model.generate(prompts[:1], num_beams=2, use_cache=False, **more)[0])
        with pytest.raises(InputError, match="14 tokens and the layout 9 of the problem and 13"):
            model.generate(prompts, **more | {"max_new_tokens": LAYOUT.target_length + 1})
        mask = torch.ones_like(prompts)
        mask[0, 0] = 0
        with pytest.raises(InputError, match="rows have no padding"):
            model(prompts, attention_mask=mask)


@families
@torch.no_grad()
def test_arguments_by_position_are_those_by_name(make: Make) -> None:
    model, tokens = made(make), sequences()
    names = list(inspect.signature(model.forward).parameters)

    def by_position(tokens: Tensor, **given: Any) -> Tensor:
        last = max(map(names.index, given))
        return model(tokens, *(given.get(name) for name in names[1 : last + 1])).logits

    with hf.attach(model, Drawn(), LAYOUT):
        wanted, first = model(tokens, use_cache=False).logits, model(tokens[:, :10])
        assert torch.allclose(
            by_position(tokens[:, 10:], past_key_values=first.past_key_values), wanted[:, 10:], atol=1e-4
        )
        assert torch.equal(model.base_model(tokens, use_cache=False)[0], model.base_model(input_ids=tokens)[0])
    with hf.attach(model, Drawn(), LAYOUT, period=3):
        given = {"attention_mask": torch.ones_like(tokens), "position_ids": torch.arange(tokens.shape[1])[None]}
        assert torch.equal(by_position(tokens, **given), model(tokens).logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [Lines(HEADS, (), floor=-1e6, empty="closed"), ONE_KEY, Drawn()])
@torch.no_grad()
def test_half_precision_does_what_single_precision_does(dtype: torch.dtype, bias: Bias) -> None:
    """As near as the same weights without a bias; a floor beyond the type's range is no closed row."""
    half, tokens = made(llama).to(dtype), sequences()
    single = copy.deepcopy(half).float()
    near = (half(tokens).logits.float() - single(tokens).logits).abs().max()
    with hf.attach(half, bias, LAYOUT), hf.attach(single, bias, LAYOUT):
        assert (half(tokens).logits.float() - single(tokens).logits).abs().max() < 3 * near


@torch.no_grad()
def test_a_model_that_is_saved_or_copied_under_a_bias_keeps_one_of_its_own() -> None:
    model, tokens, file = made(llama), sequences(), io.BytesIO()
    plain = model(tokens).logits
    with hf.attach(model, Drawn(), LAYOUT) as handle:
        under = model(tokens).logits
        torch.save(model, file)
        file.seek(0)
        transformers.AttentionInterface._global_mapping.pop("abc_nb")  # as in another process
        for other in (torch.load(file, weights_only=False), copy.deepcopy(model)):
            assert torch.equal(other(tokens).logits, under)
            own = hf.attached(other)
            assert own is not None and own is not handle
            own.detach()
            assert torch.allclose(other(tokens).logits, plain, atol=1e-5)
        assert torch.equal(model(tokens).logits, under)


@pytest.mark.parametrize("leak", ["after", "past", "zero"])
def test_attach_proves_itself_or_refuses(leak: str) -> None:
    """A model whose tokens see those after them, or each other past the attention, or that adds to its logits."""
    model = made(llama)
    inner = model.model.layers[1]

    def mixed(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
        if leak == "zero":
            return out + (hf.attached(model) is not None)
        beside = nn.functional.pad(out, (0, 0, 1, 1))
        return out + 0.001 * (beside[:, 2:] if leak == "after" else beside[:, :-2])

    hook = inner.register_forward_hook(mixed)
    said = {"after": "come after", "past": "other ways", "zero": "under a bias of zero"}[leak]
    with pytest.raises(InputError, match=said):
        hf.attach(model, Drawn(), LAYOUT)
    hook.remove()
    with hf.attach(model, Drawn(), LAYOUT):
        pass


def eager() -> Any:
    return made(llama, attn_implementation="eager")


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("does not use the AttentionInterface", lambda: hf.averaged_attention(gptj(), sequences(), LAYOUT)),
        ("must not merge", lambda: hf.averaged_attention(eager(), sequences()[:, 1:], LAYOUT)),
        ("tensor of integers", lambda: hf.averaged_attention(eager(), sequences().float(), LAYOUT)),
        ("give a Layout", lambda: hf.averaged_attention(eager(), sequences(), 3)),
        ("no model of transformers", lambda: hf.averaged_attention(nn.Linear(1, 1), sequences(), LAYOUT)),
        ("sliding window", lambda: hf.attach(sliding(), Drawn(), LAYOUT)),
        ("give a bias", lambda: hf.attach(eager(), "bias", LAYOUT)),
        ("3 heads and the model 4", lambda: hf.attach(eager(), Lines(3, ()), LAYOUT)),
        ("is a matrix .* without NaN", lambda: hf.attach(eager(), Filled(math.nan), LAYOUT)),
        (r"is a matrix \(heads or 1, \d+, \d+\) without NaN", lambda: hf.attach(eager(), Filled(0.0, wider=1), LAYOUT)),
        ("a period of 0 is not possible", lambda: hf.attach(eager(), Drawn(), LAYOUT, period=0)),
    ],
)
def test_bad_input_is_answered_in_one_sentence(said: str, call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_bias_without_transformers_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(llama)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'abc-nb\[hf\]'"):
        hf.attach(model, Drawn(), LAYOUT)


def test_what_a_bias_does_not_work_with_is_said_in_use() -> None:
    model, tokens = made(llama), sequences()
    with hf.attach(model, Drawn(), LAYOUT):
        with pytest.raises(InputError, match="a bias already"):
            hf.attach(model, Drawn(), LAYOUT)
        with pytest.raises(InputError, match="cache that grows"):
            prompt = tokens[:, : LAYOUT.source_length + 1]
            model.generate(prompt, max_new_tokens=2, pad_token_id=PAD, cache_implementation="static")
        with pytest.raises(InputError, match="take generate, with padding on the left"):
            model.generate_batch(tokens.tolist(), max_new_tokens=2)
        with pytest.raises(InputError, match="not exported under a bias"):
            torch.export.export(model, (tokens,), {"use_cache": False})
    assert model.config._attn_implementation == "sdpa"
    assert "init_continuous_batching" not in vars(model)
