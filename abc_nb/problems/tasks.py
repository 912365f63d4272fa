"""Tasks: the vocabulary and what each task computes (v4 section 2, v2/3 section 3.3, v1 appendix C).

Numbers are digit arrays of shape (samples, places), least significant digit first, so that a
number of any length fits and column `i` is place `i`. Nothing loops over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems import layouts
from abc_nb.problems.layouts import EOS, SOS, Arrangement, Layout
from abc_nb.problems.rewriting import COLUMNS, COMBINE, LISTS
from abc_nb.problems.traces import DIGITS, PRODUCT, SORTING, Trace

PAD = "@"
SYMBOLS = ("+", "*", SOS, EOS, PAD)
PADDED = {"padded": 60, "padded-20": 20}  # regimes whose problems all have the columns of so many digits
NUMBERS = 2**20  # training operands come from [0, NUMBERS]
TRAINED = 6  # digits that most of them have: the training length
LONGEST = len(str(NUMBERS))  # digits of the longest

Digits = np.ndarray  # (samples, places), least significant first
Width = Any  # columns given to an operand, a number; of two factors of their own lengths, a pair of numbers


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


def multiply(a: Digits, b: Digits, base: int) -> Digits:
    """a * b, as many places as `a`; `b` may have fewer."""
    result, carry = np.empty_like(a), np.zeros(len(a), a.dtype)
    for place in range(a.shape[1]):
        reach = min(place + 1, b.shape[1])
        total = (a[:, place - reach + 1 : place + 1] * b[:, :reach][:, ::-1]).sum(1) + carry
        result[:, place], carry = total % base, total // base
    return result


def successor(a: Digits, base: int) -> Digits:
    """a + 1."""
    one = np.zeros_like(a)
    one[:, 0] = 1
    return add(a, one, base)


def running_xor(a: Digits, base: int) -> Digits:
    """The scratchpad of Parity: y_1 = x_1, y_i = y_{i-1} xor x_i (v2/3 section 3.3)."""
    return np.bitwise_xor.accumulate(a, axis=1)


def running_sum(a: Digits, base: int) -> Digits:
    return np.cumsum(a, axis=1) % base


def running_maximum(a: Digits, base: int) -> Digits:
    return np.maximum.accumulate(a, axis=1)


def running_minimum(a: Digits, base: int) -> Digits:
    return np.minimum.accumulate(a, axis=1)


def ordered(a: Digits, base: int) -> Digits:
    """The items from the largest, in place 0, to the smallest: from left to right they rise."""
    return np.sort(a, axis=1)[:, ::-1]


def nested(a: Digits, base: int) -> Digits:
    """The value of lists of two, each element a digit or a list: (samples, 1).

    In prefix notation, `SM 3 MAX 2 5`, no brackets are needed. Read from the right, a stack holds the
    elements that wait for their operator.
    """
    operators = {base + len(SYMBOLS) + i: combine for i, combine in enumerate(COMBINE.values())}
    values = []
    for tokens in a.tolist():
        stack: list[int] = []
        for token in tokens:
            stack.append(operators[token](stack.pop(), stack.pop(), base) if token in operators else token)
        values.append(stack)
    return np.array(values)


@dataclass(frozen=True)
class Operation:
    """What a task computes and how its problem is written."""

    title: str
    compute: Callable[..., Digits]
    example: str
    operator: str = ""
    second: int | None = 0  # places of the second operand: 0 if there is none, None if it is as long as the first
    grows: int = 0  # places that the result can need more than the operands
    doubles: bool = False  # the result can need twice as many
    scratchpad: bool = False  # the answer is the last output digit, the others lead to it
    final_only: bool = False  # the output is that last digit alone
    binary_digits: bool = False  # operands are written in base 2, lengths count decimal digits
    items: bool = False  # the operand is a list of items: no leading zeros to add
    nested: bool = False  # an item can be a list itself
    trace: Trace | None = None  # the output is a table that leads to the answer


OPERATIONS = {
    "successor": Operation("Successor", successor, "999", grows=1),
    "addition": Operation("Addition", add, "123+456", "+", second=None, grows=1),
    "n-by-1": Operation("N x 1", multiply, "123*4", "*", second=1, grows=1),
    "parity": Operation("Parity", running_xor, "1011", scratchpad=True, binary_digits=True),
    "parity-classification": Operation(
        "Parity (classification)", running_xor, "1011", scratchpad=True, final_only=True, binary_digits=True
    ),
    "listops-sm": Operation("ListOps SM", running_sum, "3 9 4", "SM", scratchpad=True, items=True),
    "listops-max": Operation("ListOps MAX", running_maximum, "3 9 4", "MAX", scratchpad=True, items=True),
    "listops-min": Operation("ListOps MIN", running_minimum, "3 9 4", "MIN", scratchpad=True, items=True),
    "listops-nested": Operation("ListOps, nested", nested, "SM 3 MAX 2 5", items=True, nested=True, trace=LISTS),
    "sorting": Operation("Sorting", ordered, "3 9 4", items=True, trace=SORTING),
    "direct-listops-nested": Operation(
        "ListOps, nested, no trace", nested, "SM 3 MAX 2 5", scratchpad=True, final_only=True, items=True, nested=True
    ),
    "n-by-2": Operation("N x 2", multiply, "123*45", "*", second=2, grows=2),
    "n-by-3": Operation("N x 3", multiply, "123*456", "*", second=3, grows=3),
    "n-by-n": Operation("N x N", multiply, "123*456", "*", second=None, trace=PRODUCT),
    "direct-n-by-n": Operation("N x N, no trace", multiply, "123*456", "*", second=None, doubles=True),
}


def unit_of(title: str) -> str:
    """What the length of a task's problems counts, by its title in tables: digits, or the items of a list."""
    lists = tuple(operation.title for operation in OPERATIONS.values() if operation.items)
    return "items" if title.startswith(lists) else "digits"


@dataclass(frozen=True)
class Task:
    """A task in a base. Raises InputError for an unknown name, or a base outside 2-16 or that the task cannot have."""

    name: str
    base: int = 0  # 0: the task's usual one, which is 2 for Parity and 10 for the others

    def __post_init__(self) -> None:
        if self.name not in OPERATIONS:
            raise InputError(f"unknown task {self.name!r}: choose one of {', '.join(OPERATIONS)}")
        binary = self.operation.binary_digits
        if self.base == 0 and not isinstance(self.base, bool):
            object.__setattr__(self, "base", 2 if binary else 10)
        if binary and self.base != 2:
            raise InputError(f"base {self.base} is not possible: {self.title} is written in base 2")
        if not isinstance(self.base, int) or not 2 <= self.base <= 16:
            raise InputError(f"base {self.base} is not supported: choose a base from 2 to 16")

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self.name]

    @property
    def title(self) -> str:
        return self.operation.title

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Token `i` of the model: the base's digits, then + * $ & @, then operators of lists or cells if needed."""
        cells = [self.trace.write(cell, self.base) for cell in range(self.trace.kinds(self.base))] if self.trace else ()
        return (*self.digits, *SYMBOLS, *(COMBINE if self.operation.items else ()), *cells)

    @property
    def trace(self) -> Trace | None:
        return self.operation.trace

    @property
    def first_cell(self) -> int:
        """The token of cell 0 of a trace."""
        return self.base + len(SYMBOLS) + len(COMBINE) * self.operation.items

    @property
    def digits(self) -> str:
        return DIGITS[: self.base]

    def token(self, symbol: str) -> int:
        return self.vocabulary.index(symbol)

    # ---- lengths ---------------------------------------------------------------------------------

    def places(self, length: int) -> int:
        """Places of the longest operand of `length` digits: bits for Parity, digits otherwise."""
        if length < 1:
            raise InputError(f"length {length} is not possible: lengths are whole numbers from 1 on")
        return (10**length - 1).bit_length() if self.operation.binary_digits else length

    def largest(self, number: int) -> int:
        """The largest result of operands up to `number`, or the operand where results don't grow."""
        operation = self.operation
        if operation.doubles:
            return number**2
        if not operation.grows:
            return number
        if operation.second is None:
            return 2 * number
        return number * (self.base**operation.second - 1) if operation.second else number + 1

    @property
    def training_width(self) -> int:
        """Narrowest width in training, tight regime: what the largest result of training numbers needs.

        So that a carry into the highest place, and the end after it, are seen in training. 2^20 itself,
        one number in a million, is left out where it needs a place more, which would else be zero always.
        """
        return digit_count(self.largest(NUMBERS - 1), self.base)

    @property
    def training_limit(self) -> int:
        """The largest training number: 2^20, or one less where its result does not fit the training width."""
        return NUMBERS - (self.largest(NUMBERS) >= self.base**self.training_width)

    def width(self, length: int, regime: str) -> Width:
        """Columns given to operands of `length` digits."""
        return self.width_for(self.places(length), regime)

    def width_for(self, places: int, regime: str) -> Width:
        """Columns given to operands of so many places, never fewer than in training.

        Tight: as many as the result can need. Padded: as many as at 60 digits, as the authors do, or at 20.
        Unpadded: as many as its places. Lists take exactly one column an item, since a zero in front would be an
        item too; nested ones one more for each list. Factors that lead to a table take their own digits each.
        """
        if self.trace and self.operation.second is None:
            return places, places
        if regime == "unpadded":
            return places
        if self.operation.items:
            return places if not self.operation.nested else COLUMNS * places if self.trace else 2 * places - 1
        narrowest = self.result_places(self.places(PADDED[regime])) if regime in PADDED else self.training_width
        return max(self.result_places(places), narrowest)

    def result_places(self, places: int) -> int:
        """The most places that a result of operands of so many places can need."""
        return places * (1 + self.operation.doubles) + self.operation.grows

    def operand_places(self, width: Width) -> list[int]:
        """The columns that each operand takes in a problem of this width, as people write it."""
        if isinstance(width, tuple):
            return list(width)
        second = self.operation.second
        return [width] if second == 0 else [width, width if second is None else second]

    # ---- problems --------------------------------------------------------------------------------

    def layout(self, width: Width, arrangement: Arrangement = "natural") -> Layout:
        """Where the tokens stand.

        Natural: operands with the units last, and the answer with the units first. Aligned: the digits of one place
        side by side; a factor of several digits has no one place to stand at and is written out. Units first: as
        natural, but for the operands' order. As written: as natural, but for the answer's order.
        """
        operation = self.operation
        if arrangement == "units-first":
            return layouts.units_first(self.layout(width))
        if arrangement == "as-written":
            return layouts.as_written(self.layout(width), operation.grows)
        if operation.trace:
            places = self.operand_places(width)
            return layouts.table(places, operation.operator, operation.trace.shape(places), operation.trace.above)
        if operation.second == 0:
            return layouts.unary(width, operation.operator, 1 if operation.final_only else None)
        if arrangement == "aligned" and operation.second in (None, 1):
            return layouts.binary_aligned(width, operation.operator)
        return layouts.binary_natural(width, operation.operator, self.operand_places(width)[1])

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """The output tokens before the end, shape (samples, outputs): digits, place 0 first, or a table row by row."""
        if self.trace:
            return self.first_cell + self.trace.cells(operands, self.base).reshape(len(operands[0]), -1)
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

    def target(self, operands: Sequence[Digits], layout: Layout | None = None) -> np.ndarray:
        """Target tokens `$ y_1 ... y_n &` of shape (samples, target_length + 1); without a layout, units first."""
        if layout is None or layout.answer == "units first":
            answer = self.answer(operands)
        else:
            more = layout.target_length - 1 - layout.width
            answer = self.answer([np.pad(digits, [(0, 0), (0, more)]) for digits in operands])[:, ::-1]
        ends = np.full((len(answer), 1), self.token(SOS)), np.full((len(answer), 1), self.token(EOS))
        return np.concatenate([ends[0], answer, ends[1]], axis=1, dtype=np.int64)

    def text(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary[token] for token in tokens]
