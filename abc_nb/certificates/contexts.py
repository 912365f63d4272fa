"""Every context of a shape: the tokens that can stand there under a correct beginning of the answer.

A walk over the places from the units up keeps the distinct pairs of what was seen so far and the
automaton's state. What is seen is one number, its digits in the task's base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.shapes import Atom, Node, Place, Shape
from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import Automaton

ROWS = 2**21  # pairs extended at once
SLICE = 2**20  # contexts that are listed at once
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

    def after(self, states: np.ndarray) -> Counter[bytes]:
        """The sets of states that can follow a set, and how many different things are seen on the way to each."""
        seen, following = self.extend(np.zeros(len(states), np.int64), states, int(self.state.max(initial=0)) + 1)
        return Counter(part.tobytes() for part in np.split(following, np.flatnonzero(np.diff(seen)) + 1) if len(part))


def moves(automaton: Automaton, place: Place, number: int, fixed: Mapping[Atom, int]) -> Moves:
    """What place `number` of a shape can add; the tokens in `fixed` have these values."""
    inputs = np.arange(len(automaton.digits))
    inputs = {"any": inputs, "zero": inputs[:1], "lead": inputs[1:]}[place.kind]
    for operand in place.digits:
        digit = automaton.digits[inputs, operand]
        inputs = inputs[digit == fixed.get(("digit", operand, number), digit)]
    output = automaton.output[:, inputs]
    parts = [np.broadcast_to(automaton.digits[inputs, operand], output.shape) for operand in place.digits]
    parts += [output] * (place.output + place.asked)
    code = np.zeros(output.shape, np.int64)
    for part in parts:
        code = code * automaton.base + part
    chosen = output == fixed.get(("output", 0, number), output)
    pairs = code * automaton.states + automaton.following[:, inputs]
    rows = [np.unique(row[own]) for row, own in zip(pairs, chosen, strict=True)]
    count = np.array([len(row) for row in rows])
    joined = np.concatenate(rows)
    radix = automaton.base ** len(parts)
    return Moves(radix, np.cumsum(count) - count, count, joined // automaton.states, joined % automaton.states)


@dataclass(frozen=True)
class Walk:
    """The walks over a shape's places that have the tokens in `fixed`."""

    codes: np.ndarray  # what was seen before the units: the digits of a short factor that the shape looks at; sorted
    states: np.ndarray  # the automaton's states before the units
    steps: list[Moves]


def walks(shape: Shape, automaton: Automaton, fixed: Mapping[Atom, int]) -> Walk:
    steps = [moves(automaton, place, number, fixed) for number, place in enumerate(shape.places)]
    states = automaton.start
    codes, own = np.zeros(len(states), np.int64), np.ones(len(states), bool)
    for atom in shape.atoms:
        if atom[0] == "factor":
            digit = automaton.factor[states, atom[2]]
            codes, own = codes * automaton.base + digit, own & (digit == fixed.get(atom, digit))
    order = np.flatnonzero(own)[np.argsort(codes[own], kind="stable")]
    return Walk(codes[order], states[order], steps)


def count(shape: Shape, automaton: Automaton, fixed: Mapping[Atom, int] | None = None) -> int:
    """How many contexts a shape has, counted without listing them.

    All beginnings after which the same set of states is possible go on alike (the subset construction).
    """
    walk = walks(shape, automaton, fixed or {})
    pairs = np.stack([walk.codes, walk.states])
    sets = Counter(pairs[1, pairs[0] == code].tobytes() for code in np.unique(walk.codes))
    for move in walk.steps:
        following: Counter[bytes] = Counter()
        for states, many in sets.items():
            for after, ways in move.after(np.frombuffer(states, np.int64)).items():
                following[after] += many * ways
        sets = following
    return sum(sets.values())


def slices(shape: Shape, automaton: Automaton) -> Iterator[dict[Atom, int]]:
    """Values of some tokens that the query's own state sees, with at most `SLICE` contexts each; all in all once.

    So contexts that share this state come together.
    """
    free = [atom for atom in shape.atoms if isinstance(shape.root, Node) and atom in shape.root.before.atoms]
    waiting: list[dict[Atom, int]] = [{}]
    while waiting:
        fixed = waiting.pop()
        many = count(shape, automaton, fixed)
        if many > SLICE and len(fixed) < len(free):
            atom = free[len(fixed)]
            waiting += [fixed | {atom: value} for value in reversed(range(automaton.base))]
        elif many:
            yield fixed


def contexts(shape: Shape, automaton: Automaton, fixed: Mapping[Atom, int] | None = None) -> Iterator[Block]:
    """All contexts of a shape that have the tokens in `fixed`, each once, in blocks."""
    columns = len(shape.atoms) + any(place.asked for place in shape.places)
    if automaton.base**columns * automaton.states > LARGEST:
        raise InputError(f"no certificate: an output looks at {columns - 1} tokens, too many to try all")
    walk = walks(shape, automaton, fixed or {})
    for found in walked(walk.codes, walk.states, walk.steps, automaton.states):
        yield decoded(found, shape, automaton.base)


def walked(codes: np.ndarray, states: np.ndarray, steps: Sequence[Moves], total: int) -> Iterator[np.ndarray]:
    """Codes of whole walks; where they are many, all that begin alike go on together."""
    for number, move in enumerate(steps):
        if move.count[states].sum() > ROWS and len(codes) > 1 and codes[0] != codes[-1]:
            for part in halves(codes):
                yield from walked(codes[part], states[part], steps[number:], total)
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
    while len(values) < len(shape.atoms):  # what is left are digits of a short factor
        values.insert(0, codes % base)
        codes = codes // base
    table = np.stack(values, axis=1) if values else np.empty((len(codes), 0), np.int64)
    return Block(table.astype(np.uint8), right)
