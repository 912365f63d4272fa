"""Rules of tasks of the Chomsky hierarchy (Deletang et al. 2023), where `catalogue` does not have them.

Each does what the authors' generator of that name defines. A string is read from its right end where nothing else is
said. Of the fifteen tasks there is no rule for one: each digit of a square root needs a comparison of all digits, whose
outcome the first cells of a row cannot read.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from abc_nb.problems.catalogue import Words
from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.rules import EDGE, Input, Rule, cell, operand

ABOVE = (cell(-1, 1), cell(-1, 0), cell(-1, -1))  # the cell of the next column, of this one and of the one before

# ---- one row


def even_pairs() -> Rule:
    """Whether the number of unequal neighbours is odd; the state is the last bit and that."""

    def step(state: Any, bit: Digits) -> tuple[Digits, Digits]:
        odd = state % 2 ^ ((state // 2 != bit) & (state >= 0))
        return odd, 2 * bit + odd

    words = Words(title="Even pairs", notation="symbols", unit="bits", said="last")
    return Rule("even-pairs", step, (Input("place", 2),), "01", start=-2, **words)


def modular_arithmetic(modulus: int = 5) -> Rule:
    """A sum of products without brackets, from its right end; the value so far is the first digit of a token.

    The state is that value, where the term that is read now is added, and this term's product: a sign in front ends it.
    """
    signs, states = ("plus", "minus", "times"), [divmod(number, modulus) for number in range(modulus**2)]

    def step(state: Any, item: Digits) -> tuple[Digits, Digits]:
        value, term = np.divmod(state, modulus)
        read = [item < modulus, item == modulus, item == modulus + 1]
        value = np.select(read, [value - term + term * item, value + 1, value - 2 * term + 1], value) % modulus
        term = np.select(read, [term * item, 1, 1], term) % modulus
        return modulus + len(signs) + modulus * value + term, modulus * value + term

    alphabet = [*DIGITS[:modulus], *signs, *(f"{value}:{term}" for value, term in states)]
    words = Words(title="Modular arithmetic", example="1 plus 2 times 3", notation="items", unit="items", said="last")
    inputs = (Input("place", tuple(range(modulus + len(signs)))),)
    return Rule("modular-arithmetic", step, inputs, alphabet, start=modulus + 1, **words)  # 1 is its first term


def reverse_string() -> Rule:
    """The symbols of a string, the last one first."""
    words = Words(title="Reverse string", notation="symbols", unit="bits")
    return Rule("reverse-string", lambda state, bit: (bit, state), (Input("place", 2),), "01", **words)


def missing_duplicate() -> Rule:
    """The symbol that is missing (2) in one of two equal strings; 2 until it is found."""

    def step(missing: Any, a: Digits, b: Digits) -> tuple[Digits, Digits]:
        return (np.where((a == 2) ^ (b == 2), np.minimum(a, b), missing),) * 2

    words = Words(title="Missing duplicate", example="0110=0210", operator="=", notation="symbols", said="last")
    return Rule("missing-duplicate", step, (Input("place", 3),) * 2, "012", start=2, **words)


# ---- tables


def transposition(name: str, base: int, keyed: int, key: Callable[[Any], Any], title: str) -> Rule:
    """Odd-even transposition: the first row has the items, and in each other row neighbours in pairs change places.

    As many rows as items, after the first one, bring them in order. A cell is an item and the side of its partner in
    the next row, 1 for the next column. `key` says what an item is ordered by; a `keyed` item also holds whether it
    stands in a column of even number.
    """

    def step(state: Any, after: Digits, here: Digits, before: Digits, item: Digits, last: Digits) -> tuple[Any, Any]:
        even = np.where(last == EDGE, 1, 1 - last % 2)
        partner = np.where(here % 2, after, before)
        lower, upper = np.where(here % 2, here, partner), np.where(here % 2, partner, here)
        change = (partner != EDGE) & (key(lower // 2) > key(upper // 2))
        moved = np.where(change, partner, here) // 2
        return np.where(here == EDGE, 2 * (item + base * keyed * even) + even, 2 * moved + 1 - here % 2), state

    items = DIGITS[:base] if not keyed else [f"{side}{digit}" for side in "eo" for digit in DIGITS[:base]]
    cells = [f"{item}{side}" for item in items for side in "<>"]
    words = Words(title=title, notation="symbols", unit="items", lengths="any number of items and rows")
    words |= {"result": lambda table: table[:, -1] // 2 % base}
    inputs, reads = (Input("place", base, from_left=True), Input("row", 1)), (*ABOVE, operand(0), cell(0, -1))
    return Rule(name, step, inputs, DIGITS[:base], reads, writes=cells, **words)


def sorting(base: int = 10) -> Rule:
    """Digits in order, the smallest first."""
    return transposition("sorting", base, 0, lambda item: item, "Sorting")


def duplicate_string() -> Rule:
    """A string as often as there are zeros behind it, two of them for twice."""
    inputs = Input("place", 2, from_left=True), Input("row", 1)
    words = Words(title="Duplicate string", example="1101*00", notation="symbols", unit="bits")
    words |= {"result": lambda table: table.reshape(len(table), -1), "lengths": "any string and number of copies"}
    return Rule("duplicate-string", lambda state, bit: (bit, state), inputs, "01", (operand(0),), **words)


def odds_first() -> Rule:
    """The symbols of even number, counted from one, and then the others: passes of `transposition` part them."""
    return transposition("odds-first", 2, 1, lambda item: item // 2, "Odds first")


def stack_manipulation() -> Rule:
    """A stack of bits, whose top is its last one, after some actions, each a row below that of the stack.

    What stands for the first action is not read. The top is in the first column; an empty place holds 2. Since no bit
    ever stands behind an empty place, nothing is written where one would be read there.
    """
    pop, push = 3, 4  # the bits that are pushed are 4 and 5

    def step(state: Any, after: Any, here: Any, before: Any, action: Any, bit: Any) -> tuple[Digits, Any]:
        first, popped = np.where(bit == EDGE, 2, bit), np.where(after == EDGE, 2, after)
        pushed = np.where(before == EDGE, action - push, before)
        row = np.where(action == pop, popped, pushed)
        gap = (before == 2) & np.isin(here, (0, 1)) | (here == 2) & np.isin(after, (0, 1))
        return np.where(gap, EDGE, np.where(here == EDGE, first, row)), state

    inputs, reads = (Input("place", 2), Input("row", (3, 4, 5), from_left=True)), (*ABOVE, operand(1), operand(0))
    words = Words(title="Stack manipulation", example="0 1 1 0 | pop push-1 pop pop", operator="|", notation="items")
    words |= {"slanted": True, "lengths": "any stack and number of actions"}
    return Rule("stack-manipulation", step, inputs, ("0", "1", "empty", "pop", "push-0", "push-1"), reads, **words)


def brackets(modulus: int = 5, unknown: bool = False) -> Rule:
    """The value of a sum in brackets; or, of an equation of such a sum and a digit, what its `unknown` x is.

    Each row reads a token, but for the first. Its cells are: of an equation the sign of x; the value so far; the sign
    of what comes next; and the signs in front of the brackets that are open, the last one first. A minus turns the sign
    of what comes next, which begins anew behind a digit or a bracket. An equals sign is a minus. Since all rows are of
    this kind, nothing is written where another would be read.
    """
    value, now = 3 * unknown, 3 * unknown + modulus  # the first cell of each kind
    signs, none = now + 2, now + 4
    alphabet = [*DIGITS[:modulus], "plus", "minus", "open", "close", *["equals", "x"] * unknown]

    def kind(cells: Digits) -> Digits:
        return np.searchsorted([value, now, signs], cells, side="right")

    def next_kind(cells: Digits) -> Digits:
        return np.where(cells == EDGE, int(not unknown), np.minimum(kind(cells) + 1, 3))

    def follows(left: Digits, right: Digits) -> Digits:
        """Whether two cells can stand side by side in a row."""
        return (right == EDGE) | (kind(right) == next_kind(left)) & ((left != none) | (right == none))

    def negative(cells: Digits) -> Digits:
        return np.isin(cells, (now + 1, signs + 1)).astype(np.int64)

    def step(state: Any, before: Any, here: Any, after: Any, further: Any, token: Any, last: Any) -> tuple[Digits, Any]:
        minus, opens, closes, equals, x = (token == modulus + number for number in range(1, 6))
        digit, added = token < modulus, here - value + np.where(negative(after), -token, token)
        sign, popped = [negative(after), negative(further), 1 - negative(here)], np.where(after == EDGE, none, after)
        cells = [
            np.where(x, negative(further), here),
            np.where(digit, value + added % modulus, here),
            now + np.select([digit | x, closes, minus | equals], sign, negative(here)),
            np.select([opens, closes], [np.where(before < signs, signs + negative(before), before), popped], here),
        ]
        new = np.where(here == EDGE, np.choose(next_kind(last), [2, value, now, none]), np.choose(kind(here), cells))
        row = np.all([follows(*two) for two in pairwise((before, here, after, further))], axis=0)
        return np.where(row & (kind(new) == next_kind(last)), new, EDGE), state

    def result(table: np.ndarray) -> Digits:
        """What x must be for nothing to be left."""
        left = table[:, -1, int(unknown)] - value
        return (np.where(unknown & (table[:, -1, 0] == 0), -left, left) % modulus)[:, None]

    writes = [*["x+", "x-", "x?"] * unknown, *(f"v{number}" for number in range(modulus)), "next+", "next-"]
    inputs = Input("place", 1), Input("row", len(alphabet), from_left=True)
    reads = (cell(-1, -1), cell(-1, 0), cell(-1, 1), cell(-1, 2), operand(1), cell(0, -1))
    words = Words(title="Solve equation" if unknown else "Brackets", operator="|", notation="items", result=result)
    words |= {"writes": [*writes, "+(", "-(", "none"], "lengths": "any number of tokens, in a row that is wide enough"}
    return Rule("solve-equation" if unknown else "brackets", step, inputs, alphabet, reads, **words)
