"""What a task is, place by place: a machine, and the automaton of its states, that reads digits and writes digits.

From the units up, the state before a place and the digits of that place give the output digit and the
state after it. For sums the state is the carry; for a product with a factor of a few digits it is that factor and
the carry, which is less than it; for Parity and lists it is the running value. A state that says all that lower
places say about the ones above them makes the set of contexts exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import Digits

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
        return max(settled(relation(following, which == number)) for number in range(which.max() + 1))


def relation(following: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Which of some states can follow which one place later: booleans; what follows one of them is one of them."""
    names = np.cumsum(chosen) - 1
    follows = np.zeros((chosen.sum(), chosen.sum()), bool)
    follows[np.arange(len(follows))[:, None], names[following[chosen]]] = True
    return follows


def settled(relation: np.ndarray) -> int:
    """From which power on all powers of a relation are the same."""
    power, places = relation, 1
    while True:
        following = (power.astype(np.float32) @ relation.astype(np.float32)) > 0
        if np.array_equal(following, power):
            return places
        power, places = following, places + 1


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


class Machine:
    """What a task does place by place, and what a certificate needs to know of that."""

    base: int
    title: ClassVar[str]
    factor: ClassVar[int] = 0  # digits of a further operand that has only a few

    @property
    def long_operands(self) -> int:
        """How many operands have many digits."""
        return 1

    @property
    def inputs(self) -> np.ndarray:
        """The tokens that can stand at a place of an operand, zero first."""
        return np.arange(self.base)

    @property
    def start(self) -> int:
        """The state before the units, or before the first item."""
        return 0

    def step(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The output digit of one place and the state after it, from the state before it and the place's digits.

        A factor of a few digits comes last, as a number. All can be numbers, or arrays of them. InputError for a task
        that is no machine with few states.
        """
        raise self.uncertified()

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """The output tokens before the end, shape (samples, outputs): digits, place 0 first, or a table row by row."""
        long, few = operands[: self.long_operands], operands[self.long_operands :]
        factor = [digits @ self.base ** np.arange(self.factor) for digits in few]
        state, output = self.start, []
        for place in range(long[0].shape[1]):
            digit, state = self.step(state, *(operand[:, place] for operand in long), *factor)
            output.append(digit)
        return np.stack(output, axis=1)

    def automaton(self) -> Automaton:
        """All states and what they do; InputError for a task that is no machine with few states."""
        inputs = np.array([*product(self.inputs.tolist(), repeat=self.long_operands)])
        automaton = enumerated(self.step, self.start, self.base, inputs, self.factor)
        if automaton is None:
            raise self.uncertified()
        return automaton

    def uncertified(self) -> InputError:
        return InputError(f"{self.title} has no certificate: what lower places mean for higher ones has no few states")

    def kinds(self, width: int, lead: bool) -> list[Kind]:
        """Which digits each place of a width can hold; `lead`: one operand has as many digits as fit."""
        return ["any"] * width

    def covered(self, narrowest: int, zeros: bool) -> str:
        """The problems of a width W that a certificate covers, in words."""
        raise NotImplementedError

    @property
    def chance(self) -> float:
        """How often a guess is right where the output is one digit; 0 elsewhere."""
        return 0.0
