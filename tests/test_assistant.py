"""A path of their own for problems in a language model: what it computes, its contexts, its training, its answers."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from pathlib import Path as File
from typing import Any

import pytest
import torch
from helpers import one_token_a_character
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from abc_nb.bias.sequence import dense_bias
from abc_nb.bias.text import SpanLines
from abc_nb.certificates.practice import PracticeResult
from abc_nb.certificates.text import SpanContexts
from abc_nb.common.errors import InputError
from abc_nb.hf.certificates import AllAnswers, random_contexts, train_until_certified
from abc_nb.problems.sampling import generator
from abc_nb.problems.tasks import Task
from abc_nb.problems.text import Pattern, spans_in
from abc_nb.specs.language import OPERATIONS, patterns
from examples.smollm2 import public, smollm2
from examples.smollm2.path import Calculator, Path

pytestmark = pytest.mark.xdist_group("assistant")  # one worker trains what its tests share

ADDITION = Pattern(Task("addition"), "{a}+{b}=")
PARITY = Pattern(Task("parity"), "parity({bits})=")
DIFFERENCE, COMPARISON, QUOTIENT = patterns(OPERATIONS)[-3:]
NUMBERS = st.integers(0, 10**8 - 1).map(str)


@lru_cache
def language_model() -> tuple[Any, Any]:
    """A small Llama with grouped queries, and a tokenizer of one token a character."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = one_token_a_character()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=2, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), tokenizer


def new_path(*patterns: Pattern, depth: int = 2) -> Path:
    model, tokenizer = language_model()
    return Path(model, tokenizer, SpanLines.one_key_per_head(patterns, 8, depth), depth)


@lru_cache
def trained() -> tuple[Path, PracticeResult]:
    path = new_path(PARITY)
    return path, train_until_certified(path, 90, rate=1e-2, batch=64)


@settings(deadline=None, max_examples=10)
@given(NUMBERS, NUMBERS)
def test_a_context_gives_the_logits_that_the_whole_problem_gives(a: str, b: str) -> None:
    """All tokens of problem and answer in one sequence, under the dense bias."""
    path = new_path(ADDITION)
    text, lengths = ADDITION.problem([a, b]) + ADDITION.answer([a, b]), (len(a), len(b))
    layout = ADDITION.layout(lengths)
    mask = dense_bias(path.bias.lines_of(ADDITION), layout, 0, 8)[None, :, : len(text), : len(text)]
    characters = torch.tensor([path.characters.index(character) for character in text])
    with torch.inference_mode():
        whole = path.layers(
            inputs_embeds=path.states[characters][None],
            attention_mask=mask,
            position_ids=torch.zeros(1, len(text), dtype=torch.long),
        )
        wanted = path.head[0](whole.last_hidden_state[0, layout.source_length :])
        found = path(path.contexts(ADDITION, lengths, text, 0, len(wanted)))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_the_path_begins_where_the_model_s_lower_layers_end() -> None:
    """Under a mask without lines it goes on from the states as the model itself does."""
    model, tokenizer = language_model()
    path = new_path(ADDITION)
    token = tokenizer.encode("7", add_special_tokens=False)[0]
    with torch.inference_mode():
        hidden = model(torch.tensor([[0, token]]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(path.states[path.characters.index("7")], hidden[1][0, 1])


def as_rows(contexts: Any) -> set[bytes]:
    """Each context as what its heads see, with the right character."""
    seen = (contexts.added > -torch.inf).long().flatten(1)
    return {row.tobytes() for row in torch.cat([seen, contexts.before[:, None], contexts.right[:, None]], 1).numpy()}


def test_every_context_of_random_problems_is_one_of_those_that_are_tried() -> None:
    path = smollm2.new_path(*language_model(), (PARITY, ADDITION, DIFFERENCE, COMPARISON, QUOTIENT))
    met = as_rows(random_contexts(path, generator(0), 2000))
    assert met <= as_rows(AllAnswers(path).contexts) and len(met) > 500


def test_training_ends_in_a_certificate_that_long_problems_bear_out() -> None:
    path, practised = trained()
    (certificate,) = practised.certificates
    assert certificate.certified and certificate.margin > 0 and certificate.rounding < 1e-3
    assert "any lengths" in str(certificate)
    assert practised.progress.step == len(practised.progress.history) == 90 + 30 * practised.rounds
    rng = random.Random(0)
    for length in (1, 7, 100):
        bits = "".join(rng.choice("01") for _ in range(length))
        answer = path.answer(PARITY, [bits])
        assert len(answer) == length and int(answer[-1]) == bits.count("1") % 2


def test_an_untrained_path_is_not_certified_and_its_problem_is_answered_wrong() -> None:
    path = new_path(PARITY)
    trial = AllAnswers(path)
    wrong = trial.search(math.inf, lambda *_: None)
    (certificate,) = trial.certificates()
    assert not certificate.certified and certificate.problem in str(certificate)
    assert wrong == certificate.wrong <= int(trial.weights.sum())
    assert trial.search(1, lambda *_: None) > 0
    (span,) = spans_in(certificate.problem, (PARITY,))
    assert path.answer(PARITY, span.operands) != PARITY.answer(span.operands)


def test_a_saved_path_gives_the_same_logits_from_a_byte_for_each_weight(tmp_path: File) -> None:
    path, fresh = trained()[0], new_path(PARITY)
    path.save(tmp_path / "path.safetensors")
    assert (tmp_path / "path.safetensors").stat().st_size < 1.5 * sum(w.numel() for w in path.layers.parameters())
    contexts = random_contexts(path, generator(1), 50)
    with torch.inference_mode():
        assert not fresh(contexts).equal(path(contexts))
        assert fresh.load(tmp_path / "path.safetensors")(contexts).equal(path(contexts))


PLAIN = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}


@pytest.mark.parametrize(
    "text", ["No problem here", "parity(1012)=", "parity(101)=x", "a parity(101", "=", "parity(101)=10011"]
)
def test_without_a_problem_to_answer_text_is_the_model_s_own(text: str) -> None:
    path, (model, tokenizer) = trained()[0], language_model()
    tokens, scores = tokenizer(text, return_tensors="pt"), torch.randn(1, 200)
    calculator = Calculator(path, tokenizer)
    assert calculator(tokens["input_ids"], scores) is scores
    written = model.generate(**tokens, **PLAIN, logits_processor=[calculator])
    assert written.equal(model.generate(**tokens, **PLAIN))


@pytest.mark.parametrize(("pattern", "right"), [(DIFFERENCE, "57"), (COMPARISON, "2"), (QUOTIENT, "23")])
def test_answers_of_every_form_are_written_as_people_write_them(pattern: Pattern, right: str) -> None:
    """Given the right answer in the task's order, without the zeros and the running digits of its draft."""
    path, operands = new_path(pattern), ["95", "4" if pattern is QUOTIENT else "38"]
    path.answer = Pattern.answer  # type: ignore[method-assign, assignment]
    text = pattern.problem(operands)
    calculator = Calculator(path, language_model()[1])
    written = ""
    while digit := calculator.next_digit(f"so {text}{written}"):
        written += digit
    assert written == right


def test_answers_in_generated_text_are_the_path_s() -> None:
    """Two rows of a batch, one of them with the beginning of an answer."""
    sums = SpanLines.one_key_per_head((ADDITION,), 8, 1)
    model, tokenizer = language_model()
    path = Path(model, tokenizer, sums, 1)
    wanted = ADDITION.task.said(path.answer(ADDITION, ["905", "1234567"]))  # of a path that has learned nothing
    calculator = Calculator(path, tokenizer)
    for written in range(len(wanted)):
        text = f"Well, 905+1234567={wanted[:written]}"
        spaced = text.replace("+", " + ").replace("=", " = ")
        assert calculator.next_digit(text) == calculator.next_digit(spaced) == wanted[written]
        others = (text + "x", "1" + text.replace(" ", ""), text.replace("905", "9.05"), text.replace("+", "-"))
        assert {calculator.next_digit(other) for other in others} == {None}
    assert calculator.next_digit(f"Well, 905+1234567={wanted}") == ""
    tokens = tokenizer(["(1) 905+1234567=", "And 905+1234567="], return_tensors="pt")
    for row in tokenizer.batch_decode(model.generate(**tokens, **PLAIN, logits_processor=[calculator])):
        written = row.partition("=")[2]
        assert written.startswith(wanted) and not written[len(wanted)].isdigit()


@pytest.mark.parametrize(
    ("depth", "heads", "form", "message"),
    [
        (4, 8, "parity({bits})=", "4 layers is not possible"),
        (0, 8, "parity({bits})=", "0 layers is not possible"),
        (1, 4, "parity({bits})=", "4 heads and the model 8"),
        (2, 8, "п({bits})=", "one for each character"),
    ],
)
def test_what_no_path_is_made_of_is_refused(depth: int, heads: int, form: str, message: str) -> None:
    model, tokenizer = language_model()
    bias = SpanLines.one_key_per_head((Pattern(Task("parity"), form),), heads, max(1, depth))
    with pytest.raises(InputError, match=message):
        Path(model, tokenizer, bias, depth)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is 98 plus 45?", "98+45="),
        ("like 123 . Multiply two numbers: 98 * 4", "98*4="),
        ("What is 12 times 34?", None),  # a factor of two digits
        ("What is 649 minus 244?", "649-244="),
        ("What is 244 minus 649?", None),
        ("What is 35 divided by 7?", "35//7="),
        ("What is 35 divided by 17?", None),
        ("Get the maximal number: 98 and 45", "98?45="),
        ("return the larger digit at each place: 98 and 45", None),
        ("like 10.4 . Add two numbers: 61197424.22 + 825", None),
        ("like 10.4 . Add two numbers: 825 + 61197424.22", None),
    ],
)
def test_an_items_problem_is_read_if_the_path_has_a_form_for_it(question: str, text: str | None) -> None:
    assert public.problem({"question": question}) == text


@pytest.mark.parametrize(
    ("said", "number"), [("1", "45"), ("2", "98"), (" 0 is it", "98"), ("45", "45"), ("none", None)]
)
def test_an_answer_to_a_comparison_is_a_number_of_the_two(said: str, number: str | None) -> None:
    assert public.meant("98?45=", said) == ([] if number is None else [number])
    assert public.meant("44+1=", said) == ([] if number is None else public.numbers(said))


def test_the_page_of_smollm2_has_the_measured_tables() -> None:
    page = (smollm2.HERE / "README.md").read_text()
    assert smollm2.summary(smollm2.shipped()) in page
    assert public.table(smollm2.shipped()["public"]) in page


def test_the_shipped_path_on_smollm2_is_the_certified_one() -> None:
    facts = smollm2.shipped()
    assert all(each["wrong"] == 0 < each["margin"] for each in facts["certificates"][-1])
    for each, pattern in zip(facts["certificates"][-1], smollm2.PATTERNS, strict=True):
        known = SpanContexts(SpanLines.one_key_per_head(smollm2.PATTERNS, 9, 1).lines_of(pattern), 1, pattern)
        assert each["contexts"] == sum(len(block) for shape in known.shapes for block in known.blocks(shape))
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(smollm2.WEIGHTS).items()}
    assert shapes["layers.1.mlp.down_proj.weight"] == (576, 1536)
