"""Walks over a task's automaton: every context of a shape, and a problem that holds one.

A walk goes over the places from the units up. It keeps the distinct pairs of a code and the automaton's state. The
code is one number that holds all that was seen so far, as its digits in the task's base.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from abc_nb.certificates.contexts import Block, Place, PlaceValues, Shape
from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import Automaton

PAIRS_AT_ONCE = 2**19  # pairs extended at once
LARGEST = 2**62  # a number that still fits
Fixed = Mapping[int, Mapping[tuple[str, int], int]]  # values that a place must have: digits by operand, output digit


class Moves:
    """What one place can add in each state: pairs of what is seen and the following state, without repeats.

    Where the answer ends, the digit to predict is the base; where none is to predict, nothing can follow.
    """

    def __init__(self, automaton: Automaton, place: Place) -> None:
        inputs = np.flatnonzero(allowed(automaton, place.kind, {})[0])
        output = automaton.output[:, inputs]
        code, ended = np.zeros(output.shape, np.int64), place.can_end & (automaton.remaining == 0)[:, None]
        for operand in place.digits:
            code = code * automaton.base + automaton.digits[inputs, operand]
        for _ in range(place.output):
            code = code * automaton.base + output
        if place.asked:
            code = code * (automaton.base + place.can_end) + np.where(ended, automaton.base, output)
        pairs = code * automaton.state_count + automaton.following[:, inputs]
        moves = [distinct(row[: len(row) * (place.asked or not end)]) for row, end in zip(pairs, ended, strict=True)]
        self.radix = automaton.base**place.seen_count * (automaton.base + place.can_end) ** place.asked
        self.state_count = automaton.state_count
        self.count = np.array([*map(len, moves)])  # of a state's moves
        self.first = np.cumsum(self.count) - self.count  # where they begin
        self.code, self.state = np.divmod(np.concatenate(moves), automaton.state_count)

    def extend(self, codes: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distinct pairs of code and state, one place further, sorted."""
        count = self.count[states]
        move = np.arange(count.sum()) + np.repeat(self.first[states] - np.cumsum(count) + count, count)
        pairs = (np.repeat(codes, count) * self.radix + self.code[move]) * self.state_count + self.state[move]
        codes, states = np.divmod(distinct(pairs), self.state_count)
        return codes, states


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Sorted, without repeats; of many numbers several times as fast as np.unique."""
    ordered = np.sort(numbers)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]


def sets_of(codes: np.ndarray, states: np.ndarray) -> Counter[bytes]:
    """The states that stand beside each of some sorted codes, as sets, and how often each set comes."""
    return Counter(part.tobytes() for part in np.split(states, np.flatnonzero(np.diff(codes)) + 1) if len(part))


def beginning(shape: Shape, automaton: Automaton) -> tuple[np.ndarray, np.ndarray]:
    """The codes before the units, which hold digits of a short factor, and the states there; sorted."""
    codes = np.zeros(len(automaton.start), np.int64)
    for kind, _, place in shape.leaves:
        if kind == "factor":
            codes = codes * automaton.base + automaton.short[automaton.start, place]
    order = np.argsort(codes, kind="stable")
    return codes[order], automaton.start[order]


def count(shape: Shape, automaton: Automaton) -> int:
    """How many contexts a shape has, counted without listing them.

    All beginnings after which the same set of states is possible go on in the same way (the subset construction).
    """
    sets = sets_of(*beginning(shape, automaton))
    for place in shape.places:
        moves, following = Moves(automaton, place), Counter[bytes]()
        for state_set, beginnings in sets.items():
            states = np.frombuffer(state_set, np.int64)
            for next_set, ways in sets_of(*moves.extend(np.zeros_like(states), states)).items():
                following[next_set] += beginnings * ways
        sets = following
    return sum(sets.values())


def contexts(shape: Shape, automaton: Automaton) -> Iterator[Block]:
    """All contexts of a shape, each once, in blocks."""
    columns = len(shape.leaves) + any(place.asked for place in shape.places)
    if (automaton.base + 1) ** columns * automaton.state_count > LARGEST:
        raise InputError(f"no certificate: an output looks at {columns - 1} tokens, too many to try all")
    moves = [Moves(automaton, place) for place in shape.places]
    for codes in walked(*beginning(shape, automaton), moves):
        yield digits_of_codes(codes, shape, automaton.base)


def walked(codes: np.ndarray, states: np.ndarray, moves: Sequence[Moves]) -> Iterator[np.ndarray]:
    """Codes of whole walks; where they are many, in two halves that share no code."""
    for number, moves_of_place in enumerate(moves):
        if moves_of_place.count[states].sum() > PAIRS_AT_ONCE and codes[0] != codes[-1]:
            middle = int(np.searchsorted(codes, codes[len(codes) // 2]))
            middle = middle or int(np.searchsorted(codes, codes[0], side="right"))
            for half in (slice(middle), slice(middle, None)):
                yield from walked(codes[half], states[half], moves[number:])
            return
        codes, states = moves_of_place.extend(codes, states)
    yield distinct(codes)


def digits_of_codes(codes: np.ndarray, shape: Shape, base: int) -> Block:
    """The digits of codes; the one to predict stands after what its own place shows."""
    values = np.empty((len(codes), len(shape.leaves)), np.min_scalar_type(base))
    right = np.full(len(codes), -1 if shape.label is None else shape.label, np.int64)
    number = len(shape.leaves)
    for place in reversed(shape.places):
        if place.asked:
            codes, right = np.divmod(codes, base + place.can_end)
        for _ in range(place.seen_count):
            number -= 1
            codes, values[:, number] = np.divmod(codes, base)
    for column in reversed(range(number)):  # digits of a short factor
        codes, values[:, column] = np.divmod(codes, base)
    return Block(values, right)


def shortest(
    automaton: Automaton, place_values: Sequence[PlaceValues], fixed: Fixed, factor: Mapping[int, int]
) -> tuple[int, np.ndarray] | None:
    """The start state and one input a place, the smallest under which places have the values `fixed`; or None.

    A short factor has the digits `factor`, by their places.
    """
    moves = [allowed(automaton, kind, fixed.get(place, {})) for place, kind in enumerate(place_values)]
    alive = [np.ones(automaton.state_count, bool)]  # from which states the places above can be walked, highest first
    for possible in reversed(moves):
        alive.insert(0, (possible & alive[0][automaton.following]).any(1))
    start = automaton.start[alive[0][automaton.start]]
    for place, digit in factor.items():
        start = start[automaton.short[start, place] == digit]
    if not len(start):
        return None
    state, inputs = int(start[0]), list[int]()
    for possible, above in zip(moves, alive[1:], strict=True):
        inputs.append(int((possible[state] & above[automaton.following[state]]).argmax()))
        state = int(automaton.following[state, inputs[-1]])
    return int(start[0]), np.array(inputs)


def allowed(automaton: Automaton, kind: PlaceValues, fixed: Mapping[tuple[str, int], int]) -> np.ndarray:
    """Which inputs a place can have in each state: booleans (states, inputs)."""
    possible = np.ones(automaton.output.shape, bool)
    if isinstance(kind, tuple):
        possible &= (automaton.digits[:, list(kind)] == 0).all(1)
    elif kind != "any":
        possible &= np.arange(len(automaton.digits)) > 0
    for (name, number), value in fixed.items():
        if name == "left":  # whether more than zeros is left to write
            possible &= (automaton.remaining > 0)[:, None] == bool(value)
        else:
            possible &= automaton.output == value if name == "output" else automaton.digits[:, number] == value
    return possible
