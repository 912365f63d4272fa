"""The text that language models are trained on: Python's own help topics, which are there with every Python.

Digits are taken out, so that they stand in problems alone.
"""

from __future__ import annotations

import pydoc_data.topics
from functools import cache

import numpy as np

from abc_nb.problems.digits import DIGITS
from abc_nb.problems.spans import VOCABULARY

HELD_OUT = 10  # every tenth topic is held out


@cache
def texts() -> tuple[str, str]:
    """The text to train on and the text held out, of the same known characters without digits."""
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    known = {*VOCABULARY} - {*DIGITS[:10]}
    kept = ["".join(character for character in topic if character in known) for topic in topics]
    held = [topic for number, topic in enumerate(kept) if number % HELD_OUT == HELD_OUT - 1]
    rest = [topic for number, topic in enumerate(kept) if number % HELD_OUT != HELD_OUT - 1]
    return "\n".join(rest), "\n".join(held)


def piece(text: str, length: int, rng: np.random.Generator) -> str:
    """So many characters from a random place."""
    start = int(rng.integers(len(text) - length + 1))
    return text[start : start + length]
