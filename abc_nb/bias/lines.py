"""Lines: attention patterns that a person can read and that hold at any length (v4 appendix D).

A line runs over a part of the keys: an operand, a symbol or the output. It is anchored there, in an operand at
the digit of the first output's place, so the same line exists in every layout. At the step that
writes row `r`, column `c` of the output it opens the key

    diagonal       origin + stride * c + offset
    antidiagonal   origin - stride * c + offset
    vertical       origin + offset
    by row         origin - stride * r + offset, or + stride * r in an operand whose first place is its leftmost
    above          what the diagonal opens at the same column of row `r - 1`

and adds its value to the logit there; where lines meet, the largest value counts. An output that is no table is
one row, and has the first three only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys, causal, key_count, query_count
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import SOS, Layout, Operand

Direction = Literal["diagonal", "antidiagonal", "vertical", "by row", "above"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
# Names of anchors: all keys, as in the paper; those of self-attention and of source attention.
WHOLE, OUTPUT, PROBLEM = "whole", "output", "problem"


@dataclass(frozen=True)
class Line:
    """One line of one head; `value` is added to the logits on it, in units of what was calibrated."""

    attention: Attention
    layer: int
    head: int
    direction: Direction
    span: str  # the name of an `Anchor`; records have it under this word
    offset: int  # columns to the right of the aligned key
    value: float

    def __post_init__(self) -> None:
        check_fields(self, layer=0, head=0)


@dataclass(frozen=True)
class Anchor:
    """The columns `first` to `last`, which lines can follow. In step 0 a line of offset 0 is at column `origin`."""

    name: str
    first: int
    last: int
    origin: int
    stride: int = 1
    along: tuple[Direction, ...] = ("vertical",)  # directions of lines that exist at every length
    row_length: int | None = None  # columns of the table that queries write, if they write one
    by_rows: bool = False  # whether it has a row of keys for each row of that table, as long as that
    from_left: bool = False  # whether its first place is its leftmost

    @property
    def directions(self) -> tuple[Direction, ...]:
        return DIRECTIONS if self.row_length else DIRECTIONS[:3]

    def cells(self, direction: Direction, offset: int | Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """The line's key at each step (steps, ...), and where there is one; elsewhere it lies outside the run.

        Of a table's rows a line sees the cells of one, and on its own row also the token before them.
        """
        if direction not in self.directions:
            raise InputError(f"a line {direction!r} needs an output that is a table, as that of N x N")
        step = torch.arange(steps) if isinstance(offset, int) else torch.arange(steps)[:, None]
        row, column = torch.zeros_like(step), step
        if self.row_length is not None and not self.by_rows:
            row, column = step // self.row_length, step % self.row_length
        # Over the whole matrix antidiagonals start in the top right corner (Algorithm 1, footnote 6).
        origin = self.last if (self.name, direction) == (WHOLE, "antidiagonal") else self.origin
        by_row = row if self.from_left else -row
        moved = {"antidiagonal": -column, "vertical": 0 * column, "by row": by_row}.get(direction, column)
        key = origin + self.stride * moved + offset
        if self.name != OUTPUT or self.row_length is None:
            return key, (key >= self.first) & (key <= self.last)
        rows_back = int(direction == "above")
        # A key holds the token before the cell that is written there.
        inside = (key >= rows_back) & (key <= self.row_length) & (row >= rows_back)
        return key + self.row_length * (row - rows_back), inside


def anchors(layout: Layout, attention: Attention) -> list[Anchor]:
    """What lines can be anchored at: operands with the token on either side, symbols, the output."""
    keys = key_count(layout, attention)
    if attention != "cross":
        name, row = (OUTPUT, layout.row_length) if attention == "self" else (PROBLEM, None)
        along: tuple[Direction, ...] = ("diagonal", "above") if row else ("diagonal",)
        return [Anchor(SOS, 0, 0, 0), Anchor(name, 0, keys - 1, 0, along=along, row_length=row)]
    symbols = [symbol for _, symbol in layout.symbols]  # of equal ones the last has the plain name
    names = [symbol + f" {number}" * (symbol in symbols[number:]) for number, symbol in enumerate(symbols, 1)]
    at_symbols = [Anchor(name, column, column, column) for name, (column, _) in zip(names, layout.symbols, strict=True)]
    return at_symbols + [operand_anchor(layout, number, keys) for number in range(1, len(layout.operands) + 1)]


def operand_anchor(layout: Layout, number: int, keys: int) -> Anchor:
    """The anchor of an operand, numbered from 1: its digits and, unless it is short, the token on either side."""
    operand = layout.operands[number - 1]
    name, last, stride, short = f"operand {number}", operand.last, operand.stride, layout.is_short(operand)
    places = operand.places if layout.filled is None or short else min(operand.places, layout.filled)
    beside = 0 if short or layout.unpadded else 1  # lines see nothing beside an unpadded number
    ends = sorted((last - stride * (places - 1 + beside), last + stride * beside))
    run = name, max(ends[0], 0), min(ends[1], keys - 1)
    if short:
        return Anchor(*run, last, abs(stride), row_length=layout.row_length)
    by_row: tuple[Direction, ...] = ("by row",) if layout.row_length and not operand.by_rows else ()
    first_place = 0 if layout.answer == "units first" else layout.target_length - 2
    along = answer_direction(layout, operand), *by_row
    return Anchor(*run, last - stride * first_place, abs(stride), along, layout.row_length, operand.by_rows, stride < 0)


def answer_direction(layout: Layout, operand: Operand) -> Direction:
    """The direction in which outputs follow the digits of their own places."""
    return "antidiagonal" if (operand.stride > 0) == (layout.answer == "units first") else "diagonal"


def whole_matrix(keys: int) -> Anchor:
    """All keys as one anchor, as in the paper."""
    return Anchor(WHOLE, 0, keys - 1, 0)


@dataclass(frozen=True)
class Lines(Bias):
    """Attention bias from lines; a head without any is transparent, or closed (with a floor, that is the same)."""

    heads: int
    lines: tuple[Line, ...]
    floor: float | None = None  # bias off the lines; None: minus infinity
    empty: Literal["transparent", "closed"] = "transparent"

    def __post_init__(self) -> None:
        check_fields(self, heads=1)
        if not all(0 <= line.head < self.heads for line in self.lines):
            raise InputError(f"a line belongs to a head that is not there: heads are numbered 0 to {self.heads - 1}")

    @staticmethod
    def one_key_per_head(layout: Layout, heads: int, layers: int) -> "Lines":
        """Made by hand, for a decoder-only model, where all keys share one softmax: a head looks at one key.

        (Keys are dealt in turn, so with fewer heads than keys some see several.)

        The window has the digits of this place and of the place below it, and the last two tokens of the answer; for
        a cell of a table, the digits of its column and row and the cells above it that it needs. Tokens of the problem
        look at themselves.
        """
        keys: list[LineKey] = [*problem_keys(layout, 2), *LAST_TOKENS]
        if layout.row_length:  # the token before the cell is the query's own, which needs no line
            keys = [("cross", answer_direction(layout, layout.operands[0]), "operand 1", 0)]
            if not layout.operands[0].by_rows:  # one that is written row by row says where both columns and rows end
                keys.append(("cross", "by row", f"operand {len(layout.operands)}", 0))
            keys += [("self", "above", OUTPUT, columns + 1) for columns in layout.above]
        return lines_of_keys(keys, PROBLEM_ITSELF, heads, layers)

    @staticmethod
    def one_key_of_problem(layout: Layout, heads: int, layers: int) -> "Lines":
        """The same without the answer: the token written last is the query's own, which is enough for one layer."""
        return lines_of_keys(problem_keys(layout, 2), PROBLEM_ITSELF, heads, layers)

    def of(self, attention: Attention, layer: int) -> tuple[Line, ...]:
        """The lines of one attention; none for one that was not calibrated."""
        return tuple(line for line in self.lines if (line.attention, line.layer) == (attention, layer))

    def alone(self, attention: Attention) -> "Lines":
        """Its lines in one attention, where every head has some; in the others all keys are open."""
        lines = tuple(line for line in self.lines if line.attention == attention)
        return replace(self, lines=lines, empty="transparent")

    def open_keys(self, layout: Layout, attention: Attention, layer: int) -> OpenKeys | None:
        """The keys on any head's line, with each head's own value; None if a head sees all keys."""
        lines = self.of(attention, layer)
        transparent = self.empty == "transparent" and len({line.head for line in lines}) < self.heads
        if transparent or self.floor is not None:
            return None
        return open_keys_of_lines(lines, layout, attention, self.heads).distinct()

    def covers(self, layout: Layout, attention: Attention, layer: int) -> Tensor:
        """Which cells lie on lines, of a transparent head all: booleans (head, query, key)."""
        return replace(self, floor=None).opened(layout, attention, layer)

    def dense(self, layout: Layout, attention: Attention, layer: int, heads: int = 0) -> Tensor:
        """The bias as a (head, query, key) matrix; its heads are its own, whatever `heads` says."""
        lines, keys = self.of(attention, layer), key_count(layout, attention)
        matrix = open_keys_of_lines(lines, layout, attention, self.heads).dense(keys)
        matrix = matrix if self.floor is None else matrix.clamp(min=self.floor)
        if self.empty == "transparent":
            heads_with_lines = {line.head for line in lines}
            matrix[[head for head in range(self.heads) if head not in heads_with_lines]] = 0.0
        return matrix if attention == "cross" else matrix + causal(query_count(layout, attention))


LineKey = tuple[Attention, Direction, str, int]  # what a line says of its keys
PROBLEM_ITSELF: tuple[LineKey, ...] = (("source", "diagonal", PROBLEM, 0),)  # a token of the problem sees itself
LAST_TOKENS: tuple[LineKey, ...] = (("self", "diagonal", OUTPUT, 0), ("self", "diagonal", OUTPUT, -1))


def problem_keys(layout: Layout, places: int) -> list[LineKey]:
    """Keys of cross-attention: of each long operand this place and those below it, of a short one every digit."""
    keys: list[LineKey] = []
    for number, operand in enumerate(layout.operands, 1):
        if layout.is_short(operand):
            keys += [("cross", "vertical", f"operand {number}", -place) for place in range(operand.places)]
        else:
            side, direction = 1 if operand.stride > 0 else -1, answer_direction(layout, operand)
            keys += [("cross", direction, f"operand {number}", side * place) for place in range(places)]
    return keys


def lines_of_keys(dealt_keys: Sequence[LineKey], common_keys: Sequence[LineKey], heads: int, layers: int) -> Lines:
    """Lines of the value zero, the same in all layers: heads get the dealt keys in turn, and each all common ones."""
    count = max(heads, len(dealt_keys)) if dealt_keys else 0
    keys = [(number % heads, dealt_keys[number % len(dealt_keys)]) for number in range(count)]
    keys += [(head, key) for head in range(heads) for key in common_keys]
    lines = [
        Line(attention, layer, head, direction, span, offset, 0.0)
        for layer in range(layers)
        for head, (attention, direction, span, offset) in keys
    ]
    return Lines(heads, tuple(lines), empty="closed")


def cells_of(line: Line, layout: Layout) -> tuple[Tensor, Tensor]:
    """Rows and columns of a line's cells in the matrix (query, key)."""
    keys = open_keys_of_lines([line], layout, line.attention, line.head + 1)
    inside = keys.value[line.head, :, 0] > CLOSED
    return inside.nonzero()[:, 0], keys.index[inside, 0]


def open_keys_of_lines(lines: Iterable[Line], layout: Layout, attention: Attention, heads: int) -> OpenKeys:
    """Open keys of lines in a layout, a slot for each distinct line, in time and memory linear in its length."""
    steps, keys = query_count(layout, attention), key_count(layout, attention)
    by_name = {anchor.name: anchor for anchor in (*anchors(layout, attention), whole_matrix(keys))}
    by_slot: dict[tuple[Direction, str, int], list[Line]] = {}
    for line in lines:
        by_slot.setdefault((line.direction, line.span, line.offset), []).append(line)
    index = torch.zeros(steps, max(len(by_slot), 1), dtype=torch.long)
    value = torch.full((heads, *index.shape), CLOSED)
    for slot, ((direction, name, offset), equal_lines) in enumerate(by_slot.items()):
        if name not in by_name:
            raise InputError(f"this bias follows {name!r}, which the layout does not have: it has {', '.join(by_name)}")
        columns, inside = by_name[name].cells(direction, offset, steps)
        if attention != "cross":
            inside &= columns <= torch.arange(steps)
        index[:, slot] = columns.clamp(0, keys - 1)
        for line in equal_lines:
            value[line.head, inside, slot] = value[line.head, inside, slot].clamp(min=line.value)
    return OpenKeys(index, value)
