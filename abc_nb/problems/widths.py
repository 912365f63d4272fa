"""How long problems of a rule are: their lengths, the columns that they take, and the widths seen in training."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import automaton_of
from abc_nb.problems.digits import Digits, digit_count
from abc_nb.problems.rules import Rule

Regime = Literal["tight", "padded", "padded-20", "unpadded"]
PADDED: dict[str, int] = {"padded": 60, "padded-20": 20}  # all problems have the columns of so many digits
NUMBERS = 2**20  # training operands come from [0, NUMBERS]
TRAINED = 6  # digits that most of them have: the training length
LONGEST = len(str(NUMBERS))  # digits of the longest
TABLE_SIZES = ((4, 3), (5, 4), (6, 3), (3, 5), (6, 6))  # of tables in training

Width = int | tuple[int, int]  # columns given to an operand; of operands with two sizes, both of them


class Widths:
    """Those methods of `Task`, its only subclass, that are about lengths and widths; read that one first."""

    base: int

    @property
    def rule(self) -> Rule:
        """What the task computes."""
        raise NotImplementedError

    def right_answer(self, text: str) -> str:
        """The right answer to a typed problem."""
        raise NotImplementedError

    @property
    def table(self) -> bool:
        """Whether the output is a table."""
        return self.rule.table

    @property
    def pads(self) -> bool:
        """Whether a problem can be given at any width, with zeros in front."""
        return self.rule.notation == "number" and not self.table

    @cached_property
    def grows(self) -> int:
        """Places that the result can need more than the operands: those after which all that is handed on is used.

        None in a list or in symbols, which have as many items as the operands: what is left over is not written.
        """
        if not self.pads or self.rule.grows is not None:
            return self.rule.grows or 0
        return automaton_of(self.rule).grows

    def places(self, length: int) -> int:
        """Places of the longest operand of `length` digits or items."""
        if length < 1:
            raise InputError(f"length {length} is not possible: lengths are whole numbers from 1 on")
        if self.rule.counted_in:
            return digit_count(self.rule.counted_in**length - 1, self.base)
        return self.rule.whole.item_places(length) if self.rule.whole else length

    def range_of(self, length: int) -> tuple[int, int]:
        """The smallest number of a length, and the smallest longer one."""
        base = self.rule.counted_in or self.base
        return base ** (length - 1), base**length

    @lru_cache(maxsize=1024)  # noqa: B019 (a frozen value, and few of them)
    def largest(self, number: int) -> int:
        """The largest result of operands up to `number`, or the operand where results don't grow."""
        written = np.base_repr(number, self.base).lower() if self.pads else ""
        if self.result_places(len(written)) == len(written):
            return number
        others = [self.rule.alphabet[-1] * self.rule.short_digits or written] * (len(self.rule.inputs) - 1)
        return int(self.right_answer(self.rule.sign.join([written, *others])), self.base)

    @cached_property
    def training_width(self) -> int:
        """Narrowest width in training, tight regime: the largest result's, so that training shows its carry and end."""
        return digit_count(self.largest(NUMBERS - 1), self.base)

    @cached_property
    def training_limit(self) -> int:
        """The largest training number: 2^20, or one less where that alone would need a place more."""
        return NUMBERS - (self.largest(NUMBERS) >= self.base**self.training_width)

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """The widths seen in training: of numbers so many from what results need on, of lists those of every length.

        Of unpadded numbers those of every length but one digit, of which too few are held out for validation; of tables
        five sizes, or the first one alone for a plain model.
        """
        if self.table:
            most = digit_count(NUMBERS + 1, self.base) - 1 if self.two_numbers else NUMBERS  # no larger number
            sizes = TABLE_SIZES[: None if count > 1 else 1]
            return tuple(dict.fromkeys((min(first, most), min(second, most)) for first, second in sizes))
        if not self.pads or regime == "unpadded":
            lengths = range(2, TRAINED + 1) if self.pads else range(1, self.training_width + 1)
            return tuple(self.width(length, regime) for length in lengths)
        narrowest = single(self.width(1, regime))
        return tuple(range(narrowest, narrowest + (1 if regime in PADDED else count)))

    @property
    def two_numbers(self) -> bool:
        """Whether a table has a number along its places and another along its rows."""
        return self.table and self.rule.notation == "number" and not self.rule.stacked

    def width(self, length: int, regime: Regime) -> Width:
        """Columns given to operands of `length` digits or items."""
        return self.width_for(self.places(length), regime)

    def width_for(self, places: int, regime: Regime) -> Width:
        """Columns given to operands of so many places: of numbers as many as their result can need, and as training's.

        Of padded ones no fewer than the result of 60 digits or 20 needs; of unpadded ones and of lists their places.
        """
        if self.table:
            return places, places
        if regime == "unpadded" or not self.pads:
            return places
        narrowest = self.result_places(self.places(PADDED[regime])) if regime in PADDED else self.training_width
        return max(self.result_places(places), narrowest)

    def width_of(self, operands: Sequence[Digits], regime: Regime | None = None) -> Width:
        """Columns that hold a problem and its result; with a regime, no fewer than in its training."""
        if self.rule.stacked:
            columns = 1 + int((operands[0][0] == self.rule.inputs[0].mark).argmax())
            rows = operands[0].shape[1] // columns
            return columns - self.rule.wider(rows), rows
        if self.table:
            return operands[0].shape[1], operands[-1].shape[1]
        places = max(digits.shape[1] for digits in operands)
        return self.result_places(places) if regime is None else self.width_for(places, regime)

    def result_places(self, places: int) -> int:
        """The most places that a result of operands of so many places can need."""
        return self.rule.whole.output_places(places) if self.rule.whole else places + self.grows

    def size(self, width: Width) -> tuple[int, int]:
        """Rows and columns of a table."""
        places, rows = pair(width)
        return rows, places + self.rule.wider(rows)

    def operand_places(self, width: Width) -> list[int]:
        """The columns that each operand takes in a problem of this width, as people write it."""
        if self.table:
            places, rows = pair(width)
            along = {"place": places, "row": rows, "cell": rows * (places + self.rule.wider(rows))}
            return [along[given.along] for given in self.rule.inputs]
        return [given.digits or single(width) for given in self.rule.inputs]

    def widen(self, operands: Sequence[Digits], width: Width) -> list[Digits]:
        """The same problems with zeros in front, up to the places that each operand takes at this width."""
        pairs = zip(operands, self.operand_places(width), strict=True)
        return [np.pad(digits, [(0, 0), (0, places - digits.shape[1])]) for digits, places in pairs]


def single(width: Width) -> int:
    """The columns of problems that have one width."""
    if isinstance(width, tuple):
        raise InputError(f"a size of {width} is not possible: all operands of this task have one length")
    return width


def pair(width: Width) -> tuple[int, int]:
    """The sizes of problems that have two; one number stands for both."""
    return width if isinstance(width, tuple) else (width, width)
