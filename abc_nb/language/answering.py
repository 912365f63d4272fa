"""A text that a person typed: the answer to each problem in it, or why it has none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import TEST, generator
from abc_nb.problems.spans import END, EQUALS, Pattern, ProblemSpan, plainly, spans_in, tokens_of
from abc_nb.training.writer import Writer, check_memory, text_bias

LIKE_ONE, TAIL = re.compile(r"\d[\d\s.,+\-*/^()]*$"), 60  # what looks like a problem before an `=`, by its last signs
CONTINUED = 200  # characters that are written after a text without a problem
TEMPERATURE = 0.8  # at which they are drawn, the same ones each time


@dataclass(frozen=True)
class Answered:
    """What a model makes of a text."""

    text: str  # with the answers as the model wrote them, units first, each followed by `;`
    answers: tuple[str, ...]  # as people write them


def answered_text(model: Transformer, text: str, go_on: bool = False) -> Answered:
    """The answers to the problems of a text, each decoded greedily where it stands, with what is before it.

    With `go_on` a text without a problem is continued. InputError for a text that has none otherwise, or one that
    cannot be answered: see `problems_of`.
    """
    text, spans = problems_of(text_bias(model).patterns, text)
    if not spans and not go_on:
        raise InputError(f"there is no problem in {shortened(text)!r}: write one as {forms(text_bias(model).patterns)}")
    check_memory(model, len(text) + sum(span.pattern.answer_places(span.lengths) + 1 for span in spans))
    writer, written, answers, at = Writer(model), "", list[str](), 0
    for span in spans:
        written, at = written + text[at : span.end], span.end
        answer = writer.answer(written)
        answers.append(span.pattern.task.said(answer) if answer else "?")
        written += answer + END * (text[at : at + 1] != END)
    written += text[at:]
    rest = "" if spans else writer.drawn(written, CONTINUED, generator(0, TEST), TEMPERATURE)
    return Answered(written + rest, tuple(answers))


def spoken(model: Transformer, text: str, whole: bool = False, between: str = " ") -> str:
    """The answers to the problems of a text, or the `whole` text as the model writes it.

    A model that knows no problems always goes on with the text.
    """
    found = answered_text(model, text, whole or not text_bias(model).patterns)
    return between.join(found.answers) if found.answers and not whole else found.text


def problems_of(patterns: Sequence[Pattern], text: str) -> tuple[str, list[ProblemSpan]]:
    """A text, and the problems in it that wait for an answer, which are written as the model knows them.

    An `=` that is missing at the end is added, and spaces in problems and thousands separators are taken out.
    InputError for an empty text, an unknown character, a problem that is not finished, one that is answered already,
    or something with an `=` that looks like one.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError("there is no text: give one, as in 'what is 12+34='")
    text = text.replace("\r\n", "\n")
    asked = plainly(text + EQUALS, patterns)
    last = spans_in(asked, patterns)[-1:]
    text = asked if last and (last[0].end, last[0].answer) == (len(asked), 0) else plainly(text, patterns)
    tokens_of(text)
    spans = spans_in(text, patterns)
    if spans and not spans[-1].finished and text[spans[-1].start :].isdigit():
        spans.pop()  # the text ends in a number
    for span in spans:
        own, after = text[span.start : span.end], text[span.equals + 1 : span.equals + 2]
        if not span.finished:
            raise InputError(
                f"the problem {shortened(own)!r} at the end is not finished: write it as {span.pattern.form}"
            )
        if after == EQUALS or after.isdigit():
            raise InputError(f"the problem {shortened(own)!r} goes on behind its '=': leave out what follows that")
    waiting = {span.equals for span in spans}
    for sign in re.finditer(EQUALS, text) if patterns else ():
        if sign.start() not in waiting and LIKE_ONE.search(text[max(0, sign.start() - TAIL) : sign.start()]):
            before = re.split("[;=\n]", text[max(0, sign.start() - TAIL) : sign.start()])[-1].strip()
            known_forms = f"problems are written as {forms(patterns)}, with nothing joined to them"
            raise InputError(f"cannot read {shortened(before) + EQUALS!r}: {known_forms}")
    return text, spans


def forms(patterns: Sequence[Pattern]) -> str:
    """Patterns as people read them."""
    return ", ".join(pattern.form.replace("{", "").replace("}", "") for pattern in patterns)


def shortened(text: str) -> str:
    """A text for an error, of which long ones are cut in the middle."""
    return text if len(text) <= 60 else f"{text[:28]} ... {text[-28:]}"
