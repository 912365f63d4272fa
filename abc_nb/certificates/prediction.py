"""Accuracy at any length, computed from wrong contexts alone.

A problem is answered right exactly if none of its steps stands in a wrong context. Its digits are drawn one place
after another, from the units up, and the automaton's state says all that lower places mean for higher ones. So the
share of right problems is what is left of a Markov chain over that state and the wrong contexts which the digits so
far begin. By the proof in `reach`, a number of any length has the steps of a narrow one, of which one period in the
middle comes many times; its transition matrix is raised to that power.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abc_nb.certificates.places import PlaceContexts
from abc_nb.certificates.reach import period
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.tried import Tried, try_all
from abc_nb.certificates.walks import Fixed, allowed
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler

Begun = frozenset[tuple[int, int, int]]  # wrong contexts that all places so far agree with: (step, shape, context)
Mass = dict[Begun, np.ndarray]  # (states, columns): the probability of each state, beside what has begun


@dataclass(frozen=True)
class Match:
    """What one wrong context at one step says of the digits."""

    first: int  # the places that it says anything about
    last: int
    allowed: Mapping[int, np.ndarray]  # (states, inputs) of a place: what agrees with it


def predicted_accuracy(
    model: Transformer, sampler: Sampler, results: Iterable[Tried], lengths: Sequence[int]
) -> dict[int, float]:
    """The share of right problems among random ones of exactly so many digits, as test sets are drawn.

    Operands are uniform over the numbers of L digits, the first of which is no zero; a short factor is
    uniform; lists have L random items. `results` are all of `try_model`. InputError where wrong contexts are too
    many to be kept, where one depends on places far from each other, and for Parity, whose lengths are decimal.
    """
    wrong = [each for each in results if each.wrong]
    if any(each.wrong > len(each.examples) for each in wrong):
        raise InputError("accuracy is not computed from so many wrong contexts: a model that gets most right has few")
    chain = Chain(PlaceContexts(model, sampler), wrong)
    return {length: chain.accuracy(length) for length in lengths}


def wrong_contexts(model: Transformer, sampler: Sampler, certificate: Mapping[str, Any]) -> list[Tried]:
    """Every wrong context that a certificate counts, by shape: in the first wrong step of each counterexample.

    What comes before that step is right. Where the certificate does not show them all, every context is tried again.
    """
    contexts, found = PlaceContexts(model, sampler), dict[Shape, Tried]()
    for example in certificate["counterexamples"]:
        batch = sampler.typed_batch(example["problem"])
        shape, block = contexts.seen(batch, example["token"])
        each = found.setdefault(shape, Tried(shape, [(batch.layout.width, example["token"])]))
        if all((block.values[0] != known).any() for known, _ in each.examples):
            each.wrong += 1
            each.examples.append((block.values[0], int(block.right[0])))
    whole = sum(each.wrong for each in found.values()) == certificate["wrong"]
    return [*found.values()] if whole else try_all(contexts)


class Chain:
    """The chain of one model."""

    def __init__(self, contexts: PlaceContexts, wrong: Sequence[Tried]) -> None:
        self.contexts, self.rules, self.wrong = contexts, contexts.automaton, wrong
        self.numbers = {each.shape: number for number, each in enumerate(wrong)}
        self.far, self.period = contexts.known.far, period(contexts.model)
        # From here to as far from the highest place, each step has the shape of those a period before and after.
        self.middle = (3 * self.far + self.rules.settled + 1) + 2 * self.period
        self.known: dict[int, Matches] = {}
        self.periods: dict[int, tuple[list[Begun], list[np.ndarray]]] = {}  # by width

    def matches(self, width: int) -> Matches:
        if width not in self.known:
            self.known[width] = Matches(self, width)
        return self.known[width]

    def accuracy(self, length: int) -> float:
        """The share of right problems whose operands have so many digits."""
        task = self.contexts.sampler.task
        places = task.places(length)
        width = task.width_for(places, self.contexts.sampler.regime)
        assert isinstance(width, int)
        most = 2 * self.middle + 2 * self.period
        periods = max(0, -(-(width - most) // self.period))
        narrow = self.matches(width - periods * self.period)
        draw = [self.drawn(place, places - periods * self.period) for place in range(narrow.width)]
        mass = self.begin()
        for place in range(self.middle if periods else 0):
            mass = narrow.extend(mass, place, draw[place])
        if periods:
            narrow.check(self.middle, self.middle + self.period, self.far)
            mass = self.repeat(narrow, mass, draw[self.middle], periods)
        for place in range(self.middle if periods else 0, narrow.width):
            mass = narrow.extend(mass, place, draw[place])
        return min(1.0, float(sum(part.sum() for part in mass.values())))

    def begin(self) -> Mass:
        """The states before the units, which are equally likely."""
        found = np.zeros((self.rules.states, 1))
        found[self.rules.start] = 1 / len(self.rules.start)
        return {frozenset(): found}

    def drawn(self, place: int, places: int) -> np.ndarray:
        """The probability of each input at a place of numbers of so many digits."""
        possible = self.contexts.task.can_stand(self.rules.digits, place, places)
        return possible / possible.sum()

    def repeat(self, matches: Matches, mass: Mass, draw: np.ndarray, periods: int) -> Mass:
        """The mass after so many further periods in the middle; squares of a period's matrix are kept."""
        if matches.width not in self.periods:
            self.periods[matches.width] = self.one_period(matches, mass, draw)
        names, squares = self.periods[matches.width]
        end = np.concatenate([mass.get(begun, np.zeros((self.rules.states, 1))) for begun in names])
        for bit in range(periods.bit_length()):
            if bit == len(squares):
                squares.append(squares[-1] @ squares[-1])
            if periods >> bit & 1:
                end = squares[bit] @ end
        return dict(zip(names, np.split(end, len(names)), strict=True))

    def one_period(self, matches: Matches, mass: Mass, draw: np.ndarray) -> tuple[list[Begun], list[np.ndarray]]:
        """What can have begun in the middle, and the matrix from before a period to after it."""
        names, size, parts = [*mass], self.rules.states, dict[tuple[int, int], np.ndarray]()
        for number, begun in enumerate(names):  # grows while it is read, until nothing is new
            after: Mass = {begun: np.eye(size)}
            for place in range(self.middle, self.middle + self.period):
                after = matches.extend(after, place, draw)
            for found, part in after.items():
                back = frozenset((step - self.period, shape, context) for step, shape, context in found)
                if back not in names:
                    names.append(back)
                parts[names.index(back), number] = part
        matrix = np.zeros((len(names), size, len(names), size))
        for (after_it, before_it), part in parts.items():
            matrix[after_it, :, before_it] = part
        return names, [matrix.reshape(len(names) * size, -1)]


class Matches:
    """The wrong contexts of every step of one width, and what a place's digits do to those that have begun."""

    def __init__(self, chain: Chain, width: int) -> None:
        self.rules, self.width, self.known = chain.rules, width, dict[tuple[int, int, int], Match]()
        for step, shape in enumerate(chain.contexts.steps(width)):
            number = chain.numbers.get(shape)
            for context, each in enumerate(chain.wrong[number].examples if number is not None else []):
                given = chain.contexts.given(shape, each, (width, step))
                self.known[step, number or 0, context] = self.match(*given, min(step, width - 1))
        self.starting: dict[int, Begun] = {}
        for name, match in self.known.items():
            self.starting[match.first] = self.starting.get(match.first, frozenset()) | {name}

    def match(self, fixed: Fixed, factor: Mapping[int, int], step: int) -> Match:
        """A wrong context from what it says of each place and of the short factor."""
        places = [*fixed] or [step]
        agrees = {place: allowed(self.rules, "any", fixed.get(place, {})) for place in places}
        for digit, value in factor.items():
            agrees[min(places)] &= self.rules.factor[:, digit : digit + 1] == value
        return Match(min(places), max(places), agrees)

    def check(self, start: int, end: int, far: int) -> None:
        """InputError for a context at places from `start` to `end` that depends on places far from its step."""
        for (step, _, _), match in self.known.items():
            if match.first < end and match.last >= start and max(step - match.first, match.last - step) > far:
                raise InputError("accuracy is not computed: a wrong context depends on digits far from each other")

    def extend(self, mass: Mass, place: int, draw: np.ndarray) -> Mass:
        """The mass one place further; what completes a wrong context is gone."""
        found: Mass = {}
        grid = np.indices(self.rules.output.shape)
        state, given = grid[0], grid[1]
        for begun, part in mass.items():
            names = sorted(begun | self.starting.get(place, frozenset()))
            agrees = [self.known[name].allowed.get(place, np.True_) & (draw > 0) for name in names]
            code, right = np.zeros(state.shape, np.int64), np.broadcast_to(draw > 0, state.shape)
            left = [number for number, name in enumerate(names) if self.known[name].last > place]
            for bit, number in enumerate(left):
                code = code + (agrees[number] * np.int64(1) << bit)
            for number in {*range(len(names))} - {*left}:
                right = right & ~agrees[number]
            codes: list[int] = np.unique(code[right]).tolist()
            for each in codes:
                chosen = right & (code == each)
                matrix = np.zeros((self.rules.states,) * 2)
                np.add.at(matrix, (self.rules.following[chosen], state[chosen]), draw[given[chosen]])
                after = frozenset(names[number] for bit, number in enumerate(left) if each >> bit & 1)
                found[after] = found.get(after, 0.0) + matrix @ part
        return found
