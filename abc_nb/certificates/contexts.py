"""Every context of a shape: the tokens that can stand there under a correct beginning of the answer.

A walk over the places from the units up keeps the distinct pairs of what was seen so far and the
automaton's state. What is seen is one number, its digits in the task's base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.automaton import Automaton
from abc_nb.certificates.shapes import Place, Shape
from abc_nb.common.errors import InputError

ROWS = 2**21  # pairs extended at once
LARGEST = 2**62  # a number that still fits


@dataclass(frozen=True)
class Block:
    """Contexts of one shape."""

    values: np.ndarray  # (contexts, atoms of the shape)
    right: np.ndarray  # (contexts,): the token that is right there


@dataclass(frozen=True)
class Moves:
    """What one place can add, for each state: ragged rows of (seen, following state), without repeats."""

    radix: int
    first: np.ndarray  # (states,): where a state's moves begin
    count: np.ndarray  # (states,)
    seen: np.ndarray
    state: np.ndarray

    def extend(self, codes: np.ndarray, states: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
        """Distinct pairs of what was seen and the state, one place further, sorted."""
        count = self.count[states]
        row = np.repeat(np.arange(len(codes)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        move = self.first[states][row] + within
        pairs = np.unique((codes[row] * self.radix + self.seen[move]) * total + self.state[move])
        return pairs // total, pairs % total


def moves(automaton: Automaton, place: Place) -> Moves:
    inputs = np.arange(len(automaton.digits))
    inputs = {"any": inputs, "zero": inputs[:1], "lead": inputs[1:]}[place.kind]
    shape = automaton.states, len(inputs)
    output = automaton.output[:, inputs]
    parts = [np.broadcast_to(automaton.digits[inputs, operand], shape) for operand in place.digits]
    parts += [output] * (place.output + place.asked)
    code = np.zeros(shape, np.int64)
    for part in parts:
        code = code * automaton.base + part
    rows = [np.unique(row) for row in code * automaton.states + automaton.following[:, inputs]]
    count = np.array([len(row) for row in rows])
    joined = np.concatenate(rows)
    radix = automaton.base ** len(parts)
    return Moves(radix, np.cumsum(count) - count, count, joined // automaton.states, joined % automaton.states)


def contexts(shape: Shape, automaton: Automaton) -> Iterator[Block]:
    """All contexts of a shape, each once, in blocks."""
    steps = [moves(automaton, place) for place in shape.places]
    codes, states = np.zeros(len(automaton.start), np.int64), automaton.start
    if ("factor", 0, 0) in shape.atoms:
        codes = automaton.factor[automaton.start, 0]
    columns = len(shape.atoms) + any(place.asked for place in shape.places)
    if automaton.base**columns * automaton.states > LARGEST:
        raise InputError(f"no certificate: an output looks at {columns - 1} tokens, too many to try all")
    for found in walk(codes, states, steps, automaton.states):
        yield decoded(found, shape, automaton.base)


def walk(codes: np.ndarray, states: np.ndarray, steps: Sequence[Moves], total: int) -> Iterator[np.ndarray]:
    """Codes of whole walks; where they are many, all that begin alike go on together."""
    for number, move in enumerate(steps):
        if move.count[states].sum() > ROWS and len(codes) > 1 and codes[0] != codes[-1]:
            for part in halves(codes):
                yield from walk(codes[part], states[part], steps[number:], total)
            return
        codes, states = move.extend(codes, states, total)
    yield np.unique(codes)


def halves(codes: np.ndarray) -> tuple[slice, slice]:
    """Two parts of sorted codes, none of which is in both."""
    middle = int(np.searchsorted(codes, codes[len(codes) // 2]))
    middle = middle or int(np.searchsorted(codes, codes[0], side="right"))
    return slice(middle), slice(middle, None)


def decoded(codes: np.ndarray, shape: Shape, base: int) -> Block:
    """The digits of codes; the one to predict stands after what its own place shows."""
    values: list[np.ndarray] = []
    right = np.full(len(codes), -1 if shape.label is None else shape.label, np.int64)
    for place in reversed(shape.places):
        if place.asked:
            right, codes = codes % base, codes // base
        for _ in range(len(place.digits) + place.output):
            values.insert(0, codes % base)
            codes = codes // base
    if len(values) < len(shape.atoms):
        values.insert(0, codes)
    table = np.stack(values, axis=1) if values else np.empty((len(codes), 0), np.int64)
    return Block(table.astype(np.uint8), right)
