"""Shapes: the tree of tokens that a step depends on, without the names of the places where they stand."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

# ("token", token, 0), ("factor", 0, place), ("digit", operand, place), ("output", 0, place); of tables see `tables`
Atom = tuple[str, int, int]


@dataclass(frozen=True)
class Token:
    """An embedded token with the residue of its index."""

    atom: Atom
    index: int

    @property
    def atoms(self) -> frozenset[Atom]:
        """The token, if it can vary."""
        return frozenset() if self.atom[0] == "token" else frozenset([self.atom])

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
        """The tokens that it depends on and that can vary."""
        return self.before.atoms.union(*(key.atoms for _, key in (*self.own, *self.cross)))

    def renamed(self, names: Mapping[int, int]) -> Node:
        """The same with other numbers for the places."""
        own = tuple((bias, key.renamed(names)) for bias, key in self.own)
        cross = tuple((bias, key.renamed(names)) for bias, key in self.cross)
        return Node(self.layer, self.before.renamed(names), own, cross)


@dataclass(frozen=True)
class Shape:
    """What all steps of one shape have in common: they compute the same function of the tokens at its atoms."""

    root: Node | Token
    atoms: tuple[Atom, ...]  # all that a context gives a value to
    case: tuple[Hashable, ...]  # what else decides which tokens can stand there, and which one is right
    label: int | None  # the right token where it is the same in every context
