"""Problems in a text: found, masked and counted as their definition says, in whole rows and while a text grows."""

import ast
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from abc_nb import Input, InputError, ModelConfig, Task, Transformer
from abc_nb.bias.base import CLOSED
from abc_nb.bias.text import SpanLines, positions
from abc_nb.language.mixture import Mixture, draw, random_excerpt, solved, write_in
from abc_nb.language.mixture import texts as training_texts
from abc_nb.model.positions import Rotary
from abc_nb.problems.problem_starts import RELATIONS, ROOTS
from abc_nb.problems.text import VOCABULARY, Pattern, spans_in, text_tokens, without_spaces
from abc_nb.specs.language import OPERATIONS, patterns
from abc_nb.training import writer as writing
from abc_nb.training.writer import Writer, logits_of_texts, spans_of_rows

HEADS, LAYERS = 5, 2
FEW = "n-by-1", "division"
PATTERNS = patterns(OPERATIONS)
BIAS = SpanLines.one_key_per_head(PATTERNS, HEADS, LAYERS)
Problem = tuple[int, str, list[str], int]  # its place, task, numbers and how many digits of its answer are written
Drawn = tuple[str, list[Problem]]
WORDS = st.text(" \nabcsu(p;=", max_size=12)


@st.composite
def texts(draw_one: st.DrawFn) -> Drawn:
    """A text, and the problems in it."""
    rng = np.random.default_rng(draw_one(st.integers(0, 10**6)))
    text, known = "", []
    for _ in range(draw_one(st.integers(0, 3))):
        text += draw_one(WORDS) + " "
        pattern = PATTERNS[int(rng.integers(len(PATTERNS)))]
        operands = draw(pattern, [int(rng.integers(1, 6)) for _ in pattern.short], rng)
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


@torch.no_grad()
def last_logits(transformer: Transformer, text: str) -> Tensor:
    """Behind the last token of a text, by one pass over all of it."""
    return logits_of_texts(transformer, torch.tensor([text_tokens(text)]), spans_of_rows(transformer, [text]))[0, -1]


def right(task: str, operands: list[str]) -> str:
    """The answer by Python's integers, units first but of a quotient, with as many digits as the longest or one more.

    That of a comparison says of the lowest digits, from one on, whether they are equal (0), smaller (1) or larger (2).
    """
    if task == "parity":
        bits = [*map(int, reversed(operands[0]))]
        return "".join(str(sum(bits[: place + 1]) % 2) for place in range(len(bits)))
    first, last = int(operands[0]), int(operands[-1])
    longest = max(map(len, operands[: 1 + (task in ("addition", "subtraction", "comparison"))]))
    if task == "division":
        return str(first // last).zfill(longest)
    if task == "comparison":
        lowest = [(first % 10**places, last % 10**places) for places in range(1, longest + 1)]
        return "".join("0" if a == b else "1" if a < b else "2" for a, b in lowest)
    results = {"addition": first + last, "subtraction": first - last, "n-by-1": first * last, "successor": first + 1}
    result = results[task]
    return str(result).zfill(longest)[::-1]


@given(st.integers(0, 10**6), st.sampled_from(PATTERNS))
def test_answers_are_those_of_integers(seed: int, pattern: Pattern) -> None:
    rng = np.random.default_rng(seed)
    operands = draw(pattern, [int(rng.integers(1, 7)) for _ in pattern.short], rng)
    assert pattern.answer(operands) == right(pattern.task.name, operands)
    assert solved(pattern, operands).startswith(pattern.problem(operands))


@given(texts())
def test_problems_are_found_where_they_were_written(drawn: Drawn) -> None:
    text, problems = drawn
    spans = [span for span in spans_in(text, PATTERNS) if span.finished]
    assert [(span.start, span.pattern.task.name, span.answer_length) for span in spans] == [
        (start, task, written) for start, task, _, written in problems
    ]
    for span, (_, _, operands, _) in zip(spans, problems, strict=True):
        assert [*span.operands] == operands and text[span.equals] == "="


def slow_bias(text: str, problems: list[Problem], head: int) -> np.ndarray:
    """Which keys each token sees, from the definition, one token after the other."""
    seen = np.tril(np.ones((len(text), len(text)), bool))
    for start, task, operands, written in problems:
        problem = OPERATIONS[task]
        for number in operands:
            problem = re.sub(r"\{\w+\}", number, problem, count=1)
        equals = start + len(problem) - 1
        for at in range(start, equals):
            seen[at] = np.arange(len(text)) == at
        firsts, at = [], start
        for literal, number in zip(OPERATIONS[task].replace("}", "{").split("{")[::2], operands, strict=False):
            firsts.append(at + len(literal))
            at = firsts[-1] + len(number)
        keys = list[tuple[str, int, int]]()  # what is seen: a digit of a number so many places below, or the sign
        for which in range(len(operands)):
            keys += [("few", which, 0)] if task in FEW and which else [("long", which, 0), ("long", which, 1)]
        kind, which, below = [*keys, ("sign", 0, 0)][head % (len(keys) + 1)]
        for place in range(written + 1):
            seen[equals + place] = np.arange(len(text)) == equals + place
            number = operands[which]
            if kind == "sign":
                sign = len(operands[0]) + (task == "division") if len(operands) == 2 else 0  # the last one of `//`
                seen[equals + place, start + sign] = True
            elif kind == "few":
                seen[equals + place, firsts[which]] = True
            elif 0 <= place - below < len(number):
                from_left = place - below
                at = from_left if task == "division" else len(number) - 1 - from_left
                seen[equals + place, firsts[which] + at] = True
    return seen


@given(texts())
def test_masks_are_those_of_the_definition(drawn: Drawn) -> None:
    text, problems = drawn
    if not text or spans_in(text, PATTERNS)[len(problems) :]:
        return
    spans = spans_in(text, PATTERNS)
    for layer in range(LAYERS):
        bias = BIAS.rows(spans, layer, 0, len(text))
        for head in range(HEADS):
            assert np.array_equal((bias[head] > CLOSED).numpy(), slow_bias(text, problems, head))
            assert (bias[head][bias[head] > CLOSED] == 0).all()
    part = BIAS.rows(spans, 0, len(text) // 2, len(text))
    assert torch.equal(part, BIAS.rows(spans, 0, 0, len(text))[:, len(text) // 2 :])


@given(texts(), st.integers(1, 4))
def test_a_problem_takes_one_position_or_a_period(drawn: Drawn, period: int) -> None:
    text, _ = drawn
    spans, expected, at = spans_in(text, PATTERNS), [], 0
    inside = {token: span for span in spans for token in range(span.start, span.end)}
    for token in range(len(text)):
        expected.append(at)
        span = inside.get(token)
        at += 1 if span is None else period * (token == span.end - 1)
    taken = positions(spans, len(text), period).tolist()
    assert all(
        base <= position < base + (period if token in inside else 1)
        for token, (position, base) in enumerate(zip(taken, expected, strict=True))
    )
    if period == 1:
        assert taken == expected


@settings(max_examples=12)
@given(st.integers(0, 10**6))
def test_writing_with_kept_keys_is_writing_without(seed: int) -> None:
    """Text goes on, problems are finished or not, and the text is changed or goes back."""
    rng, transformer = random.Random(seed), model()
    writer, text = Writer(transformer), "a"
    for _ in range(25):
        if rng.random() < 0.15:
            text = text[: rng.randrange(1, len(text) + 1)]
        text += rng.choice([*"12+*=;a ", "34", "12+34=64;", " 7*8=", "succ(", "99)=", "parity(10)=1"])
        torch.testing.assert_close(writer.after(text), last_logits(transformer, text), atol=1e-5, rtol=1e-4)


def test_a_writer_that_was_interrupted_knows_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, passes, texts = Writer(model()), writing.passes, ["so 1+2=3; and", "so 1+2=3; or 45+6="]

    def interrupted(*arguments: Any) -> Iterator[Tensor]:
        yield next(iter(passes(*arguments)))
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "TOKENS_AT_ONCE", 4)
    before = writer.after(texts[0])
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(writing, "passes", interrupted)
        writer.after(texts[1])
    torch.testing.assert_close(writer.after(texts[0]), before, atol=1e-5, rtol=1e-4)


@given(texts(), st.sampled_from(PATTERNS), st.integers(0, 10**6))
def test_an_answer_does_not_see_the_text(drawn: Drawn, pattern: Pattern, seed: int) -> None:
    rng, transformer = np.random.default_rng(seed), model()
    problem = pattern.problem(draw(pattern, [int(rng.integers(1, 9)) for _ in pattern.short], rng))
    alone, behind_text = last_logits(transformer, problem), last_logits(transformer, f"{drawn[0]} {problem}")
    torch.testing.assert_close(behind_text, alone, atol=1e-5, rtol=1e-4)


# ---- what is a problem, and what is a part of something longer

NUMBERS = st.integers(0, 20_000)
NAMES = {ast.Add: "addition", ast.Sub: "subtraction", ast.Mult: "n-by-1", ast.FloorDiv: "division"}


@st.composite
def expressions(draw_one: st.DrawFn, depth: int = 2) -> str:
    """An expression of numbers in Python's signs, with spaces, brackets and thousands separators."""
    if depth == 0 or draw_one(st.integers(0, 4)) == 0:
        number = draw_one(NUMBERS)
        written = draw_one(st.sampled_from([str(number), f"{number:_}", f"{number}.5", f"-{number}", f"~{number}"]))
        return written if draw_one(st.integers(0, 3)) == 0 else str(number)
    left, right = (draw_one(expressions(depth - 1)) for _ in range(2))
    space, sign = (
        draw_one(st.sampled_from(["", " "])),
        draw_one(st.sampled_from(["+", "*", "-", "/", "//", "**", "%", "|"])),
    )
    expression = f"{left}{space}{sign}{space}{right}"
    return expression if draw_one(st.integers(0, 4)) else f"({expression})"


@given(expressions(), st.sampled_from(["", "it is ", "is it (", "x = ", "1. ", "(a) ", "Step 4 - ", "first\n", "$"]))
@settings(max_examples=500)
def test_a_problem_is_a_whole_expression_as_python_reads_it(expression: str, before: str) -> None:
    """Python's own parser says whether it is two numbers and one sign; then it is read, and otherwise nothing is."""
    tree, wanted = ast.parse(expression, mode="eval").body, ""
    if isinstance(tree, ast.BinOp) and type(tree.op) in NAMES and not expression.startswith("("):
        sides = [side.value for side in (tree.left, tree.right) if isinstance(side, ast.Constant)]
        if len(sides) == 2 and all(isinstance(side, int) for side in sides) and not set("_()") & set(expression):
            fits = sides[0] >= sides[1] if isinstance(tree.op, ast.Sub) else sides[1] in range(0, 10)
            fits = isinstance(tree.op, ast.Add) or (fits and (sides[1] > 0 or not isinstance(tree.op, ast.FloorDiv)))
            wanted = expression.replace(" ", "") + "=" if fits else ""
    read = without_spaces(before + expression + "=", PATTERNS)
    assert read == before + (wanted or expression + "=")
    spans = spans_in(read, PATTERNS)
    assert [(NAMES[type(tree.op)], len(before)) for _ in "1" * bool(wanted)] == [  # type: ignore[attr-defined]
        (span.pattern.task.name, span.start) for span in spans if span.finished
    ]


def test_behind_a_number_no_sign_of_unicode_stands_before_a_problem() -> None:
    """Neither `7 ∗ 12+34=` nor `7∗12+34=` holds a problem. Behind a word a sign with spaces is punctuation."""
    spaces = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Zs"]
    for sign in map(chr, range(128, sys.maxunicode)):
        if unicodedata.category(sign) in ("Sm", "Pd", "Sk", "So", "Sc", "Nd", "Nl", "No"):
            relation = sign in RELATIONS or "\u2190" <= sign <= "\u21ff"
            for text in (f"7 {sign} 12+34=", f"7{sign}12+34=", f"7{sign} 12+34="):
                assert relation or not spans_in(text, PATTERNS), text
            if unicodedata.category(sign) in ("Sm", "Pd", "So") and sign not in ROOTS:
                assert spans_in(f"so {sign} 12+34=", PATTERNS)
    for space in spaces:
        assert not spans_in(f"7{space}12+34=", PATTERNS) and spans_in(f"so{space}12+34=", PATTERNS)
        assert without_spaces(f"so{space}12{space}+{space}34{space}=", PATTERNS) == f"so{space}12+34="


LONGER = """2 × 60 + 20 =|$12 + $12 + 18 =|60 x 11 + 20 =|1+2+3=|-1+2=|2.5+3=|1,23+5=|x1+2=|12*34=|nosucc(1)=
1 + 2+3=|20:4+5=|6×4+5=|√16+9=|so √ 16+9=|1 000+234=|7 * 12+34=|Compute 4 - 12+34=|x = - 12+34=|parity(12)=|5²+3=|½+3=
12 plus 3+4=|(1+2)+3=|2(3+4=|100%3+4=|5!+3=|1e5 + 3+4=|20 : 4+5=|1.12+34=|3 * (2) 12+34=|2 * succ(9)=
1'000+5=|２+3+4=|2 apples + 3+4=|12-34=|7-0012=|7//0=|12//34=|7/2=|9?5?7=|Step 4 - 3=|9-5-7=|7//2//3="""


@pytest.mark.parametrize("text", [*LONGER.replace("\n", "|").split("|"), "1 +\n2+3="])
def test_a_part_of_something_longer_is_no_problem(text: str) -> None:
    assert not [span for span in spans_in(text, PATTERNS) if span.finished]
    assert without_spaces(text, PATTERNS) == text


STARTS = """- |* |1. |1) |(1) |a) |Step 4 - |Step 4 – |Question 12: |12: |We had 3. |So (|"|x = |→ |a, |1, 2, |$|
7+8=51 |5*7= |5*7=53;|so — |**Answer** |x + |in 2024 we had """


@pytest.mark.parametrize("before", ["", "in 2024:\n", *STARTS.replace("\n", "").split("|")])
def test_a_problem_may_stand_behind_a_mark_or_a_word(before: str) -> None:
    last = [span for span in spans_in(before + "12+34=", PATTERNS) if span.finished][-1]
    assert (last.start, last.lengths) == (len(before), (2, 2))


def test_digits_behind_an_answer_are_text() -> None:
    first, second = spans_in("1+2=345+6=", PATTERNS)[0], spans_in("7+8=51+2=", PATTERNS)[0]
    assert (first.answer_length, second.answer_length) == (2, 2)
    assert [span.finished for span in spans_in("1+2=3 12+", PATTERNS)] == [True, False]
    assert len(spans_in("1+2=3 + 4+5=", PATTERNS)) == 1


@pytest.mark.parametrize("part", ["7", "1+", "1 ", "(", "succ(", "- ", "1,111", "=1+1", "12 + "])
def test_each_token_of_a_text_is_looked_at_a_few_times_however_long_it_is(part: str) -> None:
    """Counted by what is asked of a text: no more than a fixed number of looks for each character."""

    class Counting(str):
        looks = 0

        def __getitem__(self, key: object) -> str:
            Counting.looks += 1
            return super().__getitem__(key)  # type: ignore[index]

    for length in (100, 1000):
        Counting.looks, text = 0, Counting(part * length)
        spans_in(text, PATTERNS)
        assert Counting.looks <= 40 * len(text)


def test_problems_are_found_in_whatever_text_they_were_written_into_for_training() -> None:
    mixture = Mixture(PATTERNS)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problems = [mixture.problem(rng) for _ in range(10)]
        text = write_in(random_excerpt(training_texts()[0], 1000, rng), problems, rng)
        read = Counter(text[span.start : span.end] + ";" for span in spans_in(text, PATTERNS) if span.finished)
        assert read.keys() >= {problem for problem in problems if problem in text}


def test_patterns_that_cannot_be_found_again_are_refused() -> None:
    for form in ("{a}{b}=", "{a}+=", "{a}+{b}", "2{a}+{b}=", "{a}//{b}//{c}="):
        with pytest.raises(InputError):
            Pattern(Task("addition"), form)
    both = replace(
        Task("addition").rule, name="both", inputs=(Input("place", 10, from_left=True),) * 2, notation="symbols"
    )
    with pytest.raises(InputError, match="cannot be written into a text"):
        Pattern(Task.of(both), "{a}+{b}=")
    with pytest.raises(InputError, match="heads"):
        SpanLines.one_key_per_head(PATTERNS, 4, LAYERS)
