"""A task: a rule with the tokens, layouts and widths of its problems, and how people write them.

The vocabulary and the tasks of the paper are those of v4 section 2, v2/3 section 3.3 and v1 appendix C.
`Task("addition", 4)` has the rule that is registered by that name; `Task.of(rule)` has a reader's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import get_args

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems import notation
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import EOS, SOS, SYMBOLS, Arrangement, Layout, Operand, binary_aligned, in_a_row
from abc_nb.problems.rules import OUTPUT, Rule
from abc_nb.problems.widths import LONGEST, NUMBERS, PADDED, TRAINED, Regime, Width, Widths, pair, single

__all__ = ["LONGEST", "NUMBERS", "PADDED", "REGISTRY", "TRAINED", "Regime", "Task", "Width", "made", "pair", "single"]


@dataclass(frozen=True)
class Task(Widths):
    """A rule as problems. Raises InputError for an unknown name, or a base that the task cannot have."""

    name: str
    base: int = 0  # 0: the task's usual one, which is 2 for Parity and 10 for most others
    given: Rule | None = field(default=None, repr=False, metadata={"stored": False})  # where it is not registered

    def __post_init__(self) -> None:
        if self.given is not None:
            return
        family = REGISTRY.get(self.name) if isinstance(self.name, str) else None
        if family is None:
            raise InputError(f"unknown task {self.name!r}: choose one of {', '.join(REGISTRY)}")
        bases = family.bases
        base = self.base or (10 if 10 in bases else bases[0])
        if base not in bases:
            possible, title = " to ".join(map(str, sorted({bases[0], bases[-1]}))), made(self.name, bases[0]).title
            raise InputError(f"base {base} is not possible: {title} is written in base {possible}")
        object.__setattr__(self, "base", base)

    @property
    def rule(self) -> Rule:
        return self.given or made(self.name, self.base)

    @classmethod
    def of(cls, rule: Rule) -> "Task":
        """A reader's task, which need not be registered; InputError for the name of one that has other bases."""
        if rule.name in REGISTRY and rule.base not in REGISTRY[rule.name].bases:
            raise InputError(f"{rule.name} is the name of a task of this package: give the rule another one")
        return cls(rule.name, rule.base, rule)

    def __reduce__(self) -> "tuple[type[Task], tuple[object, ...]]":
        return type(self), (self.name, self.base, self.given)

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

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Token `i` of the model: the alphabet, then + * $ & @, then what else the task's problems hold."""
        rule = self.rule
        sign = (rule.sign,) if rule.sign and rule.sign not in (*SYMBOLS, *rule.words) else ()
        return (*rule.alphabet, *SYMBOLS, *sign, *rule.words, *rule.writes)

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
            return binary_aligned(single(width), self.rule.sign)
        layout = self.natural(width)
        if arrangement == "units-first":
            return replace(layout, operands=tuple(map(counted_from_the_left, layout.operands)))
        if arrangement == "as-written":
            if self.table:
                raise InputError("a table is written row by row, units first: choose another arrangement")
            return replace(layout, target_length=layout.target_length + self.grows, answer="units last")
        return layout

    def natural(self, width: Width) -> Layout:
        """Operands one after the other."""
        places, sign = self.operand_places(width), [self.rule.sign] if self.rule.sign else []
        between = [[SOS], *[sign] * (len(places) - 1), [EOS]] if len(places) > 1 else [[SOS, *sign], [EOS]]
        operands, symbols = in_a_row(between, places)
        pairs = zip(operands, self.rule.inputs, strict=True)
        operands = tuple(counted_from_the_left(one) if given.from_left else one for one, given in pairs)
        if not self.table:
            return Layout(places[0], operands, symbols, 2 if self.rule.final_only else places[0] + 1)
        rows, columns = self.size(width)
        above = sorted(at.columns for at in self.rule.reads if at.operand == OUTPUT and at.rows)
        operands = tuple(replace(one, by_rows=self.rule.stacked) for one in operands)
        return Layout(places[0], operands, symbols, rows * columns + 1, row_length=columns, above=tuple(above))

    def source(self, operands: Sequence[Digits], layout: Layout) -> np.ndarray:
        """Source tokens of shape (samples, source_length); a single digit fills every place given to it."""
        tokens = np.empty((len(operands[0]), layout.source_length), np.int64)
        for column, symbol in layout.symbols:
            tokens[:, column] = self.token(symbol)
        for digits, one in zip(operands, layout.operands, strict=True):
            tokens[:, one.columns] = digits
        return tokens

    def operands(self, source: np.ndarray, layout: Layout) -> list[Digits]:
        """The operands that source tokens hold; of a digit that fills every place of an aligned problem, the digit."""
        pairs = zip(layout.operands, self.rule.inputs, strict=True)
        return [source[:, one.columns][:, : given.digits or None] for one, given in pairs]

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

    def read(self, text: str, zeros: bool = False) -> list[Digits]:
        """The operands of a typed problem, (1, places) each, with zeros in front or without; InputError for others."""
        try:
            operands = notation.read_problem(self.rule, self.vocabulary, text.strip())
        except InputError as reason:
            takes = f"{self.title} takes a problem in {self.takes}, as in {self.example}"
            raise InputError(f"cannot read {text.strip()!r}: {reason}; {takes}") from None
        if zeros or self.rule.notation != "number" or self.rule.stacked:
            return operands
        return [digits[:, : np.flatnonzero(digits[0]).max(initial=0) + 1] for digits in operands]

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        """The first problem as a person types it; with `zeros` in front as far as a result leaves room for them."""
        size = pair(self.width_of(operands)) if self.rule.stacked else (0, 0)
        return notation.typed(self.rule, self.vocabulary, operands, size, self.grows if zeros else None)

    def write(self, tokens: Sequence[int], layout: Layout | None = None) -> str:
        """The answer in output tokens, as a person writes it, `?` for what is no digit; `layout` is the problem's."""
        if self.table:
            cells = self.read_table(tokens, (layout.row_length if layout else None) or len(tokens) or 1)
            return notation.of_table(self.rule, cells)
        symbols = self.text(tokens)
        output = symbols[: symbols.index(EOS)] if EOS in symbols else symbols
        digits = [symbol if symbol in self.digits else "?" for symbol in output] or ["?"]
        return self.said(digits[::-1] if layout is not None and layout.answer == "units last" else digits)

    def said(self, digits: Sequence[str]) -> str:
        """The answer as a person writes it, from the output's digits, units first."""
        return notation.joined(self.rule, digits) if self.rule.said == "number" else digits[-1]

    def read_table(self, tokens: Sequence[int], row: int) -> np.ndarray:
        """The cells that output tokens stand for, (rows, columns): -1 for a token that is no cell."""
        if row == 1 and tokens[-1:] == [self.token(EOS)]:  # where it would be a row of its own
            tokens = tokens[:-1]
        cells = np.array(tokens[: len(tokens) // row * row], np.int64).reshape(-1, row) - self.first_cell
        return np.where((cells < 0) | (cells >= self.rule.cell_count), -1, cells)

    def written_table(self, tokens: Sequence[int], layout: Layout, operands: Sequence[Digits]) -> str:
        """The first operand, and below it the rows that output tokens make, each behind what stands along it."""
        if not self.table or self.rule.stacked or layout.row_length is None:
            raise InputError(f"{self.title} shows no table: take N x N, or ask for the answer alone")
        names = self.rule.writes or self.rule.alphabet
        rows = [[names[at] if at >= 0 else "?" for at in row] for row in self.read_table(tokens, layout.row_length)]
        first, second = (self.text(digits[0].tolist()) for digits in (operands[0], operands[-1]))
        return notation.side_by_side(self.rule, first, second, rows)

    def right_answer(self, text: str) -> str:
        """The right answer to a typed problem, computed digit by digit from the task's definition."""
        operands = self.read(text)
        width = self.width_of(operands)
        return self.write(self.answer(self.widen(operands, width))[0].tolist(), self.layout(width))


def counted_from_the_left(operand: Operand) -> Operand:
    """The same columns, counted from the other end."""
    return Operand(int(operand.columns[-1]), -operand.stride, operand.places)


@lru_cache(maxsize=256)
def made(name: str, base: int) -> Rule:
    """The rule of a registered task, the same object whenever it is asked for."""
    return REGISTRY[name].make(base)
