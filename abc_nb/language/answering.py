"""A text that a person typed: the answer to each problem in it, or why it has none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import TEST, generator
from abc_nb.problems.text import END, EQUALS, Pattern, ProblemSpan, spans_in, text_tokens, without_spaces
from abc_nb.training.evaluation import in_float64
from abc_nb.training.writer import Writer, check_memory

ALMOST_PROBLEM = re.compile(r"\d[\d\s.,+\-*/^()]*$")  # what looks like a problem before an `=`
TAIL = 60  # characters before an `=` in which it is looked for
CONTINUATION = 200  # characters that are written after a text without a problem
TEMPERATURE = 0.8  # at which they are drawn, the same ones each time


def spoken(model: Transformer, text: str, whole: bool = False) -> str:
    """The answers to the problems of a text, a line each, or the `whole` text with them as the model writes it.

    Each is decoded greedily where it stands, with what is before it, in float64, for which certificates hold; in the
    whole text units come first, and `;` last.
    A whole text without a problem is continued, and so is any by a model that knows no problems. InputError for a text
    that has none otherwise, or that cannot be answered: see `problems_of`.
    """
    patterns = model.config.bias.patterns
    text, spans = problems_of(patterns, text)
    if patterns and not spans and not whole:
        raise InputError(f"there is no problem in {shortened(text)!r}: write one as {forms(patterns)}")
    model = in_float64(model)
    check_memory(model, len(text) + sum(span.pattern.answer_places(span.lengths) + 1 for span in spans))
    writer, written, answers, end = Writer(model), "", list[str](), 0
    for span in spans:
        written, end = written + text[end : span.end], span.end
        answer = writer.answer(written)
        answers.append(span.pattern.said(answer) if answer else "?")
        written += answer + END * (text[end : end + 1] != END)
    if answers and not whole:
        return "\n".join(answers)
    written += text[end:]
    return written + ("" if spans else writer.sample(written, CONTINUATION, generator(0, TEST), TEMPERATURE))


def problems_of(patterns: Sequence[Pattern], text: str) -> tuple[str, list[ProblemSpan]]:
    """A text, and the problems in it that wait for an answer, which are written as the model knows them.

    An `=` that is missing at the end is added, and spaces in problems and thousands separators are taken out.
    InputError for an empty text, an unknown character, a problem that is not finished, one that is answered already,
    or something with an `=` that looks like one.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError("there is no text: give one, as in 'what is 12+34='")
    text = text.replace("\r\n", "\n")
    with_equals = without_spaces(text + EQUALS, patterns)
    last = spans_in(with_equals, patterns)[-1:]
    is_problem = last and (last[0].end, last[0].answer_length) == (len(with_equals), 0)
    text = with_equals if is_problem else without_spaces(text, patterns)
    text_tokens(text)
    spans = spans_in(text, patterns)
    if spans and not spans[-1].finished and text[spans[-1].start :].isdigit():
        spans.pop()  # the text ends in a number
    for span in spans:
        problem, after = shortened(text[span.start : span.end]), text[span.equals + 1 : span.equals + 2]
        if not span.finished:
            raise InputError(f"the problem {problem!r} at the end is not finished: write it as {span.pattern.form}")
        if after == EQUALS or after.isdigit():
            raise InputError(f"the problem {problem!r} goes on behind its '=': leave out what follows that")
    waiting = {span.equals for span in spans}
    for sign in re.finditer(EQUALS, text) if patterns else ():
        before = text[max(0, sign.start() - TAIL) : sign.start()]
        if sign.start() not in waiting and ALMOST_PROBLEM.search(before):
            problem = shortened(re.split("[;=\n]", before)[-1].strip()) + EQUALS
            raise InputError(
                f"cannot read {problem!r}: problems are written as {forms(patterns)}, with nothing joined to them"
            )
    return text, spans


def forms(patterns: Sequence[Pattern]) -> str:
    """Patterns as people read them."""
    plain = [(re.sub("[{}]", "", pattern.form), pattern.task.rule.larger_first) for pattern in patterns]
    return ", ".join(form + " with a >= b" * larger_first for form, larger_first in plain)


def shortened(text: str) -> str:
    """A text for an error, of which long ones are cut in the middle."""
    return text if len(text) <= 60 else f"{text[:28]} ... {text[-28:]}"
