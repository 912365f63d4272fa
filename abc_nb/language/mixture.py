"""Rows of text with problems written into them.

The text is Python's own help topics, which are there with every Python. Digits are taken out, so that they stand in
problems alone. Topics share many paragraphs; each is taken once, so that none of what is held out is trained on.
"""

from __future__ import annotations

import pydoc_data.topics
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from abc_nb.common.config import check_fields
from abc_nb.problems.digits import DIGITS, Digits, varied_digits
from abc_nb.problems.sampling import TRAIN, VALIDATION, generator
from abc_nb.problems.tasks import TRAINED
from abc_nb.problems.text import END, VOCABULARY, Pattern, text_tokens

PARAGRAPHS = 40  # of a run, which stay together
HELD_OUT = 10  # every tenth run of paragraphs is held out
REPEATED = 0.5  # share of the problems of a row, where there are some to repeat


@dataclass(frozen=True)
class TextBatch:
    """Rows of text of the same length."""

    texts: tuple[str, ...]
    tokens: Tensor  # (rows, characters)

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextBatch:
        return cls(tuple(texts), torch.tensor([text_tokens(text) for text in texts]))

    def to(self, device: torch.device | str) -> TextBatch:
        return TextBatch(self.texts, self.tokens.to(device))


@dataclass(frozen=True)
class Mixture:
    """What a language model is trained on: text, and problems of its patterns in it."""

    patterns: tuple[Pattern, ...]
    characters: int = 256  # of a row
    problems: int = 10  # in a row, at most
    longest: int = TRAINED  # digits of a number, at most
    text: bool = True  # or else rows of problems alone

    def __post_init__(self) -> None:
        check_fields(self, characters=2, problems=0, longest=1)

    def rows(
        self, rng: np.random.Generator, count: int, held_out: bool = False, again: Sequence[str] = ()
    ) -> TextBatch:
        """So many rows; `again` are problems with answers, which take the place of some fresh ones."""
        text = texts()[held_out]
        return TextBatch.of([self.row(text, rng, again) for _ in range(count)])

    def row(self, text: str, rng: np.random.Generator, again: Sequence[str]) -> str:
        """A row of text with problems written into it, or of problems side by side, the last one cut."""
        if self.text:
            count = int(rng.integers(self.problems + 1)) if self.patterns else 0
            problems = [self.problem(rng, again) for _ in range(count)]
            return write_in(random_excerpt(text, self.characters, rng), problems, rng)
        row = ""
        while len(row) < self.characters:
            row += self.problem(rng, again) + " "
        return row[: self.characters]

    def problem(self, rng: np.random.Generator, again: Sequence[str] = ()) -> str:
        """One of those to show again, or a random pattern, and numbers of random lengths; with its answer."""
        if again and rng.random() < REPEATED:
            return again[int(rng.integers(len(again)))]
        return solved(*draw_any(self.patterns, self.longest, rng))

    def training_batch(self, seed: int, step: int, size: int, again: Sequence[str] = ()) -> TextBatch:
        return self.rows(generator(seed, TRAIN, step), size, again=again)

    def validation_batches(self, seed: int, size: int) -> list[TextBatch]:
        """Rows of held-out text with problems, about `size` of these."""
        rows = max(1, 2 * size // max(1, self.problems))
        rng = generator(seed, VALIDATION)
        return [self.rows(rng, min(32, rows - start), held_out=True) for start in range(0, rows, 32)]


def write_in(text: str, problems: Sequence[str], rng: np.random.Generator) -> str:
    """The text with problems behind spaces in it, cut at its own length before one that would not fit."""
    places = [match.end() for match in re.finditer(r"\s", text)] or [0]
    length = len(text)
    for problem in problems:
        start = places[int(rng.integers(len(places)))]
        if start + len(problem) <= length:
            text = text[:start] + problem + text[start:]
            places = [place if place <= start else place + len(problem) for place in places if place != start] or [0]
    return text[:length]


def draw_any(patterns: Sequence[Pattern], longest: int, rng: np.random.Generator) -> tuple[Pattern, list[str]]:
    """A random pattern, and numbers of random lengths up to the longest."""
    pattern = patterns[int(rng.integers(len(patterns)))]
    return pattern, draw(pattern, [int(rng.integers(1, longest + 1)) for _ in pattern.short], rng)


def draw(pattern: Pattern, lengths: Sequence[int], rng: np.random.Generator) -> list[str]:
    """Numbers of these lengths, or of a factor's; half of them have at most two different digits."""
    choices = list[Digits]()  # two numbers for each operand: one with any digits, and one with few
    for operand, length, short in zip(pattern.task.rule.inputs, lengths, pattern.short, strict=True):
        digits = varied_digits(len(operand.alphabet), 2, operand.digits if short else length, rng)
        choices.append(operand.alphabet[digits])
    return typed_larger_first(pattern, ["".join(map(str, digits[int(rng.integers(2))])) for digits in choices])


def typed_larger_first(pattern: Pattern, operands: list[str]) -> list[str]:
    """Numbers of a problem, the larger one first where that is needed."""
    return operands if pattern.possible(operands) else operands[::-1]


def solved(pattern: Pattern, operands: Sequence[str]) -> str:
    """A problem with its answer, as it stands in a text."""
    return pattern.problem(operands) + pattern.answer(operands) + END


@cache
def texts() -> tuple[str, str]:
    """The text to train on and the text held out, of the same known characters without digits."""
    characters = {*VOCABULARY} - {*DIGITS[:10]}
    paragraphs: dict[tuple[str, ...], str] = {}  # by their words, which differ
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        for paragraph in topic.split("\n\n"):
            paragraph = "".join(character for character in paragraph if character in characters)
            paragraphs.setdefault((*paragraph.split(),), paragraph)
    unique = [*paragraphs.values()]
    runs = ["\n\n".join(unique[first : first + PARAGRAPHS]) for first in range(0, len(unique), PARAGRAPHS)]
    held_out = runs[HELD_OUT - 1 :: HELD_OUT]
    del runs[HELD_OUT - 1 :: HELD_OUT]
    return "\n\n".join(runs), "\n\n".join(held_out)


def random_excerpt(text: str, length: int, rng: np.random.Generator) -> str:
    """So many characters from a random place."""
    start = int(rng.integers(len(text) - length + 1))
    return text[start : start + length]
