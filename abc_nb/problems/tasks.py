"""A task: what is computed, how a problem is written, and what every family of tasks has in common.

The vocabulary and the tasks of the paper are those of v4 section 2, v2/3 section 3.3 and v1 appendix C. A task is a
class with a name: `Task("addition", 4)` makes an instance of the one that is registered as `addition`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import Automaton, Kind, automaton_of
from abc_nb.problems.digits import DIGITS, Digits, digit_count, distinct_digits, varied_digits
from abc_nb.problems.layouts import EOS, SOS, Arrangement, Layout, Operand, binary_aligned, binary_natural, unary

PAD = "@"
SYMBOLS = ("+", "*", SOS, EOS, PAD)
Regime = Literal["tight", "padded", "padded-20", "unpadded"]
PADDED: dict[str, int] = {"padded": 60, "padded-20": 20}  # all problems have the columns of so many digits
NUMBERS = 2**20  # training operands come from [0, NUMBERS]
TRAINED = 6  # digits that most of them have: the training length
LONGEST = len(str(NUMBERS))  # digits of the longest

Width = int | tuple[int, int]  # columns given to an operand; of operands with two sizes, both of them
REGISTRY: dict[str, "type[Task]"] = {}


@dataclass(frozen=True)
class Task:
    """A task in a base. Raises InputError for an unknown name, or a base that the task cannot have."""

    name: str
    base: int = 0  # 0: the task's usual one, which is 2 for Parity and 10 for most others

    MADE_BY: ClassVar[str] = "Task"  # what files call an instance of any class of tasks
    title: ClassVar[str]
    example: ClassVar[str]  # a problem in base ten
    factor: ClassVar[int] = 0  # digits of a further operand that has only a few
    operator: ClassVar[str] = ""
    unit: ClassVar[str] = "digits"  # what the length of a problem counts
    grows: ClassVar[int] = 0  # places that the result can need more than the operands
    bases: ClassVar[Sequence[int]] = range(2, 17)
    can_pad: ClassVar[bool] = False  # whether a problem can be given at any width, with zeros in front

    def __init_subclass__(cls, name: str = "") -> None:
        if name:
            REGISTRY[name] = cls

    def __new__(cls, name: str, base: int = 0) -> Self:
        kind = REGISTRY.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, cls):
            known = [other for other, task in REGISTRY.items() if issubclass(task, cls)]
            raise InputError(f"unknown task {name!r}: choose one of {', '.join(known)}")
        return object.__new__(kind)

    def __reduce__(self) -> "tuple[type[Task], tuple[str, int]]":
        return type(self), (self.name, self.base)

    def __post_init__(self) -> None:
        if self.base == 0:
            object.__setattr__(self, "base", 10 if 10 in self.bases else self.bases[0])
        if self.base not in self.bases:
            possible = " to ".join(map(str, sorted({self.bases[0], self.bases[-1]})))
            raise InputError(f"base {self.base} is not possible: {self.title} is written in base {possible}")

    # ---- what the task does, place by place, and what a certificate needs to know of that

    @property
    def long_operands(self) -> int:
        """How many operands have many digits."""
        return 1

    @property
    def inputs(self) -> np.ndarray:
        """The tokens that can stand at a place of an operand, zero first."""
        return np.arange(self.base)

    @property
    def start(self) -> int:
        """The state before the units, or before the first item."""
        return 0

    def step(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The output digit of one place and the state after it, from the state before it and the place's digits.

        A factor of a few digits comes last, as a number. All can be arrays. InputError for a task that has no step.
        """
        raise self.uncertified()

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """The output tokens before the end, shape (samples, outputs): digits, place 0 first, or a table row by row."""
        long, few = operands[: self.long_operands], operands[self.long_operands :]
        factor = [digits @ self.base ** np.arange(self.factor) for digits in few]
        state, output = self.start, []
        for place in range(long[0].shape[1]):
            digit, state = self.step(state, *(operand[:, place] for operand in long), *factor)
            output.append(digit)
        return np.stack(output, axis=1)

    def automaton(self) -> Automaton:
        """All states and what they do; InputError for a task that is no machine with few states."""
        return automaton_of(self)

    def uncertified(self) -> InputError:
        return InputError(f"{self.title} has no certificate: what lower places mean for higher ones has no few states")

    def kinds(self, width: int, lead: bool) -> list[Kind]:
        """Which digits each place of a width can hold; `lead`: one operand has as many digits as fit.

        The places that results alone can need hold zeros.
        """
        kinds: list[Kind] = ["any"] * (width - self.grows)
        if lead and self.can_pad:
            kinds[-1] = "lead"
        return kinds + ["zero"] * self.grows

    def covered(self) -> str:
        """The problems of a width W that a certificate covers, in words."""
        raise NotImplementedError

    # ---- tokens

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Token `i` of the model: the base's digits, then + * $ & @, then what else the task's problems hold."""
        return (*self.digits, *SYMBOLS, *self.words)

    @property
    def digits(self) -> str:
        return DIGITS[: self.base]

    @property
    def words(self) -> tuple[str, ...]:
        return (self.operator,) if self.operator and self.operator not in SYMBOLS else ()

    def token(self, symbol: str) -> int:
        return self.vocabulary.index(symbol)

    def text(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary[token] for token in tokens]

    def places(self, length: int) -> int:
        """Places of the longest operand of `length` digits or items."""
        if length < 1:
            raise InputError(f"length {length} is not possible: lengths are whole numbers from 1 on")
        return length

    def largest(self, number: int) -> int:
        """The largest result of operands up to `number`, or the operand where results don't grow."""
        written = np.base_repr(number, self.base).lower()
        if self.result_places(len(written)) == len(written):
            return number
        others = [DIGITS[self.base - 1] * self.factor or written] * bool(self.operator)
        return int(self.right_answer(self.operator.join([written, *others])), self.base)

    @cached_property
    def training_width(self) -> int:
        """Narrowest width in training, tight regime: the largest result's, so that training shows its carry and end."""
        return digit_count(self.largest(NUMBERS - 1), self.base)

    @cached_property
    def training_limit(self) -> int:
        """The largest training number: 2^20, or one less where that alone would need a place more."""
        return NUMBERS - (self.largest(NUMBERS) >= self.base**self.training_width)

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """The widths seen in training: every length up to the longest training number's; `count` is for numbers."""
        return tuple(self.width(length, regime) for length in range(1, self.training_width + 1))

    def width(self, length: int, regime: Regime) -> Width:
        """Columns given to operands of `length` digits or items."""
        return self.width_for(self.places(length), regime)

    def width_for(self, places: int, regime: Regime) -> Width:
        """Columns given to operands of so many places, never fewer than in training."""
        return places

    def width_of(self, operands: Sequence[Digits], regime: Regime | None = None) -> Width:
        """Columns that hold a problem and its result; with a regime, no fewer than in its training."""
        places = max(digits.shape[1] for digits in operands)
        return self.result_places(places) if regime is None else self.width_for(places, regime)

    def result_places(self, places: int) -> int:
        """The most places that a result of operands of so many places can need."""
        return places + self.grows

    def operand_places(self, width: Width) -> list[int]:
        """The columns that each operand takes in a problem of this width, as people write it."""
        return [single(width)]

    def widen(self, operands: Sequence[Digits], width: Width) -> list[Digits]:
        """The same problems with zeros in front, up to the places that each operand takes at this width."""
        pairs = zip(operands, self.operand_places(width), strict=True)
        return [np.pad(digits, [(0, 0), (0, places - digits.shape[1])]) for digits, places in pairs]

    @lru_cache(maxsize=1024, typed=True)  # noqa: B019 (a frozen value, and few of them)
    def layout(self, width: Width, arrangement: Arrangement = "natural") -> Layout:
        """Where the tokens stand.

        Natural: operands with the units last, and the answer with the units first. Aligned: the digits of one place
        side by side, of two numbers or a number and a digit. Units first: the operands' too (McLeish et al. 2024). As
        written: the answer's units last, with tokens for what it can be longer (Kazemnejad et al. 2023).
        """
        if arrangement not in get_args(Arrangement):
            raise InputError(f"{arrangement!r} is no arrangement: choose one of {', '.join(get_args(Arrangement))}")
        if arrangement == "aligned" and self.can_pad and self.operator and self.factor < 2:
            return binary_aligned(single(width), self.operator)
        layout = self.natural(width)
        if arrangement == "units-first":
            turned = (Operand(int(one.columns[-1]), -one.stride, one.places) for one in layout.operands)
            return replace(layout, operands=tuple(turned))
        if arrangement == "as-written":
            if layout.row is not None:
                raise InputError("a table is written row by row, units first: choose another arrangement")
            return replace(layout, target_length=layout.target_length + self.grows, answer="units last")
        return layout

    def natural(self, width: Width) -> Layout:
        """The layout of operands one after the other."""
        first, *second = self.operand_places(width)
        return binary_natural(first, self.operator, *second) if second else unary(first, self.operator)

    def source(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Source tokens of shape (samples, source_length); a single digit fills every place given to it."""
        tokens = np.empty((len(operands[0]), layout.source_length), np.int64)
        for column, symbol in layout.symbols:
            tokens[:, column] = self.token(symbol)
        for digits, operand in zip(operands, layout.operands, strict=True):
            tokens[:, operand.columns] = digits
        return tokens

    def operands(self, source: np.ndarray, layout: Layout) -> list[Digits]:
        """The operands that source tokens hold."""
        return [source[:, operand.columns] for operand in layout.operands]

    def target(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Target tokens `$ y_1 ... y_n &` of shape (samples, target_length + 1)."""
        if layout.answer == "units last":  # with the places that the answer is longer
            answer = self.answer(self.widen(operands, layout.width + self.grows))[:, ::-1]
        else:
            answer = self.answer(operands)
        return np.pad(answer, [(0, 0), (1, 1)], constant_values=[(0, 0), (self.token(SOS), self.token(EOS))])

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """The operands of training problems: independent numbers of `pool`, all of which fit, or random tokens."""
        return [self.inputs[rng.integers(len(self.inputs), size=(count, single(width)))]]

    def test_operands(self, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """At most so many different problems whose operands have exactly `length` digits or items, uniformly drawn."""
        high = len(self.inputs) ** single(length)
        return [self.inputs[distinct_digits(0, high, len(self.inputs), single(width), min(high, samples), rng)]]

    def hard_operands(self, places: int, count: int, rng: np.random.Generator) -> list[Digits]:
        """Operands of at most so many places, in which long carries and repeated digits come up."""
        return [self.inputs[varied_digits(len(self.inputs), count, places, rng)]]

    @property
    def problem(self) -> str:
        """The example, in the digits of the task's base."""
        return "".join(str(min(int(each), self.base - 1)) if each.isdigit() else each for each in self.example)

    @property
    def takes(self) -> str:
        """What a problem is written in."""
        return f"digits {self.digits[0]}-{self.digits[-1]}"

    def read(self, text: str, zeros: bool = False) -> list[Digits]:
        """The operands of a typed problem, (1, places) each, with zeros in front or without; InputError for others."""
        try:
            return self.parsed(text.strip())
        except InputError as reason:
            takes = f"{self.title} takes a problem in {self.takes}, as in {self.problem}"
            raise InputError(f"cannot read {text.strip()!r}: {reason}; {takes}") from None

    def parsed(self, text: str) -> list[Digits]:
        """The operands as they are typed; InputError, for `read`, if the text is not one of the task's problems."""
        raise NotImplementedError

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        """The first problem as a person types it; with `zeros` in front as far as a result leaves room for them."""
        raise NotImplementedError

    def write(self, tokens: Sequence[int], layout: Layout | None = None) -> str:
        """The answer in output tokens, as a person writes it, `?` for what is no digit; `layout` is the problem's."""
        symbols = self.text(tokens)
        output = symbols[: symbols.index(EOS)] if EOS in symbols else symbols
        digits = [symbol if symbol in DIGITS else "?" for symbol in output] or ["?"]
        return self.said(digits[::-1] if layout is not None and layout.answer == "units last" else digits)

    def said(self, digits: Sequence[str]) -> str:
        """The answer as a person writes it, from the output's digits, units first."""
        raise NotImplementedError

    def written_table(self, tokens: Sequence[int], layout: Layout, operands: Sequence[Digits]) -> str:
        """The table that output tokens make, as people write it; InputError for a task that shows none."""
        raise InputError(f"{self.title} shows no table: take N x N")

    def right_answer(self, text: str) -> str:
        """The right answer to a typed problem, computed digit by digit from the task's definition."""
        operands = self.read(text)
        width = self.width_of(operands)
        return self.write(self.answer(self.widen(operands, width))[0].tolist(), self.layout(width))


class FinalOnly(Task):
    """A family's task whose output is the last digit alone, without what leads to it."""

    def natural(self, width: Width) -> Layout:
        return replace(super().natural(width), target_length=2)

    def answer(self, operands: Sequence[Digits]) -> Digits:
        return super().answer(operands)[:, -1:]

    def automaton(self) -> Automaton:
        raise self.uncertified()


def single(width: Width) -> int:
    """The columns of problems that have one width."""
    if isinstance(width, tuple):
        raise InputError(f"a size of {width} is not possible: all operands of this task have one length")
    return width


def pair(width: Width) -> tuple[int, int]:
    """The sizes of problems that have two; one number stands for both."""
    return width if isinstance(width, tuple) else (width, width)
