"""Rules of machines: any elementary cellular automaton by its number, and any Turing machine by its table.

A problem is the first row and, behind an asterisk, a zero for each row that is wanted: `0001000*00000`. The first
row of the table is that row, and each other row is the next step of the machine. Beyond the ends of a row there is
nothing: an automaton sees zeros there, and a head that leaves the tape is gone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.rules import EDGE, Input, Rule, cell, operand

AROUND = (cell(-1, 1), cell(-1, 0), cell(-1, -1), operand(0))  # left, here and right above; the first row


def elementary(number: int) -> Rule:
    """The cellular automaton that Wolfram gave this number, as 110: a cell follows from three cells of the row above.

    InputError for a number that is not from 0 to 255.
    """
    if not isinstance(number, int) or number not in range(256):
        raise InputError(f"rule {number} is not possible: elementary automata are numbered from 0 to 255")

    def step(state: Any, left: Any, here: Any, right: Any, first: Any) -> tuple[Any, Any]:
        case = 4 * np.maximum(left, 0) + 2 * np.maximum(here, 0) + np.maximum(right, 0)
        return np.where(here == EDGE, first, number >> case & 1), state

    return Rule(f"rule-{number}", step, (Input("place", 2), Input("row", 1)), "01", AROUND, **words(f"Rule {number}"))


def turing(table: Mapping[str, str], name: str = "turing", blank: str = "0") -> Rule:
    """A Turing machine as rows of its tape; the head is a token of state and symbol, as `A0`.

    `table` says for each state and symbol what is written, where the head goes and the next state, as in
    `{"A0": "1RB"}`. States, symbols and moves have one letter; a state without an entry halts. InputError for others.
    """
    if len(blank) != 1 or not table or any(len(k) != 2 or len(to) != 3 or to[1] not in "LR" for k, to in table.items()):
        raise InputError("a machine has entries like 'A0': '1RB': state and symbol, then symbol, L or R and next state")
    symbols = {key[1] for key in table} | {to[0] for to in table.values()} | {blank}
    written = sorted(symbols, key=lambda symbol: (symbol != blank, symbol))
    states = sorted({key[0] for key in table} | {to[2] for to in table.values()})
    alphabet = [*written, *(state + symbol for state in states for symbol in written)]
    follows, signs = np.empty((len(alphabet) + 1,) * 3, np.int64), [*alphabet, ""]  # the last is where nothing is
    for key in np.ndindex(follows.shape):
        follows[key] = alphabet.index(next_cell(table, *(signs[token] for token in key))) if signs[key[1]] else EDGE

    def step(state: Any, left: Any, here: Any, right: Any, first: Any) -> tuple[Any, Any]:
        return np.where(here == EDGE, first, follows[left, here, right]), state

    inputs = (Input("place", len(alphabet)), Input("row", 1))
    return Rule(name, step, inputs, alphabet, AROUND, **words("Turing machine"))


def next_cell(table: Mapping[str, str], left: str, here: str, right: str) -> str:
    """A cell after one step: a head in it has written and gone, or one beside it comes."""
    if here in table:
        return table[here][0]
    for beside, move in ((left, "R"), (right, "L")):
        if len(here) == 1 and table.get(beside, "   ")[1] == move:
            return table[beside][2] + here
    return here


def words(title: str) -> dict[str, Any]:
    return {"title": title, "notation": "symbols", "unit": "cells", "lengths": "any first row and number of rows"}


BUSY_BEAVER = {  # of four states: 107 steps, 13 ones
    "A0": "1RB", "A1": "1LB", "B0": "1LA", "B1": "0LC", "C0": "1RH", "C1": "1LD", "D0": "1RD", "D1": "0RA"
}  # fmt: skip
