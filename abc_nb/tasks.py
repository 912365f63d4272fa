"""Tasks: the vocabulary and what each task computes (`000` section 2, `002` section 3.3, `003` appendix C).

Numbers are digit arrays of shape (samples, places), least significant digit first, so that a
number of any length fits and column `i` is place `i`. Nothing loops over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abc_nb import layouts
from abc_nb.errors import InputError
from abc_nb.layouts import Arrangement, Layout

DIGITS = "0123456789abcdef"
SOS, EOS, PAD = "$", "&", "@"
LISTOPS = ("SM", "MAX", "MIN")
NUMBERS = 2**20  # training operands come from [0, NUMBERS]

Digits = np.ndarray  # (samples, places), least significant first


def digit_count(number: int, base: int) -> int:
    """Digits of a positive number."""
    return 1 if number < base else 1 + digit_count(number // base, base)


def add(a: Digits, b: Digits, base: int) -> Digits:
    """a + b, as many places as `a`."""
    result, carry = np.empty_like(a), np.zeros(len(a), a.dtype)
    for place in range(a.shape[1]):
        total = a[:, place] + b[:, place] + carry
        result[:, place], carry = total % base, total // base
    return result


def multiply_by_digit(a: Digits, digit: Digits, base: int) -> Digits:
    """a * digit for `digit` of shape (samples, 1), as many places as `a`."""
    result, carry = np.empty_like(a), np.zeros(len(a), a.dtype)
    for place in range(a.shape[1]):
        total = a[:, place] * digit[:, 0] + carry
        result[:, place], carry = total % base, total // base
    return result


def successor(a: Digits, base: int) -> Digits:
    """a + 1."""
    one = np.zeros_like(a)
    one[:, 0] = 1
    return add(a, one, base)


def running_xor(a: Digits, base: int) -> Digits:
    """The scratchpad of Parity: y_1 = x_1, y_i = y_{i-1} xor x_i (`002` section 3.3)."""
    return np.bitwise_xor.accumulate(a, axis=1)


def running_sum(a: Digits, base: int) -> Digits:
    return np.cumsum(a, axis=1) % base


def running_maximum(a: Digits, base: int) -> Digits:
    return np.maximum.accumulate(a, axis=1)


def running_minimum(a: Digits, base: int) -> Digits:
    return np.minimum.accumulate(a, axis=1)


@dataclass(frozen=True)
class Operation:
    """What a task computes and how its problem is written."""

    title: str
    compute: Callable[..., Digits]
    example: str
    operator: str = ""
    second: str = ""  # "number", "digit" or none
    grows: bool = False  # the result can need one place more than the operands
    scratchpad: bool = False  # the answer is the last output digit, the others lead to it
    final_only: bool = False  # the output is that last digit alone
    binary_digits: bool = False  # operands are written in base 2, lengths count decimal digits
    items: bool = False  # the operand is a list of items: no leading zeros to add


OPERATIONS = {
    "successor": Operation("Successor", successor, "999", grows=True),
    "addition": Operation("Addition", add, "123+456", "+", "number", grows=True),
    "n-by-1": Operation("N x 1", multiply_by_digit, "123*4", "*", "digit", grows=True),
    "parity": Operation("Parity", running_xor, "1011", scratchpad=True, binary_digits=True),
    "parity-classification": Operation(
        "Parity (classification)", running_xor, "1011", scratchpad=True, final_only=True, binary_digits=True
    ),
    "listops-sm": Operation("ListOps SM", running_sum, "3 9 4", "SM", scratchpad=True, items=True),
    "listops-max": Operation("ListOps MAX", running_maximum, "3 9 4", "MAX", scratchpad=True, items=True),
    "listops-min": Operation("ListOps MIN", running_minimum, "3 9 4", "MIN", scratchpad=True, items=True),
}


@dataclass(frozen=True)
class Task:
    """A task in a base. Raises InputError for an unknown name or a base outside 2-16."""

    name: str
    base: int = 10

    def __post_init__(self) -> None:
        if self.name not in OPERATIONS:
            raise InputError(f"unknown task {self.name!r}: choose one of {', '.join(OPERATIONS)}")
        if self.operation.binary_digits and self.base == 10:  # the default: 10 stands for what the task is written in
            object.__setattr__(self, "base", 2)
        if self.operation.binary_digits and self.base != 2:
            raise InputError(f"base {self.base} is not possible: {self.title} is written in base 2")
        if not 2 <= self.base <= 16:
            raise InputError(f"base {self.base} is not supported: choose a base from 2 to 16")

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self.name]

    @property
    def title(self) -> str:
        return self.operation.title

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Token `i` of the model: the base's digits, then + * $ & @, then ListOps operators if needed."""
        extra = LISTOPS if self.operation.items else ()
        return (*DIGITS[: self.base], "+", "*", SOS, EOS, PAD, *extra)

    def token(self, symbol: str) -> int:
        return self.vocabulary.index(symbol)

    # ---- lengths ---------------------------------------------------------------------------------

    def places(self, length: int) -> int:
        """Places of the longest operand of `length` digits: bits for Parity, digits otherwise."""
        if length < 1:
            raise InputError(f"length {length} is not possible: lengths are whole numbers from 1 on")
        return (10**length - 1).bit_length() if self.operation.binary_digits else length

    @property
    def training_width(self) -> int:
        """Narrowest width in training, tight regime: what the largest result of training numbers needs.

        So that a carry into the highest place, and the end after it, are seen in training. Where
        results don't grow, the highest place is one that training numbers fill: with one more, a
        leading 1 of Parity would not be seen (2^20 itself, one number in a million, is left out).
        """
        if not self.operation.grows:
            return digit_count(NUMBERS - 1, self.base)
        largest = {"": NUMBERS + 1, "number": 2 * NUMBERS, "digit": (self.base - 1) * NUMBERS}
        return digit_count(largest[self.operation.second], self.base)

    def width(self, length: int, regime: str) -> int:
        """Columns given to an operand of `length` digits."""
        return self.width_for(self.places(length), regime)

    def width_for(self, places: int, regime: str) -> int:
        """Columns given to an operand of so many places, never fewer than in training.

        Tight: as many as the result can need. Padded: as many as at 60 digits, as the authors do.
        Lists take exactly one column an item, since a zero in front would be an item too.
        """
        if self.operation.items:
            return places
        narrowest = self.places(60) + self.operation.grows if regime == "padded" else self.training_width
        return max(places + self.operation.grows, narrowest)

    # ---- problems --------------------------------------------------------------------------------

    def layout(self, width: int, arrangement: Arrangement = "natural") -> Layout:
        operation = self.operation
        if not operation.second:
            return layouts.unary(width, operation.operator, 1 if operation.final_only else None)
        if arrangement == "aligned":
            return layouts.binary_aligned(width, operation.operator)
        return layouts.binary_natural(width, operation.operator, width if operation.second == "number" else 1)

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """The output digits, shape (samples, outputs), place 0 first."""
        result = self.operation.compute(*operands, self.base)
        return result[:, -1:] if self.operation.final_only else result

    def source(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Source tokens of shape (samples, source_length); a single digit fills every place given to it."""
        tokens = np.empty((len(operands[0]), layout.source_length), np.int64)
        for column, symbol in layout.symbols:
            tokens[:, column] = self.token(symbol)
        for digits, operand in zip(operands, layout.operands, strict=True):
            tokens[:, operand.columns] = digits
        return tokens

    def target(self, operands: Sequence[Digits]) -> np.ndarray:
        """Target tokens `$ y_1 ... y_n &` of shape (samples, target_length + 1)."""
        answer = self.answer(operands)
        ends = np.full((len(answer), 1), self.token(SOS)), np.full((len(answer), 1), self.token(EOS))
        return np.concatenate([ends[0], answer, ends[1]], axis=1, dtype=np.int64)

    def text(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary[token] for token in tokens]
