"""Spans: problems inside a text, found by patterns, and where their tokens stand.

A pattern says how the problems of a task are written, as `{a}+{b}=`. Its answer follows, units first, and `;`. Numbers
are as people write them, of any two lengths and without zeros in front. Every character is a token. The tokens of a
problem before its `=` are what a layout calls the source, `=` is its first target token, and the digits of the answer
are the others. The `;` is text again.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS
from abc_nb.problems.layouts import Layout, in_a_row
from abc_nb.problems.tasks import Task

EQUALS, END = "=", ";"
BEFORE = r"(?<![\w.,+\-*/^])"  # what cannot stand before a problem: it would be a part of something longer
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
        digits = rule.notation == "number" and "".join(rule.alphabet) == DIGITS[: min(self.task.base, 10)]
        if not digits or self.task.table or rule.whole or rule.final_only:
            raise InputError(f"{self.task.title} in base {self.task.base} cannot be written into a text")
        ends = self.form.endswith(("}=", ")=")) and self.form.count(EQUALS) == 1
        numbers = len(self.literals) - 1 == len(self.few) and all(self.literals[1:])
        if not numbers or not ends or re.search(r"\d", self.form):
            raise InputError(
                f"the form {self.form!r} is not possible: {self.task.title} has {len(self.few)} numbers, with "
                "characters between them that are no digits, and ends in a number or a bracket, and the only '='"
            )

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """What stands before, between and after the numbers."""
        return tuple(OPERAND.split(self.form))

    @cached_property
    def few(self) -> tuple[bool, ...]:
        """Whether each number is a factor of a few digits."""
        return (False,) * self.task.rule.long + (True,) * bool(self.task.rule.factor)

    @cached_property
    def parts(self) -> list[str]:
        """Its characters and numbers as regular expressions, a group for each number."""
        digit, expressions = f"[0-{self.task.digits[-1]}]", [*map(re.escape, self.literals[0])]
        for few, literal in zip(self.few, self.literals[1:], strict=True):
            expressions += [f"({digit}{{{self.task.rule.factor}}})" if few else f"({digit}+)", *map(re.escape, literal)]
        return expressions

    @property
    def whole(self) -> str:
        """A regular expression for a problem up to its `=`."""
        return BEFORE + "".join(self.parts)

    @property
    def begun(self) -> str:
        """The same for one that is not finished, from the first digit of its first number on."""
        first, rest = len(self.literals[0]) + 1, ""
        for part in reversed(self.parts[first:-1]):
            rest = f"(?:{part}{rest})?"
        return BEFORE + "".join(self.parts[:first]) + rest + r"\Z"

    def answer_places(self, lengths: Sequence[int]) -> int:
        """The most digits that an answer has: those of the longest number, and one more where a result can need it."""
        return max(length for length, few in zip(lengths, self.few, strict=True) if not few) + self.task.grows

    @lru_cache(maxsize=4096)  # noqa: B019 (a frozen value, and few of them)
    def layout(self, lengths: tuple[int, ...]) -> Layout:
        """Where the tokens of a problem with numbers of these lengths stand, counted from its first token."""
        operands, symbols = in_a_row([literal.removesuffix(EQUALS) for literal in self.literals], lengths)
        marked = tuple(replace(operand, few=few) for operand, few in zip(operands, self.few, strict=True))
        places = self.answer_places(lengths)
        return Layout(places - self.task.grows, marked, symbols, places + 1, unpadded=True)

    def problem(self, operands: Sequence[str]) -> str:
        """A problem as it is written, from its numbers."""
        return "".join(f"{literal}{number}" for literal, number in zip(self.literals, (*operands, ""), strict=True))

    def operands(self, text: str) -> list[str]:
        """The numbers of a problem that is written so."""
        match = re.fullmatch(self.whole, text)
        if match is None:
            raise InputError(f"{text!r} is no problem of the form {self.form}")
        return [*match.groups()]

    def answer(self, operands: Sequence[str]) -> str:
        """The right answer as it follows the `=`, units first: more digits than the longest number if needed."""
        places = self.answer_places([*map(len, operands)])
        longest = places - self.task.grows
        filled = [number if few else number.zfill(places) for number, few in zip(operands, self.few, strict=True)]
        digits = self.task.answer([np.array([[*map(int, reversed(number))]]) for number in filled])[0].tolist()
        written = "".join(map(str, digits))
        return written[:longest] + written[longest:].rstrip("0")


@dataclass(frozen=True)
class ProblemSpan:
    """A problem in a text."""

    pattern: Pattern
    start: int  # its first token
    lengths: tuple[int, ...]  # of its numbers; of one that is not finished none
    problem: int  # tokens before its `=`
    answer: int = 0  # tokens of the answer that are written

    @property
    def finished(self) -> bool:
        """Whether the problem has its `=`."""
        return bool(self.lengths)

    @property
    def equals(self) -> int:
        """Where its `=` stands."""
        return self.start + self.problem

    @property
    def end(self) -> int:
        """The token after its last one."""
        return self.equals + self.finished + self.answer

    @property
    def layout(self) -> Layout:
        return self.pattern.layout(self.lengths)


def spans_in(text: str, patterns: Sequence[Pattern]) -> list[ProblemSpan]:
    """The problems in a text, in order, each of the first pattern that fits; the last one may not be finished."""
    spans, at = list[ProblemSpan](), 0
    if not patterns:
        return spans
    whole, begun = expressions(tuple(patterns))
    of_group = [pattern for pattern in patterns for _ in pattern.few]  # a group for each number
    while match := whole.search(text, at):
        start, after, pattern = match.start(), match.end(), of_group[(match.lastindex or 0) - 1]
        lengths = tuple(len(number) for number in match.groups() if number is not None)
        rest = text[after : after + pattern.answer_places(lengths)]
        answer = len(rest) - len(rest.lstrip("".join(pattern.task.digits)))
        spans.append(ProblemSpan(pattern, start, lengths, after - 1 - start, answer))
        at = after + answer
    if match := begun.search(text, at):
        pattern = of_group[(match.lastindex or 0) - 1]
        spans.append(ProblemSpan(pattern, match.start(), (), len(text) - match.start()))
    return spans


@lru_cache
def expressions(patterns: tuple[Pattern, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """For a whole problem, and for one that is begun."""
    whole, begun = zip(*((f"(?:{pattern.whole})", f"(?:{pattern.begun})") for pattern in patterns), strict=True)
    return re.compile("|".join(whole)), re.compile("|".join(begun))


def tokens_of(text: str) -> list[int]:
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
