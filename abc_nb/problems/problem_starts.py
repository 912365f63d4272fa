"""What stands before a problem in a text: the grammar is in `text.py`, and this reads it from left to right.

A text is read token by token, and a token changes the place that is reached: each is looked at once.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Literal

# What was read last: nothing that counts, a relation or opening bracket, a word, a word that a list's number follows
# (`Step`), that number, a number alone, something longer with a number in it, a word behind a number, as a unit, a sign
# behind one of these, a sign that a number would belong to, an answer.
TextPlace = Literal[
    "start", "open", "word", "label", "labelled", "number", "joined", "unit", "sign", "prefix", "answer"
]
TokenKind = Literal["number", "word", "space", "line", "relation", "open", "close", "mark", "sign", "nothing"]

TOKEN = re.compile(r"\w+|[^\S\n\r]+|[\s\S]")
LISTED = re.compile(r"[0-9]+[^\S\n\r]*-[^\S\n\r]")  # behind a label no difference, but a mark
LABELS = {"step", "question", "problem", "exercise", "example", "part", "item", "task", "case", "line", "q"}
SIGNS_IN_WORDS = {"x", "plus", "minus", "times", "over", "by", "mod", "div"}
RELATIONS, ROOTS, SIGNS = "=<>≠≤≥≈≡≅≃∼∴∵", "√∛∜∑∏∫", "*/\\%&@•·‣◦|"
OF_CATEGORY: dict[str, TokenKind] = {"Nd": "number", "Nl": "number", "No": "number", "Sm": "sign", "Sk": "sign"}
OF_CATEGORY |= {"Pd": "sign", "So": "sign", "Ps": "open", "Pi": "open", "Sc": "open", "Pe": "close", "Pf": "close"}
OF_CATEGORY |= {"Mn": "nothing", "Mc": "nothing", "Me": "nothing", "Cf": "nothing"}
NUMERIC: tuple[TextPlace, ...] = ("labelled", "number", "joined", "answer")


@lru_cache(maxsize=4096)
def kind_of(character: str) -> TokenKind:
    """What a token is that begins with a character."""
    if character.isspace():
        return "line" if character in "\n\r\x0b\x0c\x85\u2028\u2029" else "space"
    if character in RELATIONS or "\u2190" <= character <= "\u21ff":  # arrows
        return "relation"
    if character in SIGNS:
        return "sign"
    if character.isalpha() or character == "_":
        return "word"
    return "mark" if character == "`" else OF_CATEGORY.get(unicodedata.category(character), "mark")


class Before:
    """A text that is read from left to right, up to the token that begins at `position`."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0
        self.place: TextPlace = "start"
        self.gap = False  # whether a space stands behind what was read

    def problem_may_begin(self) -> bool:
        """Whether what stands here is no part of something longer that was read."""
        if self.place == "label" and LISTED.match(self.text, self.position):
            return False
        if self.gap and self.place in ("number", "labelled"):
            return kind_of(self.text[self.position]) == "word"
        return self.place in ("start", "open") or (self.gap and self.place in ("word", "label", "unit", "answer"))

    def skip(self, end: int, place: TextPlace) -> None:
        """Go on behind a problem."""
        self.position, self.gap, self.place = end, False, place

    def step(self) -> None:
        """Read a token."""
        match = TOKEN.match(self.text, self.position)
        assert match is not None  # as the last alternative takes any character
        token, self.position = match[0], match.end()
        kind = kind_of(token[0])
        if kind == "space":
            self.gap = True
        elif kind != "nothing":
            spaced = self.text[self.position : self.position + 1].isspace() or self.position == len(self.text)
            self.place = place_behind(self.place, self.gap, kind, token if kind != "number" else "", spaced)
            self.gap = kind == "line"


@lru_cache(maxsize=2**14)
def place_behind(place: TextPlace, gap: bool, kind: TokenKind, token: str, spaced: bool) -> TextPlace:
    """The place behind a token, with a `gap` between it and what was read before, and `spaced` if a space follows."""
    if kind == "number":
        return "labelled" if place == "label" else "number" if place in ("start", "open", "word", "unit") else "joined"
    if kind == "word":
        return behind_word(place, token)
    if kind == "line":
        return "sign" if place == "sign" else "start"
    if kind == "relation":
        return "open"
    if kind == "open":
        return "sign" if place == "sign" or place in NUMERIC else "open"
    if kind == "close":
        if place in ("number", "labelled"):
            return "start" if spaced else "joined"  # `1)` is a mark
        return "joined" if place in ("joined", "sign", "unit") else "word"
    return behind_mark(place, gap, token, spaced) if kind == "mark" else behind_sign(place, token, spaced)


def behind_word(place: TextPlace, token: str) -> TextPlace:
    if place in NUMERIC and token.lower() in SIGNS_IN_WORDS:
        return "sign"
    if place == "sign":
        return "joined"  # what the sign wants can be a letter
    if place in NUMERIC:
        return "unit"
    return "label" if token.lower() in LABELS else "word"


def behind_mark(place: TextPlace, gap: bool, token: str, spaced: bool) -> TextPlace:
    """A mark ends what is before it if a space follows; inside of numbers, and as `:` between spaces, it does not."""
    if spaced and not (token == ":" and gap and place in NUMERIC):
        return "start"
    if place == "sign" or (place in NUMERIC and token != ";"):
        return "sign"
    return "prefix" if token in ".," else "start"


def behind_sign(place: TextPlace, token: str, spaced: bool) -> TextPlace:
    """A sign wants a number; before a space it is a mark instead, but not behind a number, a relation or a bracket.

    A dash behind a list's number is a mark, too.
    """
    dash = place == "labelled" and spaced and unicodedata.category(token) == "Pd"
    if place in ("sign", "unit") or (place in NUMERIC and not dash):
        return "sign"
    return "prefix" if not spaced or token in ROOTS or place == "open" else "start"
