"""Tasks whose operands are numbers and whose answer is written from the units up."""

from collections.abc import Sequence

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS, Digits, distinct_digits, is_less, to_digits, varied_digits, written_number
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import PADDED, TRAINED, FinalOnly, Regime, Task, Width, pair, single

Step = tuple[np.ndarray, np.ndarray]  # the digit that is written, and the state after it


class Numbers(Task):
    """One number, or two with an operator between them; the second can be a factor of a few digits."""

    can_pad = True

    @property
    def long_operands(self) -> int:
        return 2 if self.operator and not self.factor else 1

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """Those that begin at what results need, and one of padded numbers; of unpadded ones, those of every length."""
        if regime == "unpadded":  # of one digit too few are held out for validation
            return tuple(self.width(length, regime) for length in range(2, TRAINED + 1))
        narrowest = single(self.width(1, regime))
        return tuple(range(narrowest, narrowest + (1 if regime in PADDED else count)))

    def width_for(self, places: int, regime: Regime) -> Width:
        """As many as the result can need, or as it needs of 60 digits or 20; of unpadded ones the operands' places."""
        if regime == "unpadded":
            return places
        narrowest = self.result_places(self.places(PADDED[regime])) if regime in PADDED else self.training_width
        return max(self.result_places(places), narrowest)

    def operand_places(self, width: Width) -> list[int]:
        return [single(width), self.factor or single(width)] if self.operator else [single(width)]

    def operands(self, source: np.ndarray, layout: Layout) -> list[Digits]:
        """The numbers; of a digit that fills every place of an aligned problem, the digit."""
        operands = super().operands(source, layout)
        return [operands[0], operands[1][:, : self.factor]] if self.factor else operands

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        drawn = (rng.choice(pool, count) for _ in range(self.long_operands))
        return self.completed([to_digits(numbers, self.base, single(width)) for numbers in drawn], rng)

    def completed(self, long: list[Digits], rng: np.random.Generator) -> list[Digits]:
        """All operands: two long ones in an order that the task allows, or one and a uniform factor of few digits."""
        if len(long) == 2:
            return self.in_order(*long)
        return [*long, rng.integers(self.base, size=(len(long[0]), self.factor))] if self.factor else long

    def test_operands(self, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """Each operand's numbers are distinct; a factor of a few digits is any number of so many."""
        ranges = [self.range_of(places) for places in pair(length)[: self.long_operands]]
        count = min(samples, *(high - low for low, high in ranges))
        sizes = zip(ranges, self.operand_places(width), strict=False)  # a factor is drawn later
        long = [distinct_digits(low, high, self.base, places, count, rng) for (low, high), places in sizes]
        return self.completed(long, rng)

    def range_of(self, length: int) -> tuple[int, int]:
        """The smallest number of a length, and the smallest longer one."""
        return self.base ** (length - 1), self.base**length

    def hard_operands(self, places: int, count: int, rng: np.random.Generator) -> list[Digits]:
        """The first number has exactly so many digits; a second one as many in half of the problems, else fewer."""
        first = varied_digits(self.base, count, places, rng)
        first[:, -1] = np.maximum(first[:, -1], places > 1)
        if not self.operator:
            return [first]
        second = varied_digits(self.base, count, self.factor or places, rng)
        if self.factor:
            return [first, second]
        shorter = rng.integers(1, places + 1, count)[:, None]
        second[(np.arange(places) >= shorter) & (rng.random((count, 1)) < 0.5)] = 0
        return self.in_order(first, second)

    def in_order(self, first: Digits, second: Digits) -> list[Digits]:
        """Two numbers of the same places, in an order that the task allows."""
        return [first, second]

    def covered(self) -> str:
        most = f"W - {self.grows}" if self.grows else "W"
        return f"operands of up to {most} digits, with any number of zeros in front"

    def read(self, text: str, zeros: bool = False) -> list[Digits]:
        operands = super().read(text)
        return operands if zeros else [own[:, : np.flatnonzero(own[0]).max(initial=0) + 1] for own in operands]

    def parsed(self, text: str) -> list[Digits]:
        parts, wanted = numbers_in(text, self.operator, self.digits), 2 if self.operator else 1
        if len(parts) != wanted:
            raise InputError(f"numbers in it: {len(parts)}, needed: {wanted}")
        if self.factor and len(parts[-1]) > self.factor:
            raise InputError(f"the second number has {len(parts[-1])} digits, which is more than {self.factor}")
        return [np.array([[DIGITS.index(character) for character in reversed(part)]]) for part in parts]

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        texts = ["".join(self.text(digits[0, ::-1].tolist())) for digits in operands]
        if not zeros:
            return self.operator.join(map(written_number, texts))
        return self.operator.join(text[self.grows :] if len(text) == len(texts[0]) else text for text in texts)

    def said(self, digits: Sequence[str]) -> str:
        return written_number(digits[::-1])


class Successor(Numbers, name="successor"):
    title, example, grows = "Successor", "999", 1
    start = 1  # what is added is carried into the units

    def step(self, carry: np.ndarray, digit: np.ndarray) -> Step:
        total = digit + carry
        return total % self.base, total // self.base


class Addition(Numbers, name="addition"):
    title, example, operator, grows = "Addition", "123+456", "+", 1

    def step(self, carry: np.ndarray, a: np.ndarray, b: np.ndarray) -> Step:
        total = a + b + carry
        return total % self.base, total // self.base


class Subtraction(Numbers, name="subtraction"):
    """The larger number comes first."""

    title, example, operator = "Subtraction", "456-123", "-"

    def step(self, borrow: np.ndarray, a: np.ndarray, b: np.ndarray) -> Step:
        total = a - b - borrow
        return total % self.base, -(total // self.base)

    def in_order(self, first: Digits, second: Digits) -> list[Digits]:
        turned = is_less(first, second)[:, None]
        return [np.where(turned, second, first), np.where(turned, first, second)]

    def parsed(self, text: str) -> list[Digits]:
        operands = super().parsed(text)
        if is_less(*self.widen(operands, max(digits.shape[1] for digits in operands)))[0]:
            raise InputError("the second number is larger than the first")
        return operands


class NTimesFew(Numbers):
    """A number times a factor of a few digits, which needs as many places more."""

    operator = "*"

    def step(self, carry: np.ndarray, digit: np.ndarray, factor: np.ndarray) -> Step:
        total = digit * factor + carry
        return total % self.base, total // self.base


class NBy1(NTimesFew, name="n-by-1"):
    title, example, grows, factor = "N x 1", "123*4", 1, 1


class Parity(Numbers, name="parity"):
    """The scratchpad of Parity: y_1 = x_1, y_i = y_{i-1} xor x_i (v2/3 section 3.3); lengths count decimal digits."""

    title, example, unit, bases = "Parity", "1011", "decimal digits", (2,)

    def step(self, value: np.ndarray, bit: np.ndarray) -> Step:
        value = (value + bit) % 2
        return value, value

    def places(self, length: int) -> int:
        """Bits of the longest number of so many decimal digits."""
        return (10 ** super().places(length) - 1).bit_length()

    def range_of(self, length: int) -> tuple[int, int]:
        return 10 ** (length - 1), 10**length

    def said(self, digits: Sequence[str]) -> str:
        return digits[-1]


class ParityClassification(FinalOnly, Parity, name="parity-classification"):
    title, unit = "Parity (classification)", "digits"


class NBy2(NTimesFew, name="n-by-2"):
    title, example, grows, factor = "N x 2", "123*45", 2, 2


class NBy3(NTimesFew, name="n-by-3"):
    title, example, grows, factor = "N x 3", "123*456", 3, 3


class DirectProduct(Numbers, name="direct-n-by-n"):
    """The product of two long numbers, without the table that leads to it."""

    title, example, operator = "N x N, no trace", "123*456", "*"

    def result_places(self, places: int) -> int:
        return 2 * places

    def answer(self, operands: Sequence[Digits]) -> Digits:
        a, b = operands
        result, carry = np.empty_like(a), np.zeros(len(a), a.dtype)
        for place in range(a.shape[1]):
            total = (a[:, : place + 1] * b[:, place::-1]).sum(1) + carry
            result[:, place], carry = total % self.base, total // self.base
        return result


def numbers_in(text: str, operator: str, digits: str) -> list[str]:
    """The numbers between operators; without an operator, the text is one number. InputError if one is missing."""
    parts = [part.strip() for part in (text.split(operator) if operator else [text])]
    if strange := [character for part in parts for character in part if character.lower() not in digits]:
        raise InputError(f"{strange[0]!r} is no digit")
    if not all(parts):
        raise InputError("a number is missing")
    return [part.lower() for part in parts]
