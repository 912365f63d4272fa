"""Digit arrays: numbers of any length as arrays (samples, places), least significant digit first."""

from collections.abc import Iterable
from math import log2

import numpy as np

DIGITS = "0123456789abcdef"
Digits = np.ndarray  # (samples, places), least significant first


def digit_count(number: int, base: int) -> int:
    """Digits of a number; zero has one."""
    count = max(1, int((int(number).bit_length() - 1) / log2(base)))  # so many at least
    while base**count <= number:
        count += 1
    return count


def number_range(places: int, base: int) -> tuple[int, int]:
    """The smallest number of so many digits, and the smallest longer one."""
    return base ** (places - 1), base**places


def to_digits(numbers: np.ndarray, base: int, places: int) -> Digits:
    digits = np.empty((len(numbers), places), np.int64)
    for place in range(places):
        numbers, digits[:, place] = np.divmod(numbers, base)
    return digits


def written_number(digits: Iterable[str]) -> str:
    """A number as people write it, from its digits, the highest first."""
    return "".join(digits).lstrip("0") or "0"


def varied_digits(base: int, count: int, places: int, rng: np.random.Generator) -> Digits:
    """Numbers of random digits; every second one has at most two different ones, so that carries are long."""
    digits = rng.integers(base, size=(count, places))
    two_digits = rng.integers(base, size=(count, 2))
    of_two = np.take_along_axis(two_digits, rng.integers(2, size=(count, places)), axis=1)
    return np.where(np.arange(count)[:, None] % 2 == 0, digits, of_two)


def distinct_digits(low: int, high: int, base: int, width: int, count: int, rng: np.random.Generator) -> Digits:
    """`count` distinct numbers, uniform in [low, high), as digits; of any size."""
    if high - low <= 2**24:
        return to_digits(low + rng.choice(high - low, count, replace=False), base, width)
    distinct, places = np.empty((0, width), np.int64), digit_count(high - 1, base)
    while len(distinct) < count:
        digits = np.zeros((count, width), np.int64)
        digits[:, :places] = rng.integers(base, size=(count, places))
        inside = ~is_below(digits, low, base) & is_below(digits, high, base)
        drawn = np.concatenate([distinct, digits[inside]])
        _, first = np.unique(drawn, axis=0, return_index=True)
        distinct = drawn[np.sort(first)][:count]
    return distinct


def is_below(digits: Digits, bound: int, base: int) -> np.ndarray:
    """Which numbers are smaller than `bound`, an integer of any size."""
    return is_less(digits, np.array([[int(digit, base) for digit in reversed(np.base_repr(bound, base))]]))


def is_less(first: Digits, second: Digits) -> np.ndarray:
    """Which numbers are smaller than others, or than one, of any places: the highest differing digit decides."""
    places = max(first.shape[1], second.shape[1])
    first, second = (np.pad(digits, [(0, 0), (0, places - digits.shape[1])]) for digits in (first, second))
    difference = (first - second)[:, ::-1]
    return difference[np.arange(len(difference)), (difference != 0).argmax(axis=1)] < 0
