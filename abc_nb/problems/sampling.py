"""Samples: training batches, validation and test sets (v4 appendix B).

Everything follows from a seed, and each training step from (seed, step), so that a resumed run
sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from abc_nb.problems.layouts import Arrangement, Layout
from abc_nb.problems.rewriting import COLUMNS, COMBINE
from abc_nb.problems.tasks import NUMBERS, PAD, PADDED, TRAINED, Digits, Task, Width, digit_count

TRAIN, VALIDATION, TEST, SPLIT, PHASE, CALIBRATION, AGAIN = range(7)  # what a generator is for: part of its seed


@dataclass(frozen=True)
class Batch:
    """Tokens of problems that share one layout."""

    source: Tensor  # (batch, source_length)
    target: Tensor  # (batch, target_length + 1): SOS, the output digits, EOS
    layout: Layout

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device), self.layout)

    def split(self, rows: int) -> list[Batch]:
        """The problems in order, so many at a time."""
        pairs = zip(self.source.split(rows), self.target.split(rows), strict=True)
        return [Batch(source, target, self.layout) for source, target in pairs]

    def first(self, tokens: int) -> Batch:
        """The same problems up to so many output tokens, if they have more."""
        tokens = min(tokens, self.layout.target_length)
        return Batch(self.source, self.target[:, : tokens + 1], replace(self.layout, target_length=tokens))

    def operands(self, rows: Tensor, task: Task) -> list[Digits]:
        """The digits of some problems' operands, least significant first; a digit that fills every place is one."""
        source, operands = self.source[rows].cpu().numpy(), self.layout.operands
        places = [each.places for each in operands] if task.trace else task.operand_places(self.layout.width)
        pairs = zip(self.layout.operands, places, strict=True)
        return [source[:, operand.columns][:, :own] for operand, own in pairs]


def make_batch(task: Task, operands: Sequence[Digits], width: Width, arrangement: Arrangement) -> Batch:
    layout = task.layout(width, arrangement)
    source, target = task.source(operands, layout), task.target(operands, layout)
    return Batch(torch.from_numpy(source), torch.from_numpy(target), layout)


def generator(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng((seed, *purpose))


def to_digits(numbers: np.ndarray, base: int, places: int) -> Digits:
    """Digits of shape (samples, places), least significant first."""
    digits = np.empty((len(numbers), places), np.int64)
    for place in range(places):
        numbers, digits[:, place] = np.divmod(numbers, base)
    return digits


@lru_cache(maxsize=4)
def split_numbers(seed: int, limit: int = NUMBERS) -> tuple[np.ndarray, np.ndarray]:
    """A random permutation of [0, 2^20], split 7:1 into training and validation numbers; those up to `limit`."""
    numbers = generator(seed, SPLIT).permutation(NUMBERS + 1)
    cut = len(numbers) * 7 // 8
    training, validation = (part[part <= limit] for part in (numbers[:cut], numbers[cut:]))
    return training, validation


def draw_operands(task: Task, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
    """Operands drawn independently from the numbers of `pool`, all of which fit; lists are random items.

    Factors that lead to a table have random digits, too, as many as fit into a training width.
    """
    if isinstance(width, tuple):
        return [random_factors(task, count, places, rng) for places in width]
    if task.operation.nested:
        return [random_lists(task, count, width, rng)]
    if task.operation.items:
        return [rng.integers(task.base, size=(count, width))]
    first = to_digits(rng.choice(pool, count), task.base, width)
    if task.operation.second is None:
        return [first, to_digits(rng.choice(pool, count), task.base, width)]
    return [first, *random_factor(task, count, rng)]


def random_factor(task: Task, count: int, rng: np.random.Generator) -> list[Digits]:
    """A second operand of a few digits, uniform; none if the task has none."""
    return [rng.integers(task.base, size=(count, task.operation.second))] if task.operation.second else []


def random_factors(task: Task, count: int, places: int, rng: np.random.Generator) -> Digits:
    """Numbers of random digits; every second one has no more than two different digits.

    A cell of a product depends on five digits. With few different ones, rare neighbours meet more often.
    """
    digits = rng.integers(task.base, size=(count, places))
    pairs = rng.integers(task.base, size=(count, 2))
    few = np.take_along_axis(pairs, rng.integers(2, size=(count, places)), axis=1)
    return np.where(np.arange(count)[:, None] % 2 == 0, digits, few)


def random_lists(task: Task, count: int, width: int, rng: np.random.Generator) -> Digits:
    """Nested lists of `width` tokens, place 0 the last one: a list's items fall on its two sides at random.

    Where the output is a table, blanks stand in front of the list.
    """
    operators = [task.token(symbol) for symbol in COMBINE]

    def tokens(items: int) -> list[int]:
        if items == 1:
            return [int(rng.integers(task.base))]
        left = int(rng.integers(1, items))
        return [*tokens(items - left), *tokens(left), operators[rng.integers(len(operators))]]

    items = width // COLUMNS if task.trace else (width + 1) // 2
    found = np.array([tokens(items) for _ in range(count)])
    return np.pad(found, [(0, 0), (0, width - found.shape[1])], constant_values=task.token(PAD))


def fit(operands: Sequence[Digits], like: Sequence[Digits]) -> list[Digits]:
    """The same numbers in as many places as others have; places that are cut off hold zeros."""
    pairs = zip(operands, like, strict=True)
    return [np.pad(a[:, : b.shape[1]], [(0, 0), (0, max(0, b.shape[1] - a.shape[1]))]) for a, b in pairs]


@dataclass(frozen=True)
class Sampler:
    """Training and validation problems of a task, as the model sees them."""

    task: Task
    arrangement: Arrangement = "natural"
    regime: str = "tight"  # or padded, or unpadded: see `Task.width_for`
    width_count: int = 1  # consecutive training widths, tight regime
    fixed: int | None = None  # size of a fixed training set; None: every batch is fresh

    @property
    def widths(self) -> tuple[Width, ...]:
        """Widths seen in training.

        Cyclic positions need as many consecutive ones as their period, or the end of the sequence
        would show one residue modulo T only. Lists have every length up to that of the longest number. Unpadded
        numbers have two digits or more, since of those of one digit too few are held out for validation.
        """
        if self.task.trace:
            sizes = self.task.trace.trained[: None if self.width_count > 1 else 1]
            return sizes if self.task.operation.items else tuple(dict.fromkeys(map(self.within_numbers, sizes)))
        if self.regime == "unpadded":
            return tuple(range(2, TRAINED + 1))
        if self.task.operation.items:
            return tuple(self.task.width_for(items, self.regime) for items in range(1, self.task.training_width + 1))
        narrowest = self.task.width(1, self.regime)
        return tuple(range(narrowest, narrowest + (1 if self.regime in PADDED else self.width_count)))

    def within_numbers(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """So many places, or as many as leave every number at most 2^20: five digits in the bases from 11 to 16."""
        most = digit_count(NUMBERS + 1, self.task.base) - 1
        return tuple(min(each, most) for each in places)

    def numbers(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation numbers whose results fit the narrowest training width."""
        return split_numbers(seed, self.task.training_limit)

    @property
    def pads(self) -> bool:
        """Whether zeros stand in front of numbers, so that the same problem can be given at any width."""
        return self.regime != "unpadded" and not self.task.operation.items and not self.task.trace

    def of_width(self, numbers: np.ndarray, width: Width) -> np.ndarray:
        """Those of `numbers` that problems of a width can have: where no zeros are in front, of as many digits."""
        if self.regime != "unpadded":
            return numbers
        assert isinstance(width, int)
        base = self.task.base
        return numbers[(numbers >= base ** (width - 1)) & (numbers < base**width)]

    def training_batch(
        self, seed: int, step: int, size: int, again: Sequence[Digits] = (), width: Width | None = None
    ) -> Batch:
        """Batch number `step`, of one of the training widths or of a given one; `again` are operands to put into it."""
        rng = generator(seed, TRAIN, step)
        width = width or self.widths[rng.integers(len(self.widths))]
        if self.fixed is None:
            fresh = size - (len(again[0]) if again else 0)
            operands = draw_operands(self.task, self.of_width(self.numbers(seed)[0], width), fresh, width, rng)
            if again:
                operands = [np.concatenate(pair) for pair in zip(operands, fit(again, operands), strict=True)]
        else:
            rows = rng.integers(self.fixed, size=size)
            operands = [digits[rows] for digits in self.fixed_set(seed, width)]
        return make_batch(self.task, operands, width, self.arrangement)

    def calibration_batch(self, seed: int, size: int = 1000, padding: bool = False) -> Batch:
        """Training problems of the largest width, to average attention over (v4 appendix D, step 1).

        Of padded ones up to the last digit that training numbers fill: after it zeros are written, for which
        attention needs no line, and before it zeros are read, which say nothing of what a line meets in longer
        numbers. With `padding`, as the paper averages, all columns.
        """
        rng, width = generator(seed, CALIBRATION), max(self.widths)
        operands = draw_operands(self.task, self.of_width(self.numbers(seed)[0], width), size, width, rng)
        batch = make_batch(self.task, operands, width, self.arrangement)
        if padding or self.regime not in PADDED or self.task.trace:
            return batch
        cut = batch.first(self.task.training_width)
        return replace(cut, layout=replace(cut.layout, filled=self.task.training_width))

    @lru_cache(maxsize=8)  # noqa: B019 (a frozen value, and few of them)
    def fixed_set(self, seed: int, width: Width) -> list[Digits]:
        """The fixed training set: the same problems at every width."""
        rng = generator(seed, SPLIT, 1)
        return draw_operands(self.task, self.numbers(seed)[0], self.fixed or 0, width, rng)

    def validation_batches(self, seed: int, size: int) -> list[Batch]:
        """`size` problems in all, at each training width in turn: of numbers never trained on, or random lists."""
        rng = generator(seed, VALIDATION)
        share = -(-size // len(self.widths))
        pool = self.numbers(seed)[1]
        return [
            make_batch(
                self.task,
                draw_operands(self.task, self.of_width(pool, width), share, width, rng),
                width,
                self.arrangement,
            )
            for width in self.widths
        ]

    def layout(self, length: int) -> Layout:
        """Where the tokens of problems of `length` digits stand."""
        return self.task.layout(self.task.width(length, self.regime), self.arrangement)

    def test_batch(self, length: Width, samples: int, seed: int) -> Batch:
        """The test set of `length`-digit operands; of two lengths for factors that lead to a table."""
        width = length if isinstance(length, tuple) else self.task.width(length, self.regime)
        operands = operands_of_length(self.task, length, width, samples, seed)
        return make_batch(self.task, operands, width, self.arrangement)


def operands_of_length(task: Task, length: Width, width: Width, samples: int, seed: int) -> list[Digits]:
    """At most so many problems whose operands have exactly L digits; of numbers there are base^L - base^(L-1).

    Each operand's numbers are distinct and uniform; a one-digit operand is uniform over the base.
    Parity takes numbers of L decimal digits, written in bits; of nested lists repeated ones are left out.
    """
    if isinstance(width, tuple):
        return factors_of_length(task, width, samples, seed)
    rng = generator(seed, TEST, length)
    if task.operation.nested:
        return [np.unique(random_lists(task, samples, width, rng), axis=0)]
    base = 10 if task.operation.binary_digits else task.base
    low, high = base ** (length - 1), base**length
    if task.operation.items:
        low = 0
    first = distinct_digits(low, high, task.base, width, min(high - low, samples), rng)
    if task.operation.second is None:
        return [first, distinct_digits(low, high, task.base, width, len(first), rng)]
    return [first, *random_factor(task, len(first), rng)]


def factors_of_length(task: Task, places: tuple[int, ...], samples: int, seed: int) -> list[Digits]:
    """At most so many pairs of factors that have exactly so many digits each; one factor is never drawn twice."""
    rng, ranges = generator(seed, TEST, *places), [(task.base ** (count - 1), task.base**count) for count in places]
    samples = min(samples, *(high - low for low, high in ranges))
    pairs = zip(ranges, places, strict=True)
    return [distinct_digits(low, high, task.base, count, samples, rng) for (low, high), count in pairs]


def distinct_digits(low: int, high: int, base: int, width: int, count: int, rng: np.random.Generator) -> Digits:
    """`count` distinct numbers, uniform in [low, high), as digits; of any size."""
    if high - low <= 2**24:
        return to_digits(low + rng.choice(high - low, count, replace=False), base, width)
    found = np.empty((0, width), np.int64)
    while len(found) < count:
        drawn = np.concatenate([found, uniform_digits(low, high, base, width, count, rng)])
        _, first = np.unique(drawn, axis=0, return_index=True)
        found = drawn[np.sort(first)][:count]
    return found


def uniform_digits(low: int, high: int, base: int, width: int, count: int, rng: np.random.Generator) -> Digits:
    """About `count` numbers uniform in [low, high): random digits, those out of range rejected."""
    places = len(python_digits(high - 1, base))
    digits = np.zeros((count, width), np.int64)
    digits[:, :places] = rng.integers(base, size=(count, places))
    return digits[~is_below(digits, low, base) & is_below(digits, high, base)]


def is_below(digits: Digits, bound: int, base: int) -> np.ndarray:
    """Which numbers are smaller than `bound`: the most significant differing digit decides."""
    limit = python_digits(bound, base)
    width = max(digits.shape[1], len(limit))
    padded = np.zeros((len(digits), width), np.int64)
    padded[:, : digits.shape[1]] = digits
    difference = (padded - np.pad(limit, (0, width - len(limit))))[:, ::-1]
    first = (difference != 0).argmax(axis=1)
    return difference[np.arange(len(digits)), first] < 0


@lru_cache(maxsize=64)
def python_digits(number: int, base: int) -> np.ndarray:
    """Digits of one Python integer, least significant first."""
    if base & (base - 1) == 0:
        bits = base.bit_length() - 1
        return np.array([number >> shift & (base - 1) for shift in range(0, max(number.bit_length(), 1), bits)])
    digits: list[int] = []
    while number or not digits:
        number, digit = divmod(number, base)
        digits.append(digit)
    return np.array(digits)
