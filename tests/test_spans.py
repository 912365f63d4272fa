"""Problems in a text: found, masked and counted as their definition says, in whole rows and while a text grows."""

import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abc_nb import InputError, ModelConfig, Task, Transformer
from abc_nb.bias.base import CLOSED
from abc_nb.bias.spans import SpanLines, positions
from abc_nb.language.mixture import draw, solved
from abc_nb.model.positions import Rotary
from abc_nb.problems.spans import VOCABULARY, Pattern, spans_in, tokens_of
from abc_nb.training.writer import Writer, logits, rows_of

HEADS, LAYERS = 5, 2
FORMS = {"addition": "{a}+{b}=", "n-by-1": "{a}*{d}=", "successor": "succ({a})=", "parity": "parity({bits})="}
PATTERNS = tuple(Pattern(Task(task), form) for task, form in FORMS.items())
BIAS = SpanLines.one_key_per_head(PATTERNS, HEADS, LAYERS)
WORDS = st.text(" \nabcsu(p;=", max_size=12)


@st.composite
def texts(draw_one: st.DrawFn) -> tuple[str, list[tuple[int, str, list[str], int]]]:
    """A text with problems, and of each its place, task, numbers and how many digits of its answer are written."""
    rng = np.random.default_rng(draw_one(st.integers(0, 10**6)))
    text, known = "", []
    for _ in range(draw_one(st.integers(0, 3))):
        text += draw_one(WORDS) + " "
        pattern = PATTERNS[int(rng.integers(len(PATTERNS)))]
        operands = draw(pattern, [int(rng.integers(1, 6)) for _ in pattern.few], rng)
        answer = pattern.answer(operands)
        written = int(rng.integers(len(answer) + 1))
        known.append((len(text), pattern.task.name, operands, written))
        text += pattern.problem(operands) + answer[:written] + ";"
    return text + draw_one(WORDS), known


def model(bias: SpanLines = BIAS, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"width": 20, "heads": HEADS, "feed_forward": 24, "decoder_layers": LAYERS}
    config = ModelConfig(**sizes, position=Rotary(), bias=bias, source_index="running", kind="decoder-only")
    return Transformer(config, len(VOCABULARY)).eval()


def right(task: str, operands: list[str]) -> str:
    """The answer by Python's integers, units first, with as many digits as the longest number or one more."""
    if task == "parity":
        bits = [*map(int, reversed(operands[0]))]
        return "".join(str(sum(bits[: place + 1]) % 2) for place in range(len(bits)))
    numbers = [*map(int, operands)]
    result = {"addition": sum(numbers), "n-by-1": numbers[0] * numbers[-1], "successor": numbers[0] + 1}[task]
    longest = max(map(len, operands[: 1 + (task == "addition")]))
    return str(result).zfill(longest)[::-1]


@given(st.integers(0, 10**6), st.sampled_from(PATTERNS))
def test_answers_are_those_of_integers(seed: int, pattern: Pattern) -> None:
    rng = np.random.default_rng(seed)
    operands = draw(pattern, [int(rng.integers(1, 7)) for _ in pattern.few], rng)
    assert pattern.answer(operands) == right(pattern.task.name, operands)
    assert solved(pattern, operands).startswith(pattern.problem(operands))
    assert pattern.operands(pattern.problem(operands)) == operands


@given(texts())
def test_problems_are_found_where_they_were_written(given: tuple[str, list[tuple[int, str, list[str], int]]]) -> None:
    text, known = given
    found = [span for span in spans_in(text, PATTERNS) if span.finished]
    assert [(span.start, span.pattern.task.name, span.answer) for span in found] == [
        (start, task, written) for start, task, _, written in known
    ]
    for span, (_, _, operands, _) in zip(found, known, strict=True):
        assert span.lengths == tuple(map(len, operands)) and text[span.equals] == "="


def slow_bias(text: str, known: list[tuple[int, str, list[str], int]], head: int) -> np.ndarray:
    """Which keys each token sees, from the definition, one token after the other."""
    seen = np.tril(np.ones((len(text), len(text)), bool))
    for start, task, operands, written in known:
        problem = FORMS[task]
        for number in operands:
            problem = re.sub(r"\{\w+\}", number, problem, count=1)
        equals = start + len(problem) - 1
        for at in range(start, equals):
            seen[at] = np.arange(len(text)) == at
        firsts, at = [], start
        for literal, number in zip(FORMS[task].replace("}", "{").split("{")[::2], operands, strict=False):
            firsts.append(at + len(literal))
            at = firsts[-1] + len(number)
        keys = list[tuple[str, int, int]]()  # what is seen: a digit of a number so many places below, or the sign
        for which in range(len(operands)):
            keys += [("few", which, 0)] if task == "n-by-1" and which else [("long", which, 0), ("long", which, 1)]
        kind, which, below = [*keys, ("sign", 0, 0)][head % (len(keys) + 1)]
        for place in range(written + 1):
            seen[equals + place] = np.arange(len(text)) == equals + place
            number = operands[which]
            if kind == "sign":
                seen[equals + place, start + len(operands[0]) if task in ("addition", "n-by-1") else start] = True
            elif kind == "few":
                seen[equals + place, firsts[which]] = True
            elif 0 <= place - below < len(number):
                seen[equals + place, firsts[which] + len(number) - 1 - (place - below)] = True
    return seen


@given(texts())
def test_masks_are_those_of_the_definition(given: tuple[str, list[tuple[int, str, list[str], int]]]) -> None:
    text, known = given
    if not text or spans_in(text, PATTERNS)[len(known) :]:
        return
    spans = spans_in(text, PATTERNS)
    for layer in range(LAYERS):
        found = BIAS.rows(spans, layer, 0, len(text))
        for head in range(HEADS):
            assert np.array_equal((found[head] > CLOSED).numpy(), slow_bias(text, known, head))
            assert (found[head][found[head] > CLOSED] == 0).all()
    part = BIAS.rows(spans, 0, len(text) // 2, len(text))
    assert torch.equal(part, BIAS.rows(spans, 0, 0, len(text))[:, len(text) // 2 :])


@given(texts(), st.integers(1, 4))
def test_a_problem_takes_one_position_or_a_period(
    given: tuple[str, list[tuple[int, str, list[str], int]]], period: int
) -> None:
    text, _ = given
    spans, expected, at = spans_in(text, PATTERNS), [], 0
    inside = {token: span for span in spans for token in range(span.start, span.end)}
    for token in range(len(text)):
        expected.append(at)
        span = inside.get(token)
        at += 1 if span is None else period * (token == span.end - 1)
    found = positions(spans, len(text), period).tolist()
    assert all(
        base <= own < base + (period if token in inside else 1)
        for token, (own, base) in enumerate(zip(found, expected, strict=True))
    )
    if period == 1:
        assert found == expected


@given(st.integers(0, 10**6))
def test_writing_with_kept_keys_is_writing_without(seed: int) -> None:
    """Text goes on, problems are finished or not, and the text is changed or goes back."""
    rng, own = random.Random(seed), model()
    writer, text = Writer(own), "a"
    for _ in range(25):
        if rng.random() < 0.15:
            text = text[: rng.randrange(1, len(text) + 1)]
        text += rng.choice([*"12+*=;a ", "34", "12+34=64;", " 7*8=", "succ(", "99)=", "parity(10)=1"])
        with torch.no_grad():
            whole = logits(own, torch.tensor([tokens_of(text)]), rows_of(own, [text]))[0, -1]
        torch.testing.assert_close(writer.after(text), whole, atol=1e-5, rtol=1e-4)


@given(texts(), st.sampled_from(PATTERNS), st.integers(0, 10**6))
def test_an_answer_does_not_see_the_text(given: tuple[str, list[object]], pattern: Pattern, seed: int) -> None:
    rng, own = np.random.default_rng(seed), model()
    problem = pattern.problem(draw(pattern, [int(rng.integers(1, 9)) for _ in pattern.few], rng))
    text = given[0] + " " + problem
    with torch.no_grad():
        found, alone = (logits(own, torch.tensor([tokens_of(t)]), rows_of(own, [t]))[0, -1] for t in (text, problem))
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)


def test_a_number_is_no_part_of_something_longer() -> None:
    for text in ("1+2+3=", "-1+2=", "2.5+3=", "1,000+5=", "x1+2=", "12*34=", "nosucc(1)=", "parity(12)=", "1 +2="):
        assert not [span for span in spans_in(text, PATTERNS) if span.finished], text
    first, second = spans_in("1+2=345+6=", PATTERNS)[0], spans_in("7+8=51+2=", PATTERNS)[0]
    assert (first.answer, second.answer) == (2, 2)  # digits beyond what an answer can have are text
    assert [span.finished for span in spans_in("1+2=3 12+", PATTERNS)] == [True, False]


def test_patterns_that_cannot_be_found_again_are_refused() -> None:
    for task, form in (
        ("addition", "{a}{b}="),
        ("addition", "{a}+="),
        ("addition", "{a}+{b}"),
        ("addition", "2{a}+{b}="),
        ("successor", "{a}+{b}="),
        ("listops-sm", "{a}="),
    ):
        with pytest.raises(InputError):
            Pattern(Task(task), form)
    with pytest.raises(InputError, match="heads"):
        SpanLines.one_key_per_head(PATTERNS, 4, LAYERS)
