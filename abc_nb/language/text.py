"""The text that language models are trained on: Python's own help topics, which are there with every Python.

Digits are taken out, so that they stand in problems alone. Topics share many paragraphs; each is taken once, so that
none of what is held out is trained on.
"""

from __future__ import annotations

import pydoc_data.topics
from functools import cache

import numpy as np

from abc_nb.problems.digits import DIGITS
from abc_nb.problems.spans import VOCABULARY

TOGETHER = 40  # paragraphs that follow each other stay together
HELD_OUT = 10  # every tenth run of paragraphs is held out


@cache
def texts() -> tuple[str, str]:
    """The text to train on and the text held out, of the same known characters without digits."""
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    known = {*VOCABULARY} - {*DIGITS[:10]}
    paragraphs: dict[tuple[str, ...], str] = {}
    for topic in topics:
        for paragraph in topic.split("\n\n"):
            kept = "".join(character for character in paragraph if character in known)
            paragraphs.setdefault((*kept.split(),), kept)
    every = [*paragraphs.values()]
    runs = ["\n\n".join(every[first : first + TOGETHER]) for first in range(0, len(every), TOGETHER)]
    held = [run for number, run in enumerate(runs) if number % HELD_OUT == HELD_OUT - 1]
    rest = [run for number, run in enumerate(runs) if number % HELD_OUT != HELD_OUT - 1]
    return "\n\n".join(rest), "\n\n".join(held)


def piece(text: str, length: int, rng: np.random.Generator) -> str:
    """So many characters from a random place."""
    start = int(rng.integers(len(text) - length + 1))
    return text[start : start + length]
