"""The shortest problem that shows a wrong context, verified by greedy decoding.

A walk over the automaton's states with the tokens of the context held fixed finds digits for all other
places, in the narrowest width where the shape occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.reach import Unrolled, reach
from abc_nb.certificates.shapes import Shape, kept_places, seen_places
from abc_nb.certificates.tried import Tried
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import Automaton, Kind
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import greedy


@dataclass(frozen=True)
class Counterexample:
    """A problem that the model gets wrong, in the form that `abc-nb compute` takes."""

    problem: str
    answer: str  # the model's, as a person writes it
    right: str
    token: int  # the first output token that is wrong, counted from the units = 0
    zeros: bool  # whether it is wrong only with these zeros in front, which `abc-nb compute` leaves out


@dataclass
class Finder:
    """Finds problems for wrong contexts of one model."""

    model: Transformer
    sampler: Sampler
    automaton: Automaton
    zeros: bool

    def __post_init__(self) -> None:
        self.known = reach(self.model, self.sampler, self.automaton.settled)
        self.widths: dict[int, Unrolled] = {}

    def unrolled(self, width: int) -> Unrolled:
        if width not in self.widths:
            self.widths[width] = Unrolled(self.model, self.sampler, width, self.known.near)
        return self.widths[width]

    def kept(self, width: int, step: int) -> list[int]:
        """The places of a width that the shape of a step keeps, as it numbers them."""
        unrolled = self.unrolled(width)
        root, asked = unrolled.node(unrolled.depth, step), step if step < width else None
        kinds = unrolled.kinds(self.zeros, self.known.narrowest)
        return kept_places(kinds, seen_places(root, asked), self.automaton.settled)

    def fixed(
        self, shape: Shape, width: int, step: int, values: np.ndarray, right: int
    ) -> dict[int, dict[tuple[str, int], int]]:
        """What a context says of each place in one width: digits by operand, the output digit; at -1 of the factor."""
        kept, asked = self.kept(width, step), step if step < width else None
        found: dict[int, dict[tuple[str, int], int]] = {}
        for (kind, number, place), value in zip(shape.atoms, values.tolist(), strict=True):
            if kind == "factor":
                found.setdefault(-1, {})[kind, place] = value
            else:
                found.setdefault(kept[place], {})[kind, number] = value
        if asked is not None:
            found.setdefault(asked, {})["output", 0] = right
        return found

    def operands(
        self, shape: Shape, width: int, step: int, values: np.ndarray, right: int, lead: bool
    ) -> list[Digits] | None:
        """The operands of a problem of one width that holds a context, or None if there is none."""
        fixed = self.fixed(shape, width, step, values, right)
        kinds: list[Kind] = self.unrolled(width).kinds(not lead, self.known.narrowest)
        path = shortest_walk(self.automaton, kinds, fixed)
        if path is None:
            return None
        start, inputs = path
        digits = self.automaton.digits[inputs]  # (places, operands)
        return [*(digits[None, :, number] for number in range(digits.shape[1])), *factor_of(self.automaton, start)]

    def candidates(self, tried: Tried) -> Iterator[tuple[int, list[Digits], bool]]:
        """For each wrong context the narrowest problem: its width, operands and whether zeros in front are needed."""
        for values, right in tried.examples:
            found = next(self.problems(tried, values, right), None)
            if found is not None:
                yield found

    def problems(self, tried: Tried, values: np.ndarray, right: int) -> Iterator[tuple[int, list[Digits], bool]]:
        for lead in (True, False)[: 1 + self.zeros]:
            for width, step in tried.where:
                operands = self.operands(tried.shape, width, step, values, right, lead)
                if operands is not None:
                    yield width, operands, not lead and width > self.known.narrowest


def factor_of(automaton: Automaton, state: int) -> list[Digits]:
    return [automaton.factor[state : state + 1]] if automaton.factor.shape[1] else []


def shortest_walk(
    automaton: Automaton, kinds: list[Kind], fixed: dict[int, dict[tuple[str, int], int]]
) -> tuple[int, np.ndarray] | None:
    """The start state and one input a place so that all that is fixed holds; the smallest inputs, or None."""
    allowed = [allowed_moves(automaton, kind, fixed.get(place, {})) for place, kind in enumerate(kinds)]
    alive = [np.ones(automaton.states, bool)]  # from which states the places above can be walked, highest first
    for moves in reversed(allowed):
        alive.insert(0, (moves & alive[0][automaton.following]).any(1))
    start = automaton.start[alive[0][automaton.start]]
    for (_, place), digit in fixed.get(-1, {}).items():
        start = start[automaton.factor[start, place] == digit]
    if not len(start):
        return None
    state, inputs = int(start[0]), []
    for moves, above in zip(allowed, alive[1:], strict=True):
        inputs.append(int((moves[state] & above[automaton.following[state]]).argmax()))
        state = int(automaton.following[state, inputs[-1]])
    return int(start[0]), np.array(inputs)


def allowed_moves(automaton: Automaton, kind: Kind, fixed: dict[tuple[str, int], int]) -> np.ndarray:
    """Which inputs a place can have in each state: booleans (states, inputs)."""
    allowed = np.ones(automaton.output.shape, bool)
    if kind != "any":
        zero = np.arange(len(automaton.digits)) == 0
        allowed &= zero if kind == "zero" else ~zero
    for (name, number), value in fixed.items():
        allowed &= automaton.output == value if name == "output" else automaton.digits[:, number] == value
    return allowed


def counterexamples(
    model: Transformer, sampler: Sampler, automaton: Automaton, tried: Iterable[Tried], limit: int, zeros: bool = True
) -> list[Counterexample]:
    """The shortest problems that the model gets wrong, one for each wrong context, each decoded greedily."""
    finder = Finder(model, sampler, automaton, zeros)
    found = [each for one in tried if one.wrong for each in finder.candidates(one)]
    found.sort(key=lambda each: (each[2], len(sampler.task.typed(each[1], each[2]))))
    shown: dict[str, Counterexample] = {}
    while found and len(shown) < limit:
        count = limit - len(shown)
        for example in decoded(model, sampler, found[:count]):
            shown.setdefault(example.problem, example)
        found = found[count:]
    return list(shown.values())


def decoded(
    model: Transformer, sampler: Sampler, problems: Sequence[tuple[int, list[Digits], bool]]
) -> list[Counterexample]:
    """Those that the model gets wrong, in their order; problems of one width are decoded together."""
    found: dict[int, Counterexample] = {}
    for width in {width for width, _, _ in problems}:
        rows = [row for row, problem in enumerate(problems) if problem[0] == width]
        operands = [np.concatenate(each) for each in zip(*(problems[row][1] for row in rows), strict=True)]
        batch = sampler.batch(operands, width)
        source = batch.source.to(next(model.parameters()).device)
        written = greedy(model, source, batch.layout, sampler.task.token(SOS)).cpu()
        for row, own, right in zip(rows, written.tolist(), batch.target[:, 1:].tolist(), strict=True):
            first = next((place for place, token in enumerate(right) if own[place] != token), None)
            if first is not None:
                text = sampler.task.typed(problems[row][1], problems[row][2])
                answer, correct = (sampler.task.write(tokens, batch.layout) for tokens in (own, right))
                found[row] = Counterexample(text, answer, correct, first, problems[row][2])
    return [found[row] for row in sorted(found)]
