"""The steps and contexts of a product's table, worked out anew for the independent check.

A token that a cell sees is named by where it stands: ("cell", i, j) is so many rows and columns away, and
("by column", o, k) or ("by row", o, k) the digit of factor o at place c - k or r - k. Two steps are alike if they see
the same names with the same biases and stand at the same edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from abc_nb.certificates.checking.forward import Values
from abc_nb.certificates.checking.geometry import Atom, Facts, Line, Tree, atoms, opened
from abc_nb.common.errors import InputError

BEFORE, ABOVE = ("cell", 0, -1), ("cell", -1, 1)
MOVES = {"diagonal": (1, 0), "antidiagonal": (-1, 0), "vertical": (0, 0), "by row": (0, -1), "above": (1, 0)}
EDGE = 2  # how much nearer than the largest offset an edge can be told from the middle
PART = 2**16  # contexts listed at once


@dataclass(frozen=True)
class Step:
    """The step that writes row `row` and column `column` of an M x N product; the end stands in row N."""

    facts: Facts
    bias: dict[str, Any]
    places: tuple[int, int]  # M and N
    row: int
    column: int

    @property
    def number(self) -> int:
        """Tokens before it."""
        return self.row * (self.places[0] + 1) + self.column

    @property
    def end(self) -> bool:
        return self.row == self.places[1]

    @property
    def last(self) -> bool:
        return self.column == self.places[0]

    def start(self, name: str) -> dict[str, int]:
        """The columns of the source's symbols and of both units."""
        first, second = self.places
        found = {"$": 0, "operand 1": first, "*": first + 1, "operand 2": first + second + 1, "&": first + second + 2}
        return found if name == "cross" else {"$": 0, "output": 0}

    def key(self, line: Line, name: str) -> int | None:
        """The key that a line opens, if it lies inside what the line runs over."""
        starts, span = self.start(name), line["span"]
        if span not in starts or line["direction"] not in MOVES:
            raise InputError(f"the checker knows no line over {span!r} in a table")
        by_column, by_row = MOVES[line["direction"]]
        key: int = starts[span] + by_column * self.column + by_row * self.row + line["offset"]
        if span == "output":
            back = int(line["direction"] == "above")
            inside = back <= key <= self.places[0] + 1 and self.row >= back
            return key + (self.row - back) * (self.places[0] + 1) if inside else None
        around = (self.places[int(span[-1]) - 1], 1) if span.startswith("operand") else (0, 0)
        return key if starts[span] - around[0] <= key <= starts[span] + around[1] else None

    def named(self, line: Line, name: str, key: int) -> Atom:
        if name == "self":
            if key in (0, self.number):
                return BEFORE if key else ("token", self.facts.token("$"), 0)
            return "cell", -int(line["direction"] == "above"), line["offset"] - 1
        for symbol, column in self.start("cross").items():
            if key == column and not symbol.startswith("operand"):
                return "token", self.facts.token(symbol), 0
        return ("by row" if line["direction"] == "by row" else "by column"), int(line["span"][-1]), line["offset"]

    def keys(self, name: str) -> tuple[tuple[tuple[float, ...], Tree], ...]:
        """Open keys by name, each with the bias of every head."""
        lines = [line for line in self.bias["lines"] if line["attention"] == name]
        found = opened(((self.key(line, name), line) for line in lines), self.facts.heads).items()
        seen = [(key, line, bias) for key, (line, bias) in found if name == "cross" or key <= self.number]
        return tuple(sorted((bias, ("in", self.named(line, name, key), 0)) for key, line, bias in seen))

    @property
    def tree(self) -> Tree:
        before = BEFORE if self.number else ("token", self.facts.token("$"), 0)
        return 1, ("in", before, 0), self.keys("self"), self.keys("cross")

    def needed(self) -> list[Atom]:
        """What decides the right token."""
        if self.end:
            return []
        found: list[Atom] = [BEFORE] * (self.column > 0)
        if not self.last:
            found += [("by column", 1, 0), ("by row", 2, 0)]
            if self.row:
                found.append(BEFORE if self.places[0] == 1 else ABOVE)
        return found

    def in_last_column(self, atom: Atom) -> bool:
        return (self.column + atom[2]) % (self.places[0] + 1) == self.places[0]

    def contexts(self, tree: Tree) -> Iterator[tuple[Values, np.ndarray]]:
        """The tokens of every context that `fits`, and the right ones, in parts."""
        base, first = self.facts.base, self.facts.base + 5  # the token of cell 0: after the digits and + * $ & @
        names = sorted(atoms(tree) | {*self.needed()})
        many = [base if atom[0] != "cell" or self.in_last_column(atom) else base**2 for atom in names]
        total = int(np.prod(many, dtype=object))
        for start in range(0, total, PART):
            each = np.unravel_index(np.arange(start, min(start + PART, total)), many)
            fine = self.fits(dict(zip(names, each, strict=True)))
            if fine.any():
                seen = {atom: values[fine] for atom, values in zip(names, each, strict=True)}
                tokens = {atom: values + first * (atom[0] == "cell") for atom, values in seen.items()}
                yield tokens, np.full(fine.sum(), self.facts.token("&")) if self.end else first + self.right(seen)

    def right(self, seen: Values) -> np.ndarray:
        base, found = self.facts.base, np.zeros(len(next(iter(seen.values()))), np.int64)
        if not self.last:
            found = seen["by column", 1, 0] * seen["by row", 2, 0]
            if self.row:
                found = found + seen[BEFORE if self.places[0] == 1 else ABOVE] % base
        return found + seen[BEFORE] // base if self.column else found

    def fits(self, seen: Values) -> np.ndarray:
        """Which tokens can stand together: what each cell is a sum of, and what the one between two of them holds."""
        base, fine = self.facts.base, np.ones(len(next(iter(seen.values()))), bool)
        for (kind, i, j), cell in seen.items():
            if kind == "cell" and self.column + j >= 0:
                row = seen.get(("by row", 2, -i), np.full_like(cell, base))
                column = seen.get(("by column", 1, -j), np.full_like(cell, base))
                column = np.zeros_like(cell) if self.in_last_column((kind, i, j)) else column
                fine &= sums(base, i == 0 and self.row == 0)[row, column, cell]
        if not (self.end or self.row == 0 or self.last):
            above, before = between(base)
            cell, digit = seen[BEFORE if self.places[0] == 1 else ABOVE], seen["by column", 1, 0]
            held = above[seen.get(("by row", 2, 1), np.full_like(cell, base)), digit, cell]
            if self.column:
                other = seen.get(("by column", 1, 1), np.full_like(cell, base))
                held = held & before[other, seen["by row", 2, 0], seen[BEFORE]]
            fine &= held.any(1)
        return fine


@cache
def carries(base: int, digit: int, above: int) -> frozenset[int]:
    """What a row of one digit can carry, with digits below `above` on top of it."""
    found = {0}
    while True:
        more = {(a * digit + d + k) // base for a in range(base) for d in range(above) for k in found}
        if more <= found:
            return frozenset(found)
        found |= more


@cache
def sums(base: int, first: bool) -> np.ndarray:
    """Booleans (row's digit, column's digit, cell), where `base` is any digit: the cells that a row can have."""
    above, found = 1 if first else base, np.zeros((base + 1, base + 1, base**2), bool)
    for b in range(base):
        for k in carries(base, b, above):
            for a in range(base):
                for row in (b, base):
                    found[row, [a, base], a * b + k : a * b + k + above] = True
    return found


@cache
def between(base: int) -> tuple[np.ndarray, np.ndarray]:
    """What the cell between ends in, by what stands above to the right of it, and by what stands before the query.

    Booleans (digit of the row above, this column's digit, cell above to the right, last digit), and (digit of the
    column before, this row's digit, cell before, last digit), with `base` for any first one.
    """
    above = np.zeros((base + 1, base, base**2, base), bool)
    before = np.zeros((base + 1, base, base**2, base), bool)
    for b in range(base):
        known = carries(base, b, base)
        for a in range(base):
            middle = {a * b + d + k for d in range(base) for k in known}
            for cell in middle:
                for right in range(base):  # the digit of the next column
                    low = right * b + cell // base
                    above[[[b], [base]], a, np.arange(low, low + base), cell % base] = True
            for d in range(base):
                before[[[a], [base]], b, [a * b + d + k for k in known], d] = True
    return above, before


def steps(facts: Facts, bias: dict[str, Any]) -> Iterator[tuple[Step, Tree]]:
    """One step for each shape, of sizes up to three times what a line reaches."""
    known = set()
    most = 3 * (max((abs(line["offset"]) for line in bias["lines"]), default=0) + EDGE)
    for first in range(1, most + 1):
        for second in range(1, most + 1):
            for number in range((first + 1) * second + 1):
                step = Step(facts, bias, (first, second), *divmod(number, first + 1))
                tree, needed = step.tree, step.needed()
                names = sorted(atoms(tree) | {*needed})
                edges = [step.in_last_column(atom) for atom in names if atom[0] == "cell"]
                shape = tree, tuple(names), tuple(needed), tuple(edges), step.row == 0, step.column == 0, step.end
                if shape not in known:
                    known.add(shape)
                    yield step, tree
