"""What a task is, place by place: a finite automaton that reads digits and writes the answer's digits.

From the units up, the state before a place and the digits of that place give the output digit and the
state after it. For sums the state is the carry; for a product with a factor of a few digits it is that factor and
the carry, which is less than it; for Parity and lists it is the running value. A state that says all that lower
places say about the ones above them makes the set of contexts exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.rewriting import COMBINE
from abc_nb.problems.tasks import Task

MOST = 10**4  # states: what a factor of two digits has in base 10
State = tuple[int, ...]  # the digits of a short factor, if there is one, units first, and the carry or running value
Step = Callable[[State, tuple[int, ...]], tuple[int, State]]
NEUTRAL = {"SM": lambda base: 0, "MAX": lambda base: 0, "MIN": lambda base: base - 1}  # before the first item


@dataclass(frozen=True)
class Automaton:
    """States and inputs are numbered; input 0 is a place with zeros alone."""

    base: int
    start: np.ndarray  # states before the units
    output: np.ndarray  # (states, inputs): the digit that is written
    following: np.ndarray  # (states, inputs): the state after it
    digits: np.ndarray  # (inputs, operands): the digits of an input, one an operand of many digits
    factor: np.ndarray  # (states, digits): of a short factor, units first; no columns without one
    carry: np.ndarray  # (states,): the carry, or the running value

    @property
    def states(self) -> int:
        return len(self.output)

    @cached_property
    def settled(self) -> int:
        """From how many places on it makes no difference how many there are, whatever the factor."""
        _, which = np.unique(self.factor, axis=0, return_inverse=True)
        return max(settled(relation(self.following, which == number)) for number in range(which.max() + 1))


def relation(following: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Which of some states can follow which one place later: booleans; what follows one of them is one of them."""
    names = np.cumsum(chosen) - 1
    found = np.zeros((chosen.sum(), chosen.sum()), bool)
    found[np.arange(len(found))[:, None], names[following[chosen]]] = True
    return found


def settled(relation: np.ndarray) -> int:
    """From which power on all powers of a relation are the same."""
    power, places = relation, 1
    while True:
        following = (power.astype(np.float32) @ relation.astype(np.float32)) > 0
        if np.array_equal(following, power):
            return places
        power, places = following, places + 1


def automaton(task: Task) -> Automaton:
    """The automaton of a task; InputError for a task that has none here."""
    start, step = rules(task)
    operands = 2 if task.operation.second is None else 1
    inputs = list(product(range(task.base), repeat=operands))
    numbers = {state: number for number, state in enumerate(start)}
    waiting, written, after = list(start), [], []
    for state in waiting:  # grows while it is read, until no state is new
        row = [step(state, digits) for digits in inputs]
        for _, following in row:
            if following not in numbers:
                numbers[following] = len(waiting)
                waiting.append(following)
        written.append([digit for digit, _ in row])
        after.append([numbers[following] for _, following in row])
    factor = np.array([state[:-1] for state in waiting], np.int64).reshape(len(waiting), -1)
    first, carry = np.arange(len(start)), np.array([state[-1] for state in waiting])
    return Automaton(task.base, first, np.array(written), np.array(after), np.array(inputs), factor, carry)


def rules(task: Task) -> tuple[list[State], Step]:
    """The states before the units, and what one place does."""
    base, operation = task.base, task.operation
    if task.name in ("successor", "addition"):
        return [(int(task.name == "successor"),)], lambda state, digits: carried(sum(digits) + state[-1], (), base)
    if operation.second and base ** (2 * operation.second) <= MOST:
        weights = base ** np.arange(operation.second)
        starts: list[State] = [(*factor, 0) for factor in product(range(base), repeat=operation.second)]
        return starts, lambda state, digits: carried(
            int(weights @ state[:-1]) * digits[0] + state[-1], state[:-1], base
        )
    if operation.scratchpad and not operation.final_only:
        name = operation.operator or "SM"  # Parity adds modulo two
        return [(NEUTRAL[name](base),)], lambda state, digits: running(COMBINE[name](state[0], digits[0], base))
    raise InputError(f"{operation.title} has no certificate: what lower places mean for higher ones has no few states")


def carried(total: int, factor: State, base: int) -> tuple[int, State]:
    return total % base, (*factor, total // base)


def running(value: int) -> tuple[int, State]:
    return value, (value,)
