"""The automaton of a task that is a machine with few states, which reads and writes a digit at each place.

From the units up, the state before a place and the digits of that place give the output digit and the
state after it. For sums the state is the carry; for a product with a short factor, that factor and the carry; for
Parity and lists, the running value. If it says all that lower places say about higher ones, contexts are exact.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from abc_nb.problems.tasks import Task

MOST = 5_000  # states: a factor of two digits has 4,951 in base 10
# What digits a place can hold: all, zeros alone, all but zeros alone; or the operands that have no digit there.
Kind = Literal["any", "zero", "lead"] | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Automaton:
    """States and inputs are numbered; input 0 is a place with zeros alone."""

    base: int
    start: np.ndarray  # states before the units
    output: np.ndarray  # (states, inputs): the digit that is written
    following: np.ndarray  # (states, inputs): the state after it
    digits: np.ndarray  # (inputs, operands): the digits of an input, one an operand of many digits
    factor: np.ndarray  # (states, digits): of a short factor, units first; no columns without one

    @property
    def states(self) -> int:
        return len(self.output)

    @lru_cache  # noqa: B019 (few of them)
    def settled(self, empty: tuple[int, ...] = ()) -> int:
        """From how many places on, at which `empty` operands have no digit, their number makes no difference."""
        most, following = 1, self.following[:, (self.digits[:, list(empty)] == 0).all(1)]
        for start in self.start:  # a state is followed by states of the same factor alone
            states = np.flatnonzero((self.factor == self.factor[start]).all(1))
            follows = np.zeros((len(states), len(states)), np.float32)
            follows[np.arange(len(states))[:, None], np.searchsorted(states, following[states])] = 1
            power, places = follows, 1
            while not np.array_equal(further := (power @ follows > 0).astype(np.float32), power):
                power, places = further, places + 1
            most = max(most, places)
        return most


def automaton_of(task: "Task") -> Automaton:
    """The automaton of a task, with states in the order in which they are met; InputError for more than MOST."""
    base, few = task.base, task.factor
    inputs = np.array([*product(task.inputs.tolist(), repeat=task.long_operands)])
    states = [(factor, task.start) for factor in product(range(base), repeat=few)]
    first, numbers = np.arange(len(states)), {state: number for number, state in enumerate(states)}
    output, following = [], []
    for factor, carry in states:  # grows while it is read, until no state is new
        value = [np.array(factor) @ base ** np.arange(few)] * bool(few)
        digits, carries = (np.broadcast_to(part, len(inputs)).tolist() for part in task.step(carry, *inputs.T, *value))
        for after in carries:
            if numbers.setdefault((factor, after), len(states)) == len(states):
                states.append((factor, after))
        if len(states) > MOST:
            raise task.uncertified()
        output.append(digits)
        following.append([numbers[factor, after] for after in carries])
    factors = np.array([factor for factor, _ in states], np.int64).reshape(len(states), few)
    return Automaton(base, first, np.array(output), np.array(following), inputs, factors)
