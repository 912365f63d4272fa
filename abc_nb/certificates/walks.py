"""Walks over a task's automaton: every context of a shape, and a problem that holds one.

A walk goes over the places from the units up. It keeps the distinct pairs of what was seen so far and the
automaton's state. What is seen is one number, its digits in the task's base.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from abc_nb.certificates.contexts import Block, Kind, Place, Shape
from abc_nb.common.errors import InputError
from abc_nb.problems.automaton import Automaton

PAIRS_AT_ONCE = 2**19  # pairs extended at once
LARGEST = 2**62  # a number that still fits
Fixed = Mapping[int, Mapping[tuple[str, int], int]]  # what is given of a place: digits by operand, the output digit


class Moves:
    """What one place can add, for each state: ragged rows of (seen, following state), without repeats.

    Where the answer ends that is the base in place of a digit, if it is asked for, and nothing can follow otherwise.
    """

    def __init__(self, automaton: Automaton, place: Place) -> None:
        inputs = np.flatnonzero(allowed(automaton, place.kind, {})[0])
        output = automaton.output[:, inputs]
        code, ended = np.zeros(output.shape, np.int64), place.ends & (automaton.remaining == 0)[:, None]
        for operand in place.digits:
            code = code * automaton.base + automaton.digits[inputs, operand]
        for _ in range(place.output):
            code = code * automaton.base + output
        if place.asked:
            code = code * (automaton.base + place.ends) + np.where(ended, automaton.base, output)
        pairs = code * automaton.states + automaton.following[:, inputs]
        rows = [distinct(row[: len(row) * (place.asked or not over)]) for row, over in zip(pairs, ended, strict=True)]
        self.radix = automaton.base ** (place.seen - place.asked) * (automaton.base + place.ends) ** place.asked
        self.states = automaton.states
        self.count = np.array([len(row) for row in rows])  # of a state's moves
        self.first = np.cumsum(self.count) - self.count  # where they begin
        self.seen, self.state = np.divmod(np.concatenate(rows), automaton.states)

    def extend(self, codes: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distinct pairs of what was seen and the state, one place further, sorted."""
        count = self.count[states]
        move = np.arange(count.sum()) + np.repeat(self.first[states] - np.cumsum(count) + count, count)
        pairs = (np.repeat(codes, count) * self.radix + self.seen[move]) * self.states + self.state[move]
        after, state = np.divmod(distinct(pairs), self.states)
        return after, state


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Sorted, without repeats; of many numbers several times as fast as np.unique."""
    ordered = np.sort(numbers)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]


def sets_of(codes: np.ndarray, states: np.ndarray) -> Counter[bytes]:
    """The states that stand beside each of some sorted codes, as sets, and how often each set comes."""
    return Counter(part.tobytes() for part in np.split(states, np.flatnonzero(np.diff(codes)) + 1) if len(part))


def beginning(shape: Shape, automaton: Automaton) -> tuple[np.ndarray, np.ndarray]:
    """What is seen before the units, which are digits of a short factor, and the state there; sorted."""
    codes = np.zeros(len(automaton.start), np.int64)
    for kind, _, place in shape.leaves:
        if kind == "factor":
            codes = codes * automaton.base + automaton.short[automaton.start, place]
    order = np.argsort(codes, kind="stable")
    return codes[order], automaton.start[order]


def count(shape: Shape, automaton: Automaton) -> int:
    """How many contexts a shape has, counted without listing them.

    All beginnings after which the same set of states is possible go on alike (the subset construction).
    """
    sets = sets_of(*beginning(shape, automaton))
    for place in shape.places:
        moves, following = Moves(automaton, place), Counter[bytes]()
        for states, many in sets.items():
            before = np.frombuffer(states, np.int64)
            for after, ways in sets_of(*moves.extend(np.zeros_like(before), before)).items():
                following[after] += many * ways
        sets = following
    return sum(sets.values())


def contexts(shape: Shape, automaton: Automaton) -> Iterator[Block]:
    """All contexts of a shape, each once, in blocks."""
    columns = len(shape.leaves) + any(place.asked for place in shape.places)
    if (automaton.base + 1) ** columns * automaton.states > LARGEST:
        raise InputError(f"no certificate: an output looks at {columns - 1} tokens, too many to try all")
    moves = [Moves(automaton, place) for place in shape.places]
    for codes in walked(*beginning(shape, automaton), moves):
        yield digits_of_codes(codes, shape, automaton.base)


def walked(codes: np.ndarray, states: np.ndarray, moves: Sequence[Moves]) -> Iterator[np.ndarray]:
    """Codes of whole walks; where they are many, all that begin alike go on together."""
    for number, move in enumerate(moves):
        if move.count[states].sum() > PAIRS_AT_ONCE and codes[0] != codes[-1]:
            middle = int(np.searchsorted(codes, codes[len(codes) // 2]))
            middle = middle or int(np.searchsorted(codes, codes[0], side="right"))
            for part in (slice(middle), slice(middle, None)):
                yield from walked(codes[part], states[part], moves[number:])
            return
        codes, states = move.extend(codes, states)
    yield distinct(codes)


def digits_of_codes(codes: np.ndarray, shape: Shape, base: int) -> Block:
    """The digits of codes; the one to predict stands after what its own place shows."""
    values = np.empty((len(codes), len(shape.leaves)), np.min_scalar_type(base))
    right = np.full(len(codes), -1 if shape.label is None else shape.label, np.int64)
    number = len(shape.leaves)
    for place in reversed(shape.places):
        if place.asked:
            codes, right = np.divmod(codes, base + place.ends)
        for _ in range(place.seen - place.asked):
            number -= 1
            codes, values[:, number] = np.divmod(codes, base)
    for left in reversed(range(number)):  # digits of a short factor
        codes, values[:, left] = np.divmod(codes, base)
    return Block(values, right)


def shortest(
    automaton: Automaton, kinds: Sequence[Kind], fixed: Fixed, factor: Mapping[int, int]
) -> tuple[int, np.ndarray] | None:
    """The start state and one input a place so that all that is given holds; the smallest inputs, or None.

    `fixed` is what is given of places, `factor` of the digits of a short factor.
    """
    moves = [allowed(automaton, kind, fixed.get(place, {})) for place, kind in enumerate(kinds)]
    alive = [np.ones(automaton.states, bool)]  # from which states the places above can be walked, highest first
    for fine in reversed(moves):
        alive.insert(0, (fine & alive[0][automaton.following]).any(1))
    start = automaton.start[alive[0][automaton.start]]
    for place, digit in factor.items():
        start = start[automaton.short[start, place] == digit]
    if not len(start):
        return None
    state, inputs = int(start[0]), list[int]()
    for fine, above in zip(moves, alive[1:], strict=True):
        inputs.append(int((fine[state] & above[automaton.following[state]]).argmax()))
        state = int(automaton.following[state, inputs[-1]])
    return int(start[0]), np.array(inputs)


def allowed(automaton: Automaton, kind: Kind, fixed: Mapping[tuple[str, int], int]) -> np.ndarray:
    """Which inputs a place can have in each state: booleans (states, inputs)."""
    fine = np.ones(automaton.output.shape, bool)
    if isinstance(kind, tuple):
        fine &= (automaton.digits[:, list(kind)] == 0).all(1)
    elif kind != "any":
        fine &= np.arange(len(automaton.digits)) > 0
    for (name, number), value in fixed.items():
        if name == "left":  # whether more than zeros is left to write
            fine &= (automaton.remaining > 0)[:, None] == bool(value)
        else:
            fine &= automaton.output == value if name == "output" else automaton.digits[:, number] == value
    return fine
