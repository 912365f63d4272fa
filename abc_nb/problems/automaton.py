"""The automaton of a rule with few states: what each state writes at each place, and which state follows.

States are those that can be reached, from the units up. For sums the state is the carry; for a product with a short
factor, that factor and the carry; for Parity and lists, the running value. All that lower places mean for higher ones
is in the state, so contexts are exact.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.rules import Rule, Said

MOST_STATES = 5_000  # states: a factor of two digits has 4,951 in base 10


@dataclass(frozen=True, eq=False)
class Automaton:
    """States and inputs are numbered; input 0 is a place with zeros alone."""

    base: int
    start: np.ndarray  # states before the units
    output: np.ndarray  # (states, inputs): the digit that is written
    following: np.ndarray  # (states, inputs): the state after it
    digits: np.ndarray  # (inputs, operands): the digits of an input, one an operand of many digits
    short: np.ndarray  # (states, digits): of a short factor, units first; no columns without one

    @property
    def state_count(self) -> int:
        return len(self.output)

    @lru_cache  # noqa: B019 (few of them)
    def settled(self, empty: tuple[int, ...] = ()) -> int:
        """After how many places the set of possible states no longer changes.

        At these places `empty` operands have no digit. InputError where the set alternates for ever, as under a rule
        that treats every second place in another way.
        """
        largest, following = 1, self.following[:, (self.digits[:, list(empty)] == 0).all(1)]
        for start in self.start:  # a state is followed by states of the same factor alone
            states = np.flatnonzero((self.short == self.short[start]).all(1))
            follows = np.zeros((len(states), len(states)), np.float32)
            follows[np.arange(len(states))[:, None], np.searchsorted(states, following[states])] = 1
            power, places, earlier_power = follows, 1, follows
            while not np.array_equal(next_power := (power @ follows > 0).astype(np.float32), power):
                if np.array_equal(next_power, earlier_power):
                    raise InputError(
                        "no certificate: what lower places mean alternates from place to place for ever; let a token "
                        "stand for as many places as it takes until the rule repeats"
                    )
                power, places = next_power, places + 1
                if places.bit_count() == 1:  # at powers of two, so that every cycle is met (Brent 1980)
                    earlier_power = power
            largest = max(largest, places)
        return largest

    @cached_property
    def remaining(self) -> np.ndarray:
        """(states,): how many more places at which zeros stand the result needs; -1 where no number is enough."""
        dead, next_state = self.output[:, 0] == 0, self.following[:, 0]
        while not np.array_equal(still_dead := dead & dead[next_state], dead):  # zeros for ever
            dead = still_dead
        places = np.where(dead, 0, -1)
        while (reached := (places < 0) & (places[next_state] >= 0)).any():
            places[reached] = places[next_state[reached]] + 1
        return places

    def ignores_zeros(self, said: Said) -> bool:
        """Whether zeros in front of numbers leave an answer as it is: all that is written, or what is said last."""
        if said == "last":
            return bool((self.output[self.following, 0] == self.output).all())
        return bool((self.remaining[np.unique(self.following)] >= 0).all())

    @property
    def grows(self) -> int:
        """Places that a result can need more than its operands: none where it never ends, as a running value."""
        remaining = self.remaining[np.unique(self.following)]
        return 0 if (remaining < 0).any() else int(remaining.max())


@lru_cache(maxsize=256)
def automaton_of(rule: Rule) -> Automaton:
    """The automaton of a rule, with states in the order in which they are met; InputError for more than MOST_STATES."""
    base, short = rule.base, rule.short_digits
    inputs = np.array([*product(*(input_.alphabet.tolist() for input_ in rule.inputs[: rule.long_operands]))])
    states = [(factor, rule.start) for factor in product(rule.inputs[-1].alphabet.tolist(), repeat=short)]
    start, numbers = np.arange(len(states)), {state: number for number, state in enumerate(states)}
    output, following = [], []
    for factor, carry in states:  # grows while it is read, until no state is new
        value = [np.array(factor) @ base ** np.arange(short)] * bool(short)
        results = rule.step(carry, *inputs.T, *value)
        digits, carries = (np.broadcast_to(result, len(inputs)).tolist() for result in results)
        if unknown := {*digits}.difference(range(base)):
            raise InputError(f"{rule.name} writes token {min(unknown)}, but its alphabet has tokens 0 to {base - 1}")
        for next_carry in carries:
            if numbers.setdefault((factor, next_carry), len(states)) == len(states):
                states.append((factor, next_carry))
        if len(states) > MOST_STATES:
            raise no_automaton(rule)
        output.append(digits)
        following.append([numbers[factor, next_carry] for next_carry in carries])
    factors = np.array([factor for factor, _ in states], np.int64).reshape(len(states), short)
    return Automaton(base, start, np.array(output), np.array(following), inputs, factors)


def certified_automaton(rule: Rule) -> Automaton:
    """The automaton that a certificate needs; InputError for a task that is no local rule, or writes the end alone."""
    if rule.whole or rule.final_only:
        raise no_automaton(rule)
    automaton = automaton_of(rule)
    if rule.notation == "number" and not rule.larger_first and not automaton.ignores_zeros(rule.said):
        raise InputError(
            f'zeros in front of a number change what {rule.title} writes: choose "symbols" or "items" as its notation'
        )
    return automaton


def no_automaton(rule: Rule) -> InputError:
    return InputError(f"{rule.title} has no certificate: what lower places mean for higher ones has no few states")
