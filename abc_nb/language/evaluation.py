"""What a language model knows: the loss on held-out text, and problems inside of text by task and length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from abc_nb.language.mixture import random_excerpt, solved, texts, typed_larger_first
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import TEST, generator
from abc_nb.problems.text import Pattern, spans_in, text_tokens
from abc_nb.training.evaluation import TEST_SEED, with_intervals
from abc_nb.training.writer import likeliest

TEXT_TESTS = ((6, 100), (60, 100), (1000, 5))  # digits of each number, and problems
TEXT_AROUND = 120  # characters of held-out text before a problem, and behind it


def evaluate_texts(model: Transformer, patterns: Sequence[Pattern], tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Exact match of answers and their ends, of random problems with text before and behind them.

    One pass over the right answer says what greedy decoding would write: see `training.evaluation`.
    """
    rows = []
    for pattern, (length, samples) in product(patterns, tests):
        rng = generator(TEST_SEED, TEST, length)
        correct = sum(is_right(model, pattern, test_operands(pattern, length, rng), rng) for _ in range(samples))
        rows.append((pattern.task.name, length, samples, correct))
    return with_intervals(pd.DataFrame(rows, columns=["task", "length", "samples", "correct"]))


def test_operands(pattern: Pattern, length: int, rng: np.random.Generator) -> list[str]:
    """Random numbers of so many digits, without zeros in front; of Parity, bits."""
    numbers = list[str]()
    for operand, short in zip(pattern.task.rule.inputs, pattern.short, strict=True):
        digits = operand.alphabet[rng.integers(len(operand.alphabet), size=operand.digits if short else length)]
        if not short and pattern.task.base != 2:
            digits[0] = rng.integers(1, pattern.task.base)
        numbers.append("".join(map(str, digits)))
    return typed_larger_first(pattern, numbers)


def is_right(model: Transformer, pattern: Pattern, operands: Sequence[str], rng: np.random.Generator) -> bool:
    """Whether the model writes the answer to a problem, and its end, right inside of text."""
    held_out, problem, text = texts()[1], solved(pattern, operands), ""
    start = TEXT_AROUND + 1
    while not any(span.start == start for span in spans_in(text, [pattern])):  # behind a sign it is no problem
        text = random_excerpt(held_out, TEXT_AROUND, rng) + " " + problem + random_excerpt(held_out, TEXT_AROUND, rng)
    first, last = start + problem.index("="), TEXT_AROUND + len(problem)  # the tokens before an answer and its end
    return likeliest(model, text)[first:last].tolist() == text_tokens(text)[first + 1 : last + 1]
