"""The automaton of a task that is a machine with few states, which reads and writes a digit at each place.

From the units up, the state before a place and the digits of that place give the output digit and the
state after it. For sums the state is the carry; for a product with a factor of a few digits it is that factor and
the carry, which is less than it; for Parity and lists it is the running value. A state that says all that lower
places say about the ones above them makes the set of contexts exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

MOST = 5_000  # states: a factor of two digits has 4,951 in base 10
# What digits a place can hold: all, zeros alone, all but zeros alone; or the operands that have no digit there.
Kind = Literal["any", "zero", "lead"] | tuple[int, ...]
Step = Callable[..., tuple[np.ndarray, np.ndarray]]  # see `Task.step`


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
        return self.settled_under(())

    def settled_under(self, empty: tuple[int, ...]) -> int:
        """The same of places at which some operands have no digit."""
        _, which = np.unique(self.factor, axis=0, return_inverse=True)
        following = self.following[:, (self.digits[:, list(empty)] == 0).all(1)]
        return max(settled(following, which == number) for number in range(which.max() + 1))


def settled(following: np.ndarray, chosen: np.ndarray) -> int:
    """From how many places on the same of some states follow each other; what follows one of them is one of them."""
    names = np.cumsum(chosen) - 1
    follows = np.zeros((chosen.sum(), chosen.sum()), np.float32)
    follows[np.arange(len(follows))[:, None], names[following[chosen]]] = 1
    power, places = follows, 1
    while not np.array_equal(further := (power @ follows > 0).astype(np.float32), power):
        power, places = further, places + 1
    return places


def enumerated(step: Step, start: int, base: int, inputs: np.ndarray, few: int) -> Automaton | None:
    """The automaton of a step, with states numbered in the order in which they are met; None for more than MOST.

    `inputs` (inputs, operands) are the digits that can stand at a place, zeros first, and `few` is the number of digits
    of a short factor.
    """
    factors = np.array([*product(range(base), repeat=few)]).reshape(base**few, few)
    states = [(number, start) for number in range(len(factors))]
    numbers = {state: number for number, state in enumerate(states)}
    output, following = [], []
    for factor, carry in states:  # grows while it is read, until no state is new
        value = [factors[factor] @ base ** np.arange(few)] * bool(few)
        digits, carries = (np.broadcast_to(part, len(inputs)).tolist() for part in step(carry, *inputs.T, *value))
        for after in carries:
            if (factor, after) not in numbers:
                numbers[factor, after] = len(states)
                states.append((factor, after))
        if len(states) > MOST:
            return None
        output.append(digits)
        following.append([numbers[factor, after] for after in carries])
    of_factor, carry_of = np.array(states).T
    start_states = np.arange(len(factors))
    return Automaton(base, start_states, np.array(output), np.array(following), inputs, factors[of_factor], carry_of)
