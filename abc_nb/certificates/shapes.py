"""Shapes: the tree of tokens that a state depends on, and the places that hold them, without their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from abc_nb.problems.automaton import Kind

# ("token", token, 0), ("factor", 0, place), ("digit", operand, place), ("output", 0, place)
Atom = tuple[str, int, int]


@dataclass(frozen=True)
class Token:
    """An embedded token with the residue of its index."""

    atom: Atom
    index: int

    @property
    def atoms(self) -> frozenset[Atom]:
        return frozenset([self.atom])

    def renamed(self, names: Mapping[int, int]) -> Token:
        kind, number, place = self.atom
        return replace(self, atom=(kind, number, names[place])) if kind in ("digit", "output") else self


@dataclass(frozen=True)
class Node:
    """A state of layer `layer`, and what it is computed from; each key with the bias of every head, as bytes.

    A state of the problem, which a decoder-only model has, looks at keys of its `own` alone.
    """

    layer: int
    before: Node | Token
    own: tuple[tuple[bytes, Node | Token], ...]
    cross: tuple[tuple[bytes, Node | Token], ...]

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        keys = [self.before, *(key for _, key in self.own), *(key for _, key in self.cross)]
        return frozenset().union(*(key.atoms for key in keys))

    def renamed(self, names: Mapping[int, int]) -> Node:
        own = tuple((bias, key.renamed(names)) for bias, key in self.own)
        cross = tuple((bias, key.renamed(names)) for bias, key in self.cross)
        return Node(self.layer, self.before.renamed(names), own, cross)


@dataclass(frozen=True)
class Place:
    """One place that a walk from the units up comes through."""

    kind: Kind
    digits: tuple[int, ...]  # the operands whose digit is seen
    output: bool  # whether the output digit is seen
    asked: bool  # whether it is the one to predict


@dataclass(frozen=True)
class Shape:
    """A tree whose atoms name places by their number in `places`; what nothing sees is cut short."""

    root: Node | Token
    places: tuple[Place, ...]
    label: int | None  # the right token where it is no digit

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """The tokens that can vary, in the order in which a walk meets them."""
        found = sorted(atom for atom in self.root.atoms if atom[0] == "factor")
        for number, place in enumerate(self.places):
            found += [("digit", operand, number) for operand in place.digits]
            found += [("output", 0, number)] if place.output else []
        return tuple(found)


def condensed(
    root: Node | Token, kinds: Sequence[Kind], asked: int | None, settled: int, label: int | None = None
) -> Shape:
    """The shape of a tree whose atoms name places by their number in `kinds`."""
    seen = seen_places(root, asked)
    kept = kept_places(kinds, seen, settled)
    names = {place: number for number, place in enumerate(kept)}
    places = []
    for place in kept:
        atoms = seen.get(place, set())
        digits = tuple(sorted(number for kind, number, _ in atoms if kind == "digit"))
        places.append(Place(kinds[place], digits, ("output", 0, place) in atoms, place == asked))
    return Shape(root.renamed(names), tuple(places), label)


def seen_places(root: Node | Token, asked: int | None) -> dict[int, set[Atom]]:
    """The places of which a tree sees a digit or the output, or whose output is asked for."""
    seen: dict[int, set[Atom]] = {} if asked is None else {asked: set()}
    for atom in root.atoms:
        if atom[0] in ("digit", "output"):
            seen.setdefault(atom[2], set()).add(atom)
    return seen


def kept_places(kinds: Sequence[Kind], seen: Mapping[int, object], settled: int) -> list[int]:
    """Places up to the last one that is seen; of those in between that hold any digits unseen, `settled` in a row."""
    kept: list[int] = []
    unseen = 0
    for place in range(max(seen, default=-1) + 1):
        unseen = unseen + 1 if place not in seen and kinds[place] == "any" else 0
        if unseen <= settled:
            kept.append(place)
    return kept
