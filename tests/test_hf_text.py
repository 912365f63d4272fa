"""A bias of text with problems in it on models of transformers: masks, positions, padding, caches, tokenizers."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import one_token_a_character
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hf import LAYERS, NAMES, eager_with, gemma2, gpt2, llama, made, neox, opt, qwen3, smollm3
from test_spans import HEADS, PATTERNS, slow_bias, texts
from torch import Tensor, nn

from abc_nb import InputError
from abc_nb.bias import Bias, Lines
from abc_nb.bias.base import causal_rows
from abc_nb.bias.sequence import token_count
from abc_nb.bias.text import SpanLines, positions
from abc_nb.problems.layouts import Layout
from abc_nb.problems.text import END, Pattern, spans_in

transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")
Attending = pytest.importorskip("abc_nb.hf.answers").Attending

PAD = 0
TOKENIZER = one_token_a_character()
BIAS = SpanLines.one_key_per_head(PATTERNS, HEADS, LAYERS)
BARE = {"hidden_size": 40, "num_attention_heads": HEADS, "vocab_size": 98}
SIZES = BARE | {"num_key_value_heads": 1}
OWN: dict[Any, dict[str, Any]] = {  # with as many heads as the bias
    llama: SIZES,
    gpt2: {"n_embd": 40, "n_head": HEADS, "vocab_size": 98},
    neox: BARE,
    gemma2: SIZES | {"head_dim": 8},
    qwen3: SIZES | {"head_dim": 8},
    smollm3: SIZES | {"pad_token_id": PAD},
    opt: BARE | {"word_embed_proj_dim": 40, "pad_token_id": PAD},
}
Known = tuple[str, list[tuple[int, str, list[str], int]]]
families = pytest.mark.parametrize("make", OWN, ids=NAMES.get)


@lru_cache
def own(make: Any) -> Any:
    return made(make, **OWN[make])


def padded(parts: list[Tensor], sides: list[str]) -> tuple[Tensor, Tensor]:
    """Rows of tokens, and their mask."""
    longest = max(len(part) for part in parts)
    rows, mask = torch.full((len(parts), longest), PAD), torch.zeros(len(parts), longest, dtype=torch.long)
    for row, (part, side) in enumerate(zip(parts, sides, strict=True)):
        first = longest - len(part) if side == "left" else 0
        rows[row, first : first + len(part)], mask[row, first : first + len(part)] = part, 1
    return rows, mask


def ids(text: str) -> Tensor:
    return torch.tensor(TOKENIZER.encode(text))


def batch(rows: list[str], sides: list[str]) -> tuple[Tensor, Tensor]:
    return padded([ids(text) for text in rows], sides)


def by_hand(model: Any, given: Known) -> Tensor:
    """Logits (token, vocabulary) of the library's own attention, with masks and positions from their definitions."""
    text, known = given
    ends = [(start, text.index("=", start) + 1 + written) for start, _, _, written in known]
    inside = {at: start for start, end in ends for at in range(start, end)}
    where, position = [], -1
    for at in range(len(text)):
        position += at not in inside or inside[at] == at
        where.append(position)
    mask = torch.stack([torch.from_numpy(slow_bias(text, known, head)) for head in range(HEADS)])
    mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    with eager_with(model, lambda _: mask):
        found: Tensor = model(ids(text)[None], position_ids=torch.tensor([where]), use_cache=False).logits[0]
    return found


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-4 * wanted.abs().max().item(), rtol=1e-4)


@families
@settings(max_examples=8)
@given(rows=st.lists(texts(), min_size=1, max_size=3), sides=st.lists(st.sampled_from(["left", "right"]), min_size=3))
@torch.no_grad()
def test_rows_of_a_batch_have_masks_and_positions_of_the_definition(make: Any, rows: list[Known], sides: Any) -> None:
    """Several problems a row, of any widths, finished or not, and padding on either side."""
    rows = [row for row in rows if row[0] and len(spans_in(row[0], PATTERNS)) == len(row[1])]
    if not rows:
        return
    model = own(make)
    tokens, mask = batch([text for text, _ in rows], sides[: len(rows)])
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        found = model(tokens, attention_mask=mask).logits
    for row, given_row in enumerate(rows):
        close(found[row, mask[row] == 1], by_hand(model, given_row))


PIECES = [*"12+*=;a ", "34", "12+34=64;", " 7*8=", "succ(", "99)=", "parity(10)=1"]


@families
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
@torch.no_grad()
def test_a_cache_gives_what_the_whole_text_gives(make: Any, seed: int) -> None:
    """Rows grow token by token or by more, problems come about and end in them, and the cache is cut at times."""
    rng, model, cache = random.Random(seed), own(make), None
    known, mask = torch.zeros(2, 0).long(), torch.zeros(2, 0).long()
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        for _ in range(8):
            most = rng.choice([1, 2, 3, 99])
            more = batch(["".join(rng.choices(PIECES, k=5))[:most] for _ in range(2)], ["left"] * 2)
            known, mask = (torch.cat(pair, 1) for pair in zip((known, mask), more, strict=True))
            out = model(more[0], attention_mask=mask, past_key_values=cache, use_cache=True)
            wanted = model(known, attention_mask=mask, use_cache=False).logits[:, -more[0].shape[1] :]
            close(out.logits[more[1] == 1], wanted[more[1] == 1])
            cache, cut = out.past_key_values, rng.choice([0, 0, 1, 4])
            cut = min(cut, known.shape[1] - 1)
            cache.crop(-cut)
            known, mask = known[:, : known.shape[1] - cut], mask[:, : mask.shape[1] - cut]


@pytest.mark.parametrize("beams", [1, 2])
def test_generating_is_the_same_with_a_cache_without_and_alone(beams: int) -> None:
    model, rows = own(llama), ["so 12+345=", "1+2=3; parity(101)=", "x succ(12345)=6 and 7*8"]
    tokens, mask = batch(rows, ["left"] * 3)
    more = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": PAD, "num_beams": beams}
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        first, second = (model.generate(tokens, attention_mask=mask, use_cache=use, **more) for use in (True, False))
        assert torch.equal(first, second)
        for row, text in zip(first, rows, strict=True):
            assert torch.equal(row[tokens.shape[1] :], model.generate(ids(text)[None], **more)[0, len(text) :])


def test_threads_that_share_a_model_give_what_each_text_gives_alone() -> None:
    """Passes over whole texts, with layouts of their own, and generation, which keeps what it has computed."""
    model, lengths = own(llama), [range(1, 6), range(2, 9)]
    texts = [f"{'so it is '[:k]}{12 + k}+{340 * k + 7}=64; and succ({99 + k})=0 then".ljust(40) for k in range(9)]
    layouts = [PATTERNS[0].layout((first, second)) for first, second in itertools.product(*lengths)]
    lines = Lines.one_key_per_head(layouts[0], HEADS, LAYERS)
    more = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": PAD}

    def of_text(text: str) -> Tensor:
        with torch.no_grad():
            return model(ids(text)[None], use_cache=False).logits

    def written(text: str) -> Tensor:
        return model.generate(ids(text.strip())[None], **more)

    def of_layout(layout: Layout) -> Tensor:
        with torch.no_grad(), handle.lent(layout=layout):
            return model(torch.arange(9, 9 + token_count(layout))[None] % 60, use_cache=False).logits

    with ThreadPoolExecutor(4) as pool:
        with hf.attach(model, BIAS, tokenizer=TOKENIZER):
            alone = [*map(of_text, texts), *map(written, texts)]
            found = [*pool.map(of_text, texts * 5), *pool.map(written, texts * 2)]
        for each, wanted in zip(found, [*alone[: len(texts)] * 5, *alone[len(texts) :] * 2], strict=True):
            torch.testing.assert_close(each, wanted, atol=1e-5, rtol=1e-4)
        with hf.attach(model, lines, layouts[0]) as handle:
            for each, layout in zip(pool.map(of_layout, layouts * 3), layouts * 3, strict=True):
                torch.testing.assert_close(each, of_layout(layout), atol=1e-5, rtol=1e-4)
            assert handle.layout == layouts[0]


@dataclass(frozen=True)
class Slopes(Bias):
    """Written by a reader: text is seen the less, the further back it is, and a problem counts as one."""

    patterns: tuple[Pattern, ...] = PATTERNS
    steep: float = 0.5

    def rows(self, spans: Any, layer: int, first: int, last: int) -> Tensor:
        where = positions(spans, last)
        return causal_rows(first, last) - self.steep * (layer + 1) * (where[first:, None] - where).abs()


@torch.no_grad()
def test_a_new_bias_of_text_is_one_class() -> None:
    model, text = own(neox), "so 12+345=753; and succ(99)=001; so"
    where = positions(spans_in(text, PATTERNS), len(text))
    mask = [torch.full((len(text), len(text)), -torch.inf).triu(1) for _ in range(LAYERS)]
    for layer in range(LAYERS):
        mask[layer] -= 0.5 * (layer + 1) * (where[:, None] - where).abs()
    with eager_with(model, lambda layer: mask[layer].expand(HEADS, -1, -1)):
        wanted = model(ids(text)[None], position_ids=where[None], use_cache=False).logits
    with hf.attach(model, Slopes(), tokenizer=TOKENIZER):
        close(model(ids(text)[None]).logits, wanted)
        first = model(ids(text[:12])[None])
        close(model(ids(text[12:])[None], past_key_values=first.past_key_values).logits, wanted[:, 12:])


@torch.no_grad()
def test_a_model_that_is_saved_under_a_bias_takes_it_again_in_two_lines(tmp_path: Path) -> None:
    """A folder holds the weights alone, and a bias is kept as any object of Python is."""
    model, tokens = own(llama), ids("12+34=64; and succ(99)=0")[None]
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        wanted = model(tokens).logits
        model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not torch.equal(again(tokens).logits, wanted)
    hf.attach(again, pickle.loads(pickle.dumps(BIAS)), tokenizer=TOKENIZER)
    assert torch.equal(again(tokens).logits, wanted)


def trained_tokenizer(kind: str) -> Any:
    """A tokenizer that has learned to merge digits and signs."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    found, alphabet = Tokenizer(models.BPE()), [*map(chr, range(32, 127))]
    if kind == "bytes":  # as of GPT-2
        found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:  # as of Llama 2
        found.normalizer = normalizers.Replace(" ", "▁")
        found.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, special_tokens=["<s>"])
    found.train_from_iterator(["it is 12+34=64; and so 123+989=2111; then 12*3=63;"] * 50, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=found, pad_token="<s>")


SUMS = PATTERNS[:2]


@pytest.mark.parametrize("kind", ["bytes", "no parts"])
@torch.no_grad()
def test_a_tokenizer_that_merges_digits_is_refused_and_is_given_one_digit_tokens(kind: str) -> None:
    merging, bias = trained_tokenizer(kind), SpanLines.one_key_per_head(SUMS, HEADS, LAYERS)
    model = made(llama, **SIZES | {"vocab_size": 600})
    with pytest.raises(InputError, match="one_digit_tokens"):
        hf.attach(model, bias, tokenizer=merging)
    single = hf.one_digit_tokens(merging, SUMS)
    text = "so it is 12+34=64; and then 123*9=7"
    assert len(single.encode("then it is")) <= len(merging.encode("then it is")) < len("then it is")
    with hf.attach(model, bias, tokenizer=single) as handle:
        model(torch.tensor([single.encode(text)]))
        found = [(span.lengths, span.answer_length) for span in handle.setting.reader.spans(single.encode(text))]
        assert found == [((2, 2), 2), ((3, 1), 1)]
    assert len(merging.encode("12+34=64;")) < 9


def test_what_text_cannot_be_is_said_in_a_sentence() -> None:
    model, tokens = own(llama), ids("so 12+34=")[None]
    with pytest.raises(InputError, match="tokenizer=tokenizer"):
        hf.attach(model, BIAS)
    with pytest.raises(InputError, match="tokenizer=tokenizer"):
        hf.attach(model, BIAS, PATTERNS[0].layout((2, 2)), tokenizer=TOKENIZER)
    with pytest.raises(InputError, match="6 heads and the model 5"):
        hf.attach(model, SpanLines.one_key_per_head(SUMS, HEADS + 1, LAYERS), tokenizer=TOKENIZER)
    plain = model(tokens[:, :4]).past_key_values
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        with pytest.raises(InputError, match="input_ids"):
            model(inputs_embeds=model.get_input_embeddings()(tokens))
        with pytest.raises(InputError, match="is not known"):
            model(tokens[:, 4:], past_key_values=plain)
    assert hf.attached(model) is None


PARITY = SpanLines.one_key_per_head(PATTERNS[3:4], HEADS, LAYERS)


def test_a_llama_is_trained_until_its_answers_are_certified_in_any_text() -> None:
    torch.manual_seed(0)
    model = llama(**SIZES)
    with hf.attach(model, PARITY, tokenizer=TOKENIZER):
        (before,) = hf.certify(model)
        assert not before.certified and before.problem in str(before)
        hf.train_until_certified(model, 60, rate=1e-2, batch=64)
        (certificate,) = hf.certify(model)
        assert certificate.certified and certificate.margin > 100 * certificate.rounding
        narrow = replace(certificate, rounding=certificate.margin)
        assert not narrow.certified and "rounding can change the smallest margin" in str(narrow)
        model.eval()
        for bits in ("1", "1101", "10110" * 20):
            prompt = ids(f"and so it is, is it? parity({bits})=")[None]
            found = model.generate(prompt, max_new_tokens=len(bits) + 1, pad_token_id=PAD, do_sample=False)
            answer = TOKENIZER.decode(found[0, prompt.shape[1] :])
            assert answer == PATTERNS[3].answer([bits]) + END


@pytest.mark.parametrize("make", [llama, neox, qwen3, smollm3], ids=NAMES.get)
@given(row=texts())
@settings(max_examples=5)
@torch.no_grad()
def test_a_context_gives_the_logits_of_any_text_around_it(make: Any, row: Known) -> None:
    model = own(make)
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        answers, (text, known) = Attending(model), row
        logits = model(ids(text + " ")[None]).logits[0]
        for start, task, operands, written in known:
            pattern = next(each for each in PATTERNS if each.task.name == task)
            problem = pattern.problem(operands) + pattern.answer(operands)[:written]
            contexts = answers.contexts(pattern, tuple(map(len, operands)), problem, 0, written + 1)
            end = start + len(problem)
            close(answers(contexts), logits[end - written - 1 : end])


def test_answers_that_depend_on_their_place_get_no_certificate() -> None:
    """GPT-2 has learned positions, and some see a neighbour past the attention."""
    model = own(gpt2)
    with pytest.raises(InputError, match="attach a bias of text"):
        hf.certify(model)
    with hf.attach(model, BIAS, tokenizer=TOKENIZER), pytest.raises(InputError, match="another place"):
        hf.certify(model)
    whole = SpanLines.whole(PATTERNS, HEADS, 1)
    with hf.attach(model, whole, tokenizer=TOKENIZER), pytest.raises(InputError, match="the same in every layer"):
        hf.certify(model)
    model = copy.deepcopy(own(llama))
    with hf.attach(model, BIAS, tokenizer=TOKENIZER):
        model.model.norm.register_forward_hook(
            lambda _, __, out: out + 0.1 * nn.functional.pad(out, (0, 0, 1, 0))[:, :-1]
        )
        with pytest.raises(InputError, match="another place"):
            hf.certify(model)
