"""A rule: what an output token reads, and which token it then is. A task is a rule, and all else follows from it.

Outputs stand in one row and are written from the units up, or in a table, which is written row by row. In one row a
token reads what stands at its place in every operand, and hands a *state* on to the next place: a carry, or a running
value. In a table it reads tokens of the operands and cells that are written already, and hands nothing on, since what
is needed later is written. How the right answer, typed problems, lines by hand and a certificate's contexts follow is
in `tasks`, `notation`, `bias.lines` and `certificates`; none of these knows what a rule computes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.layouts import SYMBOLS

MOST_TOKENS = 2**15  # which a certificate keeps as numbers of 16 bits
EDGE = -1  # a step gets it where no token stands, and returns it for inputs that cannot occur together
OUTPUT = -1  # the number of the operand that a cell's address has
Along = Literal["place", "row", "cell", "all"]
Notation = Literal["number", "items", "symbols"]
Said = Literal["number", "last"]
Step = Callable[..., tuple[Any, Any]]  # (state, *what is read) to (token, state), over arrays of samples


@dataclass(frozen=True)
class Input:
    """An operand of a rule: along what it runs, and which tokens can stand in it. (`layouts.Operand` has its columns.)

    Along "place": a token for each place of the output's row. "row": one for each row of a table. "cell": one for each
    cell, so that rows of the operand are as long as the table's. "all": a number of `digits` digits for all outputs.
    """

    along: Along
    tokens: int | tuple[int, ...]  # those below a number, or these, what stands for zero first
    digits: int = 0
    mark: int | None = None  # along "cell": the token in the last column, where nothing can be read
    from_left: bool = False  # whether its place 0 is what is typed first; else it is what is typed last, as the units

    @cached_property
    def alphabet(self) -> np.ndarray:
        return np.arange(self.tokens) if isinstance(self.tokens, int) else np.array(self.tokens)


class Address(NamedTuple):
    """Where a token stands that is read, as seen from the one that is written."""

    operand: int  # its number, from 0 on; OUTPUT for a cell of the table
    rows: int = 0  # further down
    columns: int = 0  # further on, in the order in which a row is written


def operand(number: int, back: int = 0) -> Address:
    """The address of an operand's token: at this place, row or cell, or so many of them `back`."""
    return Address(number, -back, -back)


def cell(rows: int, columns: int) -> Address:
    """The address of a cell so many rows down and columns on: it must be written before, so the row is 0 or -1."""
    return Address(OUTPUT, rows, columns)


def last_row(table: np.ndarray) -> np.ndarray:
    return table[:, -1]


@dataclass(frozen=True)
class Whole:
    """A task whose answers do not follow place by place: they are computed as a whole, and have no certificate."""

    answer: Callable[[Sequence[Digits]], Digits]  # the output tokens (samples, outputs) of operands
    output_places: Callable[[int], int] = int  # of operands that have so many
    item_places: Callable[[int], int] = int  # tokens of a list with so many items
    draw: Callable[[int, int, np.random.Generator], Digits] | None = None  # so many lists of so many tokens
    fits: Callable[[Digits], bool] = lambda operand: True  # whether a typed list is a problem


@dataclass(frozen=True, eq=False)
class Rule:
    """What a task computes, and in what words. InputError for what does not go together.

    `step` is given the state and what is read, in the order of `reads`, each an array with a number for every sample:
    tokens of an operand, cells numbered from 0, EDGE where nothing stands, and the number that an operand along "all"
    holds. It returns the token (a number in `alphabet`, or in `writes` where that is given) and the next state, which
    is one whole number, too. So it has `np.where` in place of `if`.

    Numbers have digits from 0 on, and zeros in front change nothing: after the last digit that is not 0 the rule must
    come to write zeros alone. Lists and symbols have as many outputs as places. In a table the rule returns EDGE for
    what cannot be read together, since the table is wide enough. A certificate leaves that out: it is about problems in
    whose tables every cell has a token. Others are refused.
    """

    name: str
    step: Step
    inputs: tuple[Input, ...]
    alphabet: Sequence[str] = DIGITS[:10]  # what operands are written in; for numbers, the digits of their base
    reads: tuple[Address, ...] = ()  # of a table; in one row every operand's token at this place is read
    start: int = 0  # the state before the first place
    writes: Sequence[str] = ()  # the names of a table's cells, where they are no tokens of the alphabet
    more_columns: int | Callable[[int], int] = 0  # of a table than of the first operand; of a stacked one, by its rows
    slanted: bool = False  # whether each row after the first adds a column
    grows: int | None = None  # places that a result can need more than its operands; computed where it can be
    final_only: bool = False  # whether the last token alone is written
    whole: Whole | None = None  # instead of `step` and `reads`
    # ---- how people write it
    title: str = ""
    example: str = ""  # a problem; the digits of one in base ten are lowered to what the base has
    operator: str | None = None  # between operands, by default an asterisk, or in front of a single one
    words: tuple[str, ...] = ()  # tokens beside the alphabet and the usual signs
    notation: Notation = "number"  # zeros in front mean nothing; or items with spaces between; or symbols side by side
    typed: dict[str, str] = field(default_factory=dict)  # other ways to type an item, which are how it is shown
    takes: str = ""  # what problems are written in
    said: Said = "number"  # what of an output in one row is the answer
    result: Callable[[np.ndarray], np.ndarray] = last_row  # of tables (samples, rows, columns): the answer's symbols
    unit: str = "digits"  # what the length of a problem counts
    counted_in: int = 0  # the base in which lengths of numbers are counted, where that is another
    larger_first: bool = False  # whether the first of two numbers is never smaller
    lengths: str = "operands of any lengths"  # that a certificate of tables covers

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple) or not all(isinstance(input_, Input) for input_ in self.inputs):
            raise InputError(f"the inputs of {self.name} are a tuple of Input, not {self.inputs!r}")
        object.__setattr__(self, "title", self.title or self.name)
        self.check_tokens()
        kinds, places = [input_.along for input_ in self.inputs], ["place"] * self.long_operands
        if self.table:
            possible = kinds == ["cell"] or ({*kinds} == {"place", "row"} and kinds[0] == "place")
            cells = [(address.rows, address.columns) for address in self.reads if address.operand == OUTPUT]
            written = all(rows >= -1 and (rows, columns) < (0, 0) for rows, columns in cells)
            possible = possible and bool(self.reads) and written
        else:
            possible = bool(places) and kinds in (places, [*places, "all"]) and not self.reads
        possible = possible and (isinstance(self.more_columns, int) or self.stacked)  # the proof of tables needs it
        if not possible or any(address.operand >= len(kinds) for address in self.reads):
            raise InputError(
                f"{self.name} is no rule: in one row it has operands along places, then one for all at most, and no "
                "addresses; in a table operands along places and rows, or one along cells, and addresses of operands, "
                "of the row above and of cells before, and its columns are so many more than the first operand's"
            )
        if self.whole is None:
            self.check_step()

    def check_tokens(self) -> None:
        """InputError for tokens that cannot be told apart, or that problems of the rule's notation cannot have."""
        for name, value, possible in (("notation", self.notation, Notation), ("said", self.said, Said)):
            if value not in get_args(possible):
                raise InputError(
                    f"{value!r} is not possible as {name} of {self.name}: choose {' or '.join(get_args(possible))}"
                )
        tokens = [*SYMBOLS, *self.alphabet, *self.words, *self.writes]
        if len(tokens) > len({*tokens}) or self.sign in (*self.alphabet, *self.writes):
            raise InputError(
                f"the tokens of {self.name} must differ from each other, from its operator and from {' '.join(SYMBOLS)}"
            )
        numbers = self.notation == "number"
        if self.base < 2 or (numbers and [*self.alphabet] != [*DIGITS[: self.base]]):
            raise InputError(
                f"the alphabet of {self.name} has two symbols or more, of numbers those from 0 on in {DIGITS}: choose "
                '"items" or "symbols" as its notation for others'
            )
        if any(len(symbol.split()) != 1 for symbol in (*self.alphabet, *self.words)):
            raise InputError(f"the symbols of {self.name} have no spaces, which stand between them")
        if len(tokens) > MOST_TOKENS:
            raise InputError(f"{self.name} has {len(tokens):,} tokens, and {MOST_TOKENS:,} at most are possible")
        usable = {*range(self.base), *range(self.base + len(SYMBOLS), len(tokens) + 1)}  # the others are symbols
        for input_ in self.inputs:
            if input_.along not in get_args(Along):
                directions = ", ".join(get_args(Along))
                raise InputError(f"an operand of {self.name} runs along one of {directions}, not {input_.along!r}")
            if not isinstance(input_.tokens, int | tuple) or not len(input_.alphabet):
                raise InputError(f"an operand of {self.name} has tokens: give a number from 1 on, or a tuple of tokens")
            if (input_.along == "all") != (input_.digits > 0):
                raise InputError(
                    f'an operand of {self.name} has tokens, and digits if it runs along "all", and only then'
                )
            if not usable.issuperset(input_.alphabet.tolist()):
                raise InputError(f"an operand of {self.name} has tokens that are not in its alphabet of {self.base}")
            if numbers and (input_.from_left or (input_.along != "cell" and len(input_.alphabet) < self.base)):
                raise InputError(
                    f"the numbers of {self.name} have all its digits and are read from the right: give "
                    'notation="items" or notation="symbols" for other operands'
                )

    def check_step(self) -> None:
        """InputError for a step that takes no arrays, tried on two samples, or does not return two whole numbers."""
        alphabets = [input_.alphabet for input_ in self.inputs]
        if self.table:
            alphabets.append(np.arange(self.cell_count))  # at the number OUTPUT
            alphabets = [alphabets[address.operand] for address in self.reads]
        try:
            token, state = self.step(self.start, *(alphabet[[0, -1]] for alphabet in alphabets))
            for numbers in (token, state):
                np.broadcast_to(np.asarray(numbers).astype(np.int64, casting="same_kind"), 2)
        except (ArithmeticError, IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"the step of {self.name} has to take a state and arrays, and to return a token and the next state, "
                f"whole numbers both, or arrays of such: {error}"
            ) from None

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Token `i` of a model: the alphabet, then + * $ & @, then what else the problems hold."""
        sign = (self.sign,) if self.sign and self.sign not in (*SYMBOLS, *self.words) else ()
        return (*self.alphabet, *SYMBOLS, *sign, *self.words, *self.writes)

    @property
    def sign(self) -> str:
        """What stands between operands, or in front of a single one: nothing, unless it is given."""
        return ("*" if len(self.inputs) > 1 else "") if self.operator is None else self.operator

    @property
    def table(self) -> bool:
        """Whether the output is a table."""
        return any(input_.along in ("row", "cell") for input_ in self.inputs)

    @property
    def stacked(self) -> bool:
        """Whether the operand is written row by row as the table is."""
        return self.inputs[0].along == "cell"

    @property
    def base(self) -> int:
        return len(self.alphabet)

    @property
    def long_operands(self) -> int:
        """How many operands run along places."""
        return sum(input_.along == "place" for input_ in self.inputs)

    @property
    def short_digits(self) -> int:
        """Digits of the operand for all outputs, if there is one."""
        return self.inputs[-1].digits

    @property
    def cell_count(self) -> int:
        """How many different tokens are written in a table."""
        return len(self.writes) or self.base

    def wider(self, rows: int) -> int:
        """Columns of a table with so many rows beyond the first operand's."""
        columns = self.more_columns if isinstance(self.more_columns, int) else self.more_columns(rows)
        return columns + self.slanted * (rows - 1)

    def answer_in_a_row(self, operands: Sequence[Digits]) -> Digits:
        """The output of one row (samples, places), all samples at once."""
        factor = [digits @ self.base ** np.arange(self.short_digits) for digits in operands[self.long_operands :]]
        state, output = self.start, []
        for place in range(operands[0].shape[1]):
            token, state = self.step(state, *(digits[:, place] for digits in operands[: self.long_operands]), *factor)
            output.append(np.broadcast_to(token, len(operands[0])))  # a state alone is one number
        return np.stack(output, axis=1)

    def cells_of(self, operands: Sequence[Digits], rows: int, columns: int) -> np.ndarray:
        """The cells (samples, rows, columns) of a table."""
        samples = len(operands[0])
        cells, nothing = np.empty((rows * columns, samples), np.int64), np.full(samples, EDGE)
        tokens = [*(np.ascontiguousarray(digits.T) for digits in operands), cells]  # cells at the number OUTPUT
        for number in range(rows * columns):
            written = WrittenCell(*divmod(number, columns), rows, columns)
            reads = (written.reads(self, address) for address in self.reads)
            values = (nothing if read is None else tokens[read.operand][read.place] for read in reads)
            cells[number] = self.step(self.start, *values)[0]
        if (cells < 0).any():
            raise InputError(f"{self.name} writes no token in a cell where it says that nothing can stand")
        if (cells >= self.cell_count).any():
            raise InputError(f"{self.name} writes cell {cells.max()}, but it has cells 0 to {self.cell_count - 1}")
        return np.moveaxis(cells.reshape(rows, columns, samples), -1, 0)


class ReadToken(NamedTuple):
    """Where a token stands: in an operand, at a place, or in the table (OUTPUT), as a cell counted row by row."""

    operand: int
    place: int


class WrittenCell(NamedTuple):
    """Where a token is written in a table; the end stands in the row after the last."""

    row: int
    column: int
    rows: int
    columns: int

    @property
    def end(self) -> bool:
        return self.row == self.rows

    def reads(self, rule: Rule, address: Address) -> ReadToken | None:
        """What stands at an address; None where nothing can be read."""
        row, column = self.row + address.rows, self.column + address.columns
        if address.operand == OUTPUT:
            inside = 0 <= row < self.rows and 0 <= column < self.columns
            return ReadToken(OUTPUT, row * self.columns + column) if inside else None
        input_ = rule.inputs[address.operand]
        if input_.along == "cell":
            place, places = self.row * self.columns + column, self.rows * self.columns
        elif input_.along == "row":
            place, places = row, self.rows
        else:
            place, places = column, self.columns - rule.wider(self.rows)
        marked = input_.mark is not None and place % self.columns == self.columns - 1
        return ReadToken(address.operand, place) if 0 <= place < places and not marked else None
