"""Layouts: where every token of a problem stands.

A layout is pure geometry. Positions and biases are computed from it, so they hold at any width.
Columns count the source from the left, places count an operand from its right end (units = 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError

SOS, EOS, PAD = "$", "&", "@"  # the first token of a sequence, its last, and one that fills up rows
SYMBOLS = ("+", "*", SOS, EOS, PAD)  # the tokens after the digits of every vocabulary
Arrangement = Literal["natural", "aligned", "units-first", "as-written"]  # see `Task.layout`
AnswerOrder = Literal["units first", "units last"]
Symbols = tuple[tuple[int, str], ...]  # (column, token) of SOS, operator and EOS
SourceIndex = Literal["right", "left", "place", "running"]  # what tokens of the source are counted by


@dataclass(frozen=True)
class Operand:
    """Where an operand is in a layout: place `p` at column `last - stride * p`. (`rules.Input` has its tokens.)"""

    last: int  # column of the units: the operand's last, but its first where the units are written first
    stride: int  # columns from one place to the next on its left; negative where that is on its right
    places: int  # places it occupies
    by_rows: bool = False  # whether it is written row by row, with rows as long as those of the table that is written
    short: bool = False  # of an unpadded layout: whether it has a few places in every problem

    @property
    def columns(self) -> np.ndarray:
        """Columns of places 0, 1, ... as an integer array of shape (places,)."""
        return self.last - self.stride * np.arange(self.places)

    def reversed(self) -> "Operand":
        """The same columns, counted from the other end."""
        return Operand(int(self.columns[-1]), -self.stride, self.places)


@dataclass(frozen=True)
class Layout:
    """The columns of a source `$ ... &` and the number of output tokens.

    Output token `i` is the digit of place `i`, or the `i`-th from the left where the units are written last. The last
    output token is the end of the sequence. If the output is a table, written row by row, token `i` stands in row
    `i // row` and in column `i % row` of it.
    """

    width: int  # places of a multi-digit operand, of a table's first one
    operands: tuple[Operand, ...]
    symbols: Symbols
    target_length: int  # output tokens, EOS included
    filled: int | None = None  # places that numbers fill, if not all of them: zeros stand in front
    row_length: int | None = None  # output tokens in a row, if the output is a table
    above: tuple[int, ...] = ()  # the cells of the row above that a cell needs: how many columns further right
    answer: AnswerOrder = "units first"
    unpadded: bool = False  # whether each operand has its own places, without zeros in front up to the width

    def __post_init__(self) -> None:
        check_fields(self)
        if all(self.is_short(operand) for operand in self.operands):
            raise InputError(f"a width of {self.width} is not possible: no operand has so many places")
        symbol_columns = np.array([column for column, _ in self.symbols], dtype=int)
        columns = np.sort(np.concatenate([symbol_columns, *(operand.columns for operand in self.operands)]))
        if not np.array_equal(columns, np.arange(self.source_length)):
            raise InputError(f"each column from 0 to {self.source_length - 1} must hold one token: found {columns}")
        if min(count for count in (self.target_length, self.filled, self.row_length) if count is not None) < 1:
            raise InputError("a layout needs an output token, a place that numbers fill and a cell in a row, at least")

    def is_short(self, operand: Operand) -> bool:
        """Whether an operand has so many places at any width: a factor of one digit, or a few."""
        return operand.short if self.unpadded else self.row_length is None and operand.places < self.width

    @property
    def source_length(self) -> int:
        return len(self.symbols) + sum(operand.places for operand in self.operands)

    @property
    def units(self) -> int:
        """The column of the units of the last operand that is not short: those of the number to look along."""
        return [operand for operand in self.operands if not self.is_short(operand)][-1].last

    @property
    def digit_places(self) -> np.ndarray:
        """The place of each column's digit, counted from 1, and 0 where no digit stands: (source_length,)."""
        places = np.zeros(self.source_length, dtype=np.int64)
        for operand in self.operands:
            places[operand.columns] = np.arange(1, operand.places + 1)
        return places

    def source_index(self, kind: SourceIndex) -> np.ndarray:
        """The index of each column (source_length,), from the left or right end, or by the digit's place.

        Running: from the left, and a decoder-only model goes on counting in the answer.
        By place, the same for the digits of all operands; what stands next to the highest is a place further on.
        """
        if kind != "place":
            columns = np.arange(self.source_length)
            return columns[::-1].copy() if kind == "right" else columns
        places = self.digit_places
        for operand in self.operands:
            beside = operand.columns[-1] - (1 if operand.stride > 0 else -1)
            if beside >= 0:
                places[beside] = places[beside] or operand.places + 1
        return places

    def target_index(self, kind: SourceIndex) -> np.ndarray:
        """The index of each output token's step (target_length,); where it runs on, from the source's length."""
        return np.arange(self.target_length) + self.source_length * (kind == "running")


def in_a_row(
    between: Sequence[Sequence[str]], places: Sequence[int], from_left: Sequence[bool] = ()
) -> tuple[tuple[Operand, ...], Symbols]:
    """Operands of so many places and the symbols before, `between` and after them.

    Places are counted from the right end, but from the left in operands for which `from_left` says so.
    """
    symbols, operands, column = list[tuple[int, str]](), list[Operand](), 0
    for tokens, count in zip(between, (*places, 0), strict=True):
        symbols += enumerate(tokens, column)
        column += len(tokens) + count
        operands.append(Operand(column - 1, 1, count))
    for number in np.flatnonzero(from_left):
        operands[number] = operands[number].reversed()
    return tuple(operands[:-1]), tuple(symbols)


def unary(width: int, operator: str = "") -> Layout:
    """`$ a_n ... a_1 &`, with the operator (if any) after `$` (v1 appendix C)."""
    return Layout(width, *in_a_row([[SOS, operator] if operator else [SOS], [EOS]], [width]), width + 1)


def binary_natural(width: int, operator: str, second: int) -> Layout:
    """`$ a_n ... a_1 + b_m ... b_1 &` with m = `second` places."""
    return Layout(width, *in_a_row([[SOS], [operator], [EOS]], [width, second]), width + 1)


def binary_aligned(width: int, operator: str) -> Layout:
    """`$ + a_n b_n ... a_1 b_1 &`: the digits of one place side by side (v4 section C.4)."""
    symbols = (0, SOS), (1, operator), (2 * width + 2, EOS)
    return Layout(width, (Operand(2 * width, 2, width), Operand(2 * width + 1, 2, width)), symbols, width + 1)
