"""A task: a rule with the tokens, layouts and widths of its problems, and how people write them.

The vocabulary and the tasks of the paper are those of v4 section 2, v2/3 section 3.3 and v1 appendix C.
`Task("addition", 4)` has the rule that is registered under that name, and `Task.of(rule)` has a rule of the reader's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems import notation
from abc_nb.problems.automaton import automaton_of
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.digits import Digits, digit_count
from abc_nb.problems.layouts import EOS, SOS, Arrangement, Layout, binary_aligned, in_a_row
from abc_nb.problems.rules import OUTPUT, Rule

Regime = Literal["tight", "padded", "padded-20", "unpadded"]
PADDED: dict[str, int] = {"padded": 60, "padded-20": 20}  # all problems have the columns of so many digits
NUMBERS = 2**20  # training operands come from [0, NUMBERS]
TRAINED = 6  # digits that most of them have: the training length
LONGEST = len(str(NUMBERS))  # digits of the longest
TABLE_SIZES = ((4, 3), (5, 4), (6, 3), (3, 5), (6, 6))  # of tables in training

Width = int | tuple[int, int]  # columns given to an operand; of operands with two sizes, both of them


@dataclass(frozen=True)
class Task:
    """A rule as problems. Raises InputError for an unknown name, or a base that the task cannot have."""

    name: str
    base: int = 0  # 0: the task's usual one, which is 2 for Parity and 10 for most others
    unregistered: Rule | None = field(default=None, repr=False, metadata={"stored": False})  # a reader's own rule

    def __post_init__(self) -> None:
        if self.unregistered is not None:
            return
        family = REGISTRY.get(self.name) if isinstance(self.name, str) else None
        if family is None:
            raise InputError(f"unknown task {self.name!r}: choose one of {', '.join(REGISTRY)}")
        bases = family.bases
        base = self.base or (10 if 10 in bases else bases[0])
        if not isinstance(base, int) or base not in bases:
            title, possible = family.make(bases[0]).title, " to ".join(map(str, sorted({bases[0], bases[-1]})))
            raise InputError(f"base {base} is not possible: {title} is written in base {possible}")
        object.__setattr__(self, "base", base)

    @property
    def rule(self) -> Rule:
        return self.unregistered or REGISTRY[self.name].make(self.base)

    @classmethod
    def of(cls, rule: Rule) -> "Task":
        """The task of a rule, which need not be registered; InputError for another rule of a registered name."""
        family = REGISTRY.get(rule.name)
        if family is None:
            return cls(rule.name, rule.base, rule)
        if rule.base not in family.bases or rule is not family.make(rule.base):
            raise InputError(f"{rule.name} is the name of a task of this package: give the rule another one")
        return cls(rule.name, rule.base)

    def __reduce__(self) -> "tuple[type[Task], tuple[object, ...]]":
        return type(self), (self.name, self.base, self.unregistered)

    @property
    def bases(self) -> Sequence[int]:
        """The bases in which there is a task of this name."""
        return REGISTRY[self.name].bases if self.name in REGISTRY else (self.base,)

    @property
    def title(self) -> str:
        return self.rule.title

    @property
    def unit(self) -> str:
        return self.rule.unit

    # ---- tokens

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return self.rule.vocabulary

    @property
    def digits(self) -> Sequence[str]:
        return self.rule.alphabet

    @property
    def first_cell(self) -> int:
        """The token of cell 0 of a table."""
        return len(self.vocabulary) - len(self.rule.writes) if self.rule.writes else 0

    def token(self, symbol: str) -> int:
        return self.vocabulary.index(symbol)

    def text(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary[token] for token in tokens]

    # ---- lengths and widths

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
        """How many more places than its operands a result can need: 1 in a sum; 0 in lists and symbols."""
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

    def largest(self, number: int) -> int:
        """The largest result of operands up to `number`, or the operand where results don't grow."""
        digits = np.base_repr(number, self.base).lower() if self.pads else ""
        if self.result_places(len(digits)) == len(digits):
            return number
        other_operands = [self.rule.alphabet[-1] * self.rule.short_digits or digits] * (len(self.rule.inputs) - 1)
        return int(self.right_answer(self.rule.sign.join([digits, *other_operands])), self.base)

    @cached_property
    def training_width(self) -> int:
        """Narrowest width in training, tight regime: the largest result's, so that training shows its carry and end."""
        return digit_count(self.largest(NUMBERS - 1), self.base)

    @cached_property
    def training_limit(self) -> int:
        """The largest training number: 2^20, or one less where that alone would need a place more."""
        return NUMBERS - (self.largest(NUMBERS) >= self.base**self.training_width)

    def training_widths(self, regime: Regime, count: int) -> tuple[Width, ...]:
        """The widths of training problems: of numbers `count` in a row from what results need on, of lists all lengths.

        Unpadded numbers have all lengths but one digit, of which too few are held out for validation. Tables have five
        sizes, or the first one alone for a plain model.
        """
        if self.table:
            longest = digit_count(NUMBERS + 1, self.base) - 1 if self.two_numbers else NUMBERS  # no larger number
            sizes = TABLE_SIZES[: None if count > 1 else 1]
            return tuple(dict.fromkeys((min(first, longest), min(second, longest)) for first, second in sizes))
        if not self.pads or regime == "unpadded":
            lengths = range(2, TRAINED + 1) if self.pads else range(1, self.training_width + 1)
            return tuple(self.width(length, regime) for length in lengths)
        narrowest = single_width(self.width(1, regime))
        return tuple(range(narrowest, narrowest + (1 if regime in PADDED else count)))

    @property
    def two_numbers(self) -> bool:
        """Whether a table has a number along its places and another along its rows."""
        return self.table and self.rule.notation == "number" and not self.rule.stacked

    def width(self, length: int, regime: Regime) -> Width:
        """Columns given to operands of `length` digits or items."""
        return self.width_for(self.places(length), regime)

    def width_for(self, places: int, regime: Regime) -> Width:
        """Columns given to operands of so many places: for numbers as many as the result can need, at least training's.

        Padded ones have no fewer than a result of 60 digits (or 20) needs. Unpadded ones and lists have their places.
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
            _, numbers, digits = notation.unstack(self.rule, operands[0]).shape
            return digits, numbers
        if self.table:
            return operands[0].shape[1], operands[-1].shape[1]
        places = max(operand.shape[1] for operand in operands)
        return self.result_places(places) if regime is None else self.width_for(places, regime)

    def result_places(self, places: int) -> int:
        """The most places that a result of operands of so many places can need."""
        return self.rule.whole.output_places(places) if self.rule.whole else places + self.grows

    def size(self, width: Width) -> tuple[int, int]:
        """Rows and columns of a table."""
        places, rows = width_pair(width)
        return rows, places + self.rule.wider(rows)

    def operand_places(self, width: Width) -> list[int]:
        """The columns that each operand takes in a problem of this width, as people write it."""
        if self.table:
            rows, columns = self.size(width)
            along = {"place": width_pair(width)[0], "row": rows, "cell": rows * columns}
            return [along[input_.along] for input_ in self.rule.inputs]
        return [input_.digits or single_width(width) for input_ in self.rule.inputs]

    def widen(self, operands: Sequence[Digits], width: Width) -> list[Digits]:
        """The same problems with zeros in front, up to the places that each operand takes at this width."""
        sizes = zip(operands, self.operand_places(width), strict=True)
        return [np.pad(digits, [(0, 0), (0, places - digits.shape[1])]) for digits, places in sizes]

    # ---- layouts

    @lru_cache(maxsize=1024, typed=True)  # noqa: B019 (a frozen value, and few of them)
    def layout(self, width: Width, arrangement: Arrangement = "natural") -> Layout:
        """Where the tokens stand.

        Natural: operands with the units last, and the answer with the units first. Aligned: the digits of one place
        side by side, of two numbers or a number and a digit. Units first: the operands' too (McLeish et al. 2024). As
        written: the answer's units last, with tokens for what it can be longer (Kazemnejad et al. 2023).
        """
        if arrangement not in get_args(Arrangement):
            raise InputError(f"{arrangement!r} is no arrangement: choose one of {', '.join(get_args(Arrangement))}")
        if arrangement == "aligned" and self.pads and len(self.rule.inputs) == 2 and self.rule.short_digits < 2:
            return binary_aligned(single_width(width), self.rule.sign)
        layout = self.natural(width)
        if arrangement == "units-first":
            return replace(layout, operands=tuple(operand.reversed() for operand in layout.operands))
        if arrangement == "as-written":
            if self.table:
                raise InputError("a table is written row by row, units first: choose another arrangement")
            return replace(layout, target_length=layout.target_length + self.grows, answer="units last")
        return layout

    def natural(self, width: Width) -> Layout:
        """Operands one after the other."""
        places, sign = self.operand_places(width), [self.rule.sign] if self.rule.sign else []
        between = [[SOS], *[sign] * (len(places) - 1), [EOS]] if len(places) > 1 else [[SOS, *sign], [EOS]]
        operands, symbols = in_a_row(between, places, [input_.from_left for input_ in self.rule.inputs])
        if not self.table:
            return Layout(places[0], operands, symbols, 2 if self.rule.final_only else places[0] + 1)
        rows, columns = self.size(width)
        above = sorted(address.columns for address in self.rule.reads if address.operand == OUTPUT and address.rows)
        operands = tuple(replace(operand, by_rows=self.rule.stacked) for operand in operands)
        return Layout(places[0], operands, symbols, rows * columns + 1, row_length=columns, above=tuple(above))

    def source(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Source tokens of shape (samples, source_length); a single digit fills every place given to it."""
        tokens = np.empty((len(operands[0]), layout.source_length), np.int64)
        for column, symbol in layout.symbols:
            tokens[:, column] = self.token(symbol)
        for digits, operand in zip(operands, layout.operands, strict=True):
            tokens[:, operand.columns] = digits
        return tokens

    def operands(self, source: np.ndarray, layout: Layout) -> list[Digits]:
        """The operands in source tokens; a factor that aligned problems repeat at every place is returned once."""
        parts = zip(layout.operands, self.rule.inputs, strict=True)
        return [source[:, operand.columns][:, : input_.digits or None] for operand, input_ in parts]

    # ---- answers

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """The output tokens before the end, shape (samples, outputs): digits, place 0 first, or a table row by row."""
        if self.table:
            return self.first_cell + self.cells(operands).reshape(len(operands[0]), -1)
        output = self.rule.whole.answer(operands) if self.rule.whole else self.rule.answer_in_a_row(operands)
        return output[:, -1:] if self.rule.final_only else output

    def cells(self, operands: Sequence[Digits]) -> np.ndarray:
        """The cells of a table (samples, rows, columns), numbered from 0."""
        return self.rule.cells_of(operands, *self.size(self.width_of(operands)))

    def target(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Target tokens `$ y_1 ... y_n &` of shape (samples, target_length + 1)."""
        if layout.answer == "units last":  # with the places that the answer is longer
            answer = self.answer(self.widen(operands, layout.width + self.grows))[:, ::-1]
        else:
            answer = self.answer(operands)
        return np.pad(answer, [(0, 0), (1, 1)], constant_values=[(0, 0), (self.token(SOS), self.token(EOS))])

    # ---- typed problems

    @property
    def example(self) -> str:
        """The example, in what the task's base has."""
        return notation.example(self.rule)

    @property
    def takes(self) -> str:
        """What a problem is written in."""
        return self.rule.takes or f"digits {self.digits[0]}-{self.digits[-1]}"

    def read(self, text: str) -> list[Digits]:
        """The operands of a typed problem, (1, places) each, with the zeros that are typed; InputError for others."""
        if not isinstance(text, str):
            raise InputError(f"{text!r} is no problem: give text, as in {self.example!r}")
        try:
            return notation.read_problem(self.rule, text.strip())
        except InputError as reason:
            takes = f"{self.title} takes a problem in {self.takes}, as in {self.example}"
            raise InputError(f"cannot read {text.strip()!r}: {reason}; {takes}") from None

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        """The first problem as a person types it; with `zeros` in front as far as a result leaves room for them."""
        return notation.typed(self.rule, operands, self.grows if zeros else None)

    def write(self, tokens: Sequence[int], layout: Layout | None = None) -> str:
        """The answer in output tokens, as a person writes it, `?` for what is no digit; `layout` is the problem's."""
        if self.table:
            columns = (layout.row_length if layout else None) or len(tokens) or 1
            return notation.table_answer(self.rule, self.read_table(tokens, columns))
        symbols = [*self.text(tokens), EOS]
        digits = [symbol if symbol in self.digits else "?" for symbol in symbols[: symbols.index(EOS)]] or ["?"]
        return self.said(digits[::-1] if layout is not None and layout.answer == "units last" else digits)

    def said(self, digits: Sequence[str]) -> str:
        """The answer as a person writes it, from the output's digits, units first."""
        return notation.answer_text(self.rule, digits) if self.rule.said == "number" else digits[-1]

    def read_table(self, tokens: Sequence[int], columns: int) -> np.ndarray:
        """The cells that output tokens stand for, (rows, columns): -1 for a token that is no cell."""
        if columns == 1 and tokens[-1:] == [self.token(EOS)]:  # where it would be a row of its own
            tokens = tokens[:-1]
        cells = np.array(tokens[: len(tokens) // columns * columns], np.int64).reshape(-1, columns) - self.first_cell
        return np.where((cells < 0) | (cells >= self.rule.cell_count), -1, cells)

    def written_table(self, tokens: Sequence[int], layout: Layout, operands: Sequence[Digits]) -> str:
        """The first operand, and below it the rows that output tokens make, each behind what stands along it."""
        if not self.table or self.rule.stacked or layout.row_length is None:
            raise InputError(f"{self.title} shows no table: take N x N, or ask for the answer alone")
        names, table = self.rule.writes or self.rule.alphabet, self.read_table(tokens, layout.row_length)
        rows = [[names[cell] if cell >= 0 else "?" for cell in row] for row in table]
        first, second = (self.text(digits[0].tolist()) for digits in (operands[0], operands[-1]))
        return notation.table_text(self.rule, first, second, rows)

    def right_answer(self, text: str) -> str:
        """The right answer to a typed problem, computed digit by digit from the task's definition."""
        operands = self.read(text)
        width = self.width_of(operands)
        return self.write(self.answer(self.widen(operands, width))[0].tolist(), self.layout(width))


def single_width(width: Width) -> int:
    """The columns of problems that have one width."""
    if isinstance(width, tuple):
        raise InputError(f"a size of {width} is not possible: all operands of this task have one length")
    return width


def width_pair(width: Width) -> tuple[int, int]:
    """The sizes of problems that have two; one number stands for both."""
    return width if isinstance(width, tuple) else (width, width)
