"""Spans: problems inside a text, found by patterns, and where their tokens stand.

A *pattern* says how the problems of a task are written, as `{a}+{b}=`. Its answer follows, in the task's order, and
`;`: units first, but the highest digit of a quotient. The numbers, of any two lengths, have the digits 0 to 9. Every
character is a token. The tokens of a problem before its `=` are what a layout calls the source, `=` is its first target
token, and the digits of the answer are the others. The `;` is text again.

The grammar, over all of Unicode (`problem_starts.py` reads it, in time linear in the text):

    problem = what a pattern says, directly behind a start; the first pattern that fits is taken
    start   = beginning | line | list | behind
    behind  = relation | bracket | word space | word space sign space | punctuation | problem digits space
    list    = number "." space | number ")" space | number ":" space | sign space | "Step" number dash space

- A *sign* is any operator, and behind a number also `x`, `plus`, `times` and the like. The sign of a *list* stands
  where a sentence could begin. In the place of `Step` can be `Question` and others (`LABELS`). So `Step 4 - 3=` holds
  no difference.
- A *relation* is `=`, `<`, an arrow and the like; a *bracket* is one that opens, or a currency, behind no number.
- *Punctuation* has a space behind it; without one it is no dot or comma, and no number stands before it.
- *Digits* behind the `=` of a problem are its answer, at most as many as a result can have.
- A number is taken from no smaller one, and not divided by zero: `3-5=` and `7//0=` are no problems.

Everything else is no problem: behind a number, a sign or a bracket with a number in it, with spaces between them or
without, stands a part of something longer. So `1 + 2+3=`, `20:4+5=`, `1 000+234=` and `-1+2=` hold none, and
`1. 12+34=` and `Step 4 - 12+34=` hold `12+34=`.

People also write spaces around signs, and thousands separators: `12 + 34 =`, `1,234+5=`. `without_spaces` removes
them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS, written_number
from abc_nb.problems.layouts import Layout, in_a_row
from abc_nb.problems.notation import in_writing_order
from abc_nb.problems.problem_starts import Before
from abc_nb.problems.tasks import Task

EQUALS, END = "=", ";"
NUMBER, THOUSANDS = re.compile("[0-9]+"), re.compile("[0-9]{1,3}(?:,[0-9]{3})+(?![,.]?[0-9])")
SPACES = re.compile(r"[^\S\n\r]*")
OPERAND = re.compile(r"\{\w+\}")
VOCABULARY = DIGITS[:10] + "".join(chr(code) for code in (10, *range(32, 127)) if not chr(code).isdigit())


@dataclass(frozen=True)
class Pattern:
    """How problems of a task are written. InputError for a form that could not be found again."""

    task: Task
    form: str  # as `{a}+{b}=`; the name in braces is for people

    def __post_init__(self) -> None:
        check_fields(self)
        rule = self.task.rule
        digits = rule.notation != "items" and "".join(rule.alphabet) == DIGITS[: min(self.task.base, 10)]
        # Places are counted from one end.
        one_end = rule.long_operands == 1 or not any(input_.from_left for input_ in rule.inputs)
        possible = digits and one_end and len(rule.inputs) <= 2
        if not possible or self.task.table or rule.whole or rule.final_only:
            raise InputError(f"{self.task.title} in base {self.task.base} cannot be written into a text")
        ends = self.form.endswith(("}=", ")=")) and self.form.count(EQUALS) == 1
        numbers = len(self.literals) - 1 == len(self.short) and all(self.literals[1:])
        if not numbers or not ends or re.search(r"\d", self.form):
            raise InputError(
                f"the form {self.form!r} is not possible: {self.task.title} has {len(self.short)} numbers, with "
                "characters between them that are no digits, and ends in a number or a bracket, and the only '='"
            )

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """What stands before, between and after the numbers."""
        return tuple(OPERAND.split(self.form))

    @cached_property
    def short(self) -> tuple[bool, ...]:
        """Whether each number is one of a few digits, a factor."""
        return (False,) * self.task.rule.long_operands + (True,) * bool(self.task.rule.short_digits)

    @cached_property
    def factors(self) -> set[int]:
        """The digits that a factor of a few digits can have: of a divisor all but zero."""
        return {*self.task.rule.inputs[-1].alphabet.tolist()}

    def answer_places(self, lengths: Sequence[int]) -> int:
        """The most digits that an answer has: those of the longest number, and one more where a result can need it."""
        return max(length for length, short in zip(lengths, self.short, strict=True) if not short) + self.task.grows

    @lru_cache(maxsize=4096)  # noqa: B019 (a frozen value, and few of them)
    def layout(self, lengths: tuple[int, ...]) -> Layout:
        """Where the tokens of a problem with numbers of these lengths stand, counted from its first token."""
        literals = [literal.removesuffix(EQUALS) for literal in self.literals]
        operands, symbols = in_a_row(literals, lengths, [input_.from_left for input_ in self.task.rule.inputs])
        operands = tuple(replace(operand, short=short) for operand, short in zip(operands, self.short, strict=True))
        places = self.answer_places(lengths)
        return Layout(places - self.task.grows, operands, symbols, places + 1, unpadded=True)

    def problem(self, operands: Sequence[str]) -> str:
        """A problem as it is written, from its numbers."""
        return "".join(f"{literal}{number}" for literal, number in zip(self.literals, (*operands, ""), strict=True))

    def possible(self, operands: Sequence[str]) -> bool:
        """Whether there is a problem with these numbers: none is taken from a smaller one."""
        padded = [number.zfill(max(map(len, operands))) for number in operands]
        return not self.task.rule.larger_first or padded[0] >= padded[1]

    def read(self, text: str, start: int = 0, people: bool = False) -> "ProblemSpan | None":
        """The problem that begins there, up to its `=`, or as much of it as has a digit where the text ends.

        As `people` write it, spaces stand around its parts, and commas between thousands.
        """
        end, operands = start, list[str]()
        for literal, short in zip(self.literals, (*self.short, None), strict=True):
            for sign in literal:
                end = behind_spaces(text, end) if people and end > start and not sign.isalnum() else end
                if end == len(text) and operands:
                    return ProblemSpan(self, start, tuple(operands), end - start, finished=False)
                if text[end : end + 1] != sign:
                    return None
                end += 1
            if short is None:
                return ProblemSpan(self, start, tuple(operands), end - start - 1) if self.possible(operands) else None
            end = behind_spaces(text, end) if people and end > start else end
            match = (people and THOUSANDS.match(text, end)) or NUMBER.match(text, end)
            if match is None or not {*match[0]} <= {*self.task.digits, ","}:
                begun = end == len(text) and bool(operands)
                return ProblemSpan(self, start, tuple(operands), end - start, finished=False) if begun else None
            number = match[0].replace(",", "")
            if short and (len(number) != self.task.rule.short_digits or not {*map(int, number)} <= self.factors):
                return None
            end, operands = match.end(), [*operands, number]
        return None

    def answer(self, operands: Sequence[str]) -> str:
        """The right answer as it follows the `=`, in the task's order: longer than the longest number if needed."""
        places = self.answer_places([*map(len, operands)])
        longest = places - self.task.grows
        padded = [digits if short else digits.zfill(places) for digits, short in zip(operands, self.short, strict=True)]
        by_place = (in_writing_order(self.task.rule, number, digits) for number, digits in enumerate(padded))
        output = self.task.answer([np.array([[*map(int, digits)]]) for digits in by_place])[0].tolist()
        answer = "".join(map(str, output))
        return answer[:longest] + answer[longest:].rstrip("0")

    def said(self, answer: str) -> str:
        """An answer that stands behind an `=`, as people write it."""
        return written_number(self.task.said(answer))


@dataclass(frozen=True)
class ProblemSpan:
    """A problem in a text: where it stands, what it asks, and how much of its answer is written."""

    pattern: Pattern
    start: int  # its first token
    operands: tuple[str, ...]  # its numbers, as far as they are written
    problem_length: int  # tokens before its `=`
    finished: bool = True  # whether it has its `=`
    answer_length: int = 0  # tokens of the answer that are written

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many digits its numbers have; of a problem that is not finished none."""
        return tuple(map(len, self.operands)) if self.finished else ()

    @property
    def equals(self) -> int:
        """Where its `=` stands."""
        return self.start + self.problem_length

    @property
    def end(self) -> int:
        """The token after its last one."""
        return self.equals + self.finished + self.answer_length

    @property
    def layout(self) -> Layout:
        return self.pattern.layout(self.lengths)


def without_spaces(text: str, patterns: Sequence[Pattern]) -> str:
    """The text in which problems are written as their patterns say, without spaces and thousands separators."""
    parts, end = list[str](), 0
    for span in spans_in(text, patterns, people=True):
        if span.finished:
            parts += text[end : span.start], span.pattern.problem(span.operands)
            end = span.equals + 1
    return "".join([*parts, text[end:]])


def spans_in(text: str, patterns: Sequence[Pattern], people: bool = False) -> list[ProblemSpan]:
    """The problems in a text, in order, of the first pattern that fits; the last one may not be finished.

    As `people` write them, spaces stand around their signs, and commas between thousands.
    """
    before, spans = Before(text), list[ProblemSpan]()
    firsts = {sign for pattern in patterns for sign in pattern.literals[0][:1] or DIGITS[:10]}
    while before.position < len(text):
        candidates = patterns if text[before.position] in firsts and before.problem_may_begin() else ()
        span = next(filter(None, (pattern.read(text, before.position, people) for pattern in candidates)), None)
        if span is None:
            before.step()
            continue
        if span.finished:
            rest = text[span.end : span.end + span.pattern.answer_places(span.lengths)]
            span = replace(span, answer_length=len(rest) - len(rest.lstrip("".join(span.pattern.task.digits))))
        spans.append(span)
        before.skip(span.end, "answer" if span.answer_length else "open")
    return spans


def behind_spaces(text: str, start: int) -> int:
    match = SPACES.match(text, start)
    return start if match is None else match.end()


def text_tokens(text: str) -> list[int]:
    """Its characters as tokens, digits first; InputError for a character that no model was trained with."""
    unknown = next((character for character in text if character not in VOCABULARY), None)
    if unknown is not None:
        raise InputError(
            f"the character {unknown!r} is unknown to this model: it knows letters without accents, digits and the "
            "signs of a keyboard"
        )
    return [*map(VOCABULARY.index, text)]


def text_of(tokens: Iterable[int]) -> str:
    return "".join(VOCABULARY[token] for token in tokens)
