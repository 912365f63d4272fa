"""What stands where, which keys are open and what an output depends on, worked out anew from a certificate's facts.

Nothing is imported from the parts for problems, biases or models: an error there would not be seen by a
check that shares it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Leaf = tuple[str, int, int]  # ("token", t, 0), ("factor", 0, place), ("digit", operand, place), ("output", 0, place)
# ("in", leaf, index) or (layer, before, keys of self-attention, keys of cross-attention)
Tree = tuple[Any, ...]
Line = dict[str, Any]
FACTORS = {"n-by-1": 1, "n-by-2": 2, "n-by-3": 3}  # digits of the short one
WORDS = {"listops-sm": "SM", "listops-max": "MAX", "listops-min": "MIN"}
LISTS = (*WORDS, "cycle-navigation")
OPERATORS = {"addition": "+", "subtraction": "-"} | WORDS | dict.fromkeys(FACTORS, "*")
KNOWN = ("successor", "parity", "cycle-navigation", *OPERATORS)


@dataclass(frozen=True)
class Facts:
    """What a certificate says of the problems and of the model."""

    task: str
    base: int
    arrangement: str
    source_index: str
    period: int  # of the index; 1 without positions
    cyclic: bool  # whether there are positions at all
    heads: int
    layers: int
    narrowest: int
    alone: bool  # whether the model is decoder-only

    def __post_init__(self) -> None:
        assert self.task in KNOWN and (self.source_index == "right" or self.period == 1)

    @property
    def grows(self) -> int:
        return self.short or int(self.task in ("successor", "addition"))

    @property
    def short(self) -> int:
        """Digits of a short factor; 0 without one."""
        return FACTORS.get(self.task, 0)

    @property
    def long(self) -> int:
        """Operands of many digits."""
        return 2 if self.task in ("addition", "subtraction") else 1

    def token(self, symbol: str) -> int:
        own = ["-"] if self.task == "subtraction" else [*WORDS.values()]
        return self.base + ["+", "*", "$", "&", "@", *own].index(symbol)


class Width:
    """One width: its columns, and the trees of its steps."""

    def __init__(self, facts: Facts, bias: dict[str, Any], width: int, near: int) -> None:
        self.facts, self.bias, self.width, self.near = facts, bias, width, near
        self.trees: dict[tuple[str, int, int], Tree] = {}
        aligned = facts.arrangement == "aligned" and facts.task in ("addition", "subtraction", "n-by-1")
        digits = [[("digit", number, place) for place in reversed(range(width))] for number in range(facts.long)]
        if facts.short:
            digits.append([("factor", 0, place) for place in reversed(range(facts.short))] * (width if aligned else 1))
        start, end, *symbol = [
            ("token", facts.token(symbol), 0) for symbol in ("$", "&", OPERATORS.get(facts.task)) if symbol
        ]
        first, *second = digits
        self.places, self.stride = [*map(len, digits)], 1 + aligned
        if aligned:
            pairs = [leaf for pair in zip(*digits, strict=True) for leaf in pair]
            self.columns: list[Leaf] = [start, *symbol, *pairs, end]
            self.last = [len(self.columns) - 3, len(self.columns) - 2]
        elif second:
            self.columns = [start, *first, *symbol, *second[0], end]
            self.last = [width, width + 1 + len(second[0])]
        else:
            self.columns = [start, *symbol, *first, end]
            self.last = [len(self.columns) - 2]

    def open(self, attention: str, layer: int, step: int) -> dict[int, tuple[float, ...]]:
        """Open keys with the bias of every head."""
        keys = self.width + 1 if attention == "self" else len(self.columns)
        heads = self.facts.heads
        if self.bias["type"] == "Window":
            return {key: (0.0,) * heads for key in self.window(attention, step) if 0 <= key < keys}
        lines = [line for line in self.bias["lines"] if (line["attention"], line["layer"]) == (attention, layer)]
        found: dict[int, list[float]] = {}
        for line in lines:
            key = self.on_line(line, attention, step, keys)
            if key is not None:
                values = found.setdefault(key, [-np.inf] * heads)
                values[line["head"]] = max(values[line["head"]], float(np.float32(line["value"])))
        return {key: tuple(values) for key, values in found.items()}

    def window(self, attention: str, step: int) -> Iterable[int]:
        w = self.bias["w"]
        if attention == "source":
            return [step]
        if attention == "self":
            return [step - back for back in range(w + 1)]
        left, right = {"none": (0, 0), "one": (0, w), "both": (w, w)}[self.bias["sides"]]
        units = self.last
        return {unit - self.stride * step + side for unit in units for side in range(-left, right + 1)}

    def on_line(self, line: Line, attention: str, step: int, keys: int) -> int | None:
        """The column that a line opens at a step, if it lies inside what the line runs over."""
        first, last, stride, span = 0, keys - 1, 1, line["span"]
        origin = keys - 1 if line["direction"] == "antidiagonal" else 0
        if span in ("output", "problem"):
            origin = 0
        elif span.startswith("operand "):
            number = int(span.removeprefix("operand ")) - 1
            origin, stride, short = self.last[number], self.stride, self.places[number] < self.width
            first = max(origin - stride * (self.places[number] - short), 0)
            last = min(origin + stride * (not short), keys - 1)
        elif span != "whole":
            column = 0 if attention != "cross" else self.columns.index(("token", self.facts.token(span), 0))
            origin = first = last = column
        slope = {"diagonal": 1, "antidiagonal": -1, "vertical": 0}[line["direction"]]
        column = origin + slope * stride * step + line["offset"]
        inside = first <= column <= last and (attention == "cross" or column <= step)
        return column if inside else None

    def tree(self, layer: int, step: int) -> Tree:
        if layer == 0:
            leaf = ("token", self.facts.token("$"), 0) if step == 0 else ("output", 0, step - 1)
            return "in", leaf, step % self.facts.period
        where = ("answer", layer, step)
        if where not in self.trees:
            own, cross = (self.keys(attention, layer, step, step) for attention in ("self", "cross"))
            self.trees[where] = layer, self.tree(layer - 1, step), own, cross
        return self.trees[where]

    def of_problem(self, layer: int, column: int) -> Tree:
        """The tree of a token of the problem, which only a decoder-only model changes from layer to layer."""
        if layer == 0 or not self.facts.alone:
            return "in", self.columns[column], (len(self.columns) - 1 - column) % self.facts.period
        where = ("problem", layer, column)
        if where not in self.trees:
            kind, _, place = self.columns[column]
            own = self.keys("source", layer, column, *([place] if kind == "digit" else []))
            self.trees[where] = layer, self.of_problem(layer - 1, column), own, ()
        return self.trees[where]

    def keys(self, attention: str, layer: int, query: int, *place: int) -> tuple[tuple[Any, Tree], ...]:
        """The open keys of a query, which may stand at a place: their biases and trees."""
        found, below = [], self.tree if attention == "self" else self.of_problem
        for key, bias in sorted(self.open(attention, layer - 1, query).items()):
            kind, _, at = ("digit", 0, key) if attention == "self" else self.columns[key]
            assert kind != "digit" or min(abs(at - near) for near in (0, self.width, *place)) <= self.near
            found.append((bias, below(layer - 1, key)))
        return tuple(found)

    def kind(self, place: int) -> str:
        """Which digits a place can hold."""
        return "any" if place < self.width - self.facts.grows else "zero"


def leaves(tree: Tree) -> set[Leaf]:
    """The tokens that a tree depends on and that can vary."""
    if tree[0] == "in":
        return set() if tree[1][0] == "token" else {tree[1]}
    parts = [tree[1], *(key for _, key in tree[2]), *(key for _, key in tree[3])]
    return set().union(*(leaves(part) for part in parts))


def renamed(tree: Tree, names: dict[int, int]) -> Tree:
    """The same tree with other numbers for the places."""
    if tree[0] == "in":
        kind, number, place = tree[1]
        return ("in", (kind, number, names[place]), tree[2]) if kind in ("digit", "output") else tree
    own = tuple((bias, renamed(key, names)) for bias, key in tree[2])
    cross = tuple((bias, renamed(key, names)) for bias, key in tree[3])
    return tree[0], renamed(tree[1], names), own, cross
