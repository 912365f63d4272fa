"""Problems and answers as people type them: the parts of a text, and what is wrong with it."""

from __future__ import annotations

import re

SIGNS = {"*": "*×xX", "-": "-−"}  # how an operator can be typed, where there are several ways
BRACKETS = "()[]"


class Unreadable(Exception):
    """What is wrong with a problem, as a part of a sentence."""


def numbers_in(text: str, operator: str, digits: str) -> list[str]:
    """The numbers between the signs of an operator; without one, the text is one number.

    Unreadable if a number is missing or has another character than a digit. It names what was typed alone.
    """
    signs = f"[{re.escape(SIGNS.get(operator, operator))}]" if operator else r"(?!)"
    parts, found = [part.strip() for part in re.split(signs, text)], re.findall(signs, text)
    for part in parts:
        for character in part:
            if character.isspace():
                raise Unreadable(f"white space stands inside of {part!r}")
            if character.lower() not in digits:
                raise Unreadable(f"{character!r} is no digit")
    if not any(parts):
        raise Unreadable("there is no number in it")
    if not all(parts):
        place = parts.index("")
        raise Unreadable(f"a number is missing {f'after {found[place - 1]!r}' if place else f'before {found[0]!r}'}")
    return [part.lower() for part in parts]


def items_in(text: str) -> list[str]:
    """The items of a list and its brackets; items stand between spaces or commas. Unreadable if one is missing."""
    if re.search(r",\s*,", text):
        raise Unreadable("an item is missing between two ','")
    called = re.sub(r"([^\s,()\[\]]+)\(", r"(\1 ", text)  # MIN(3, 4) is (MIN 3, 4)
    items = re.findall(r"[()\[\]]|[^\s,()\[\]]+", called)
    if all(item in BRACKETS for item in items):
        raise Unreadable("there is no item")
    return items
