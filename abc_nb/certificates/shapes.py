"""Shapes: the tree of tokens that a step depends on, without the names of the places where they stand."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

from abc_nb.problems.automaton import Kind

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

    def renamed(self, names: Mapping[int, int]) -> "Token":
        kind, number, place = self.atom
        return Token((kind, number, names[place]), self.index) if kind in ("digit", "output") else self


@dataclass(frozen=True)
class Node:
    """A state of layer `layer`, and what it is computed from; each key with the bias of every head, as bytes.

    A state of the problem, which a decoder-only model has, looks at keys of its `own` alone.
    """

    layer: int
    before: "Node | Token"
    own: "tuple[tuple[bytes, Node | Token], ...]"
    cross: "tuple[tuple[bytes, Node | Token], ...]"

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The tokens that it depends on and that can vary."""
        return self.before.atoms.union(*(key.atoms for _, key in (*self.own, *self.cross)))

    def renamed(self, names: Mapping[int, int]) -> "Node":
        """The same with other numbers for the places."""
        own = tuple((bias, key.renamed(names)) for bias, key in self.own)
        cross = tuple((bias, key.renamed(names)) for bias, key in self.cross)
        return Node(self.layer, self.before.renamed(names), own, cross)


@dataclass(frozen=True)
class Place:
    """One place of the numbers of a problem."""

    kind: Kind
    digits: tuple[int, ...]  # the operands whose digit is seen
    output: bool  # whether the output digit is seen
    asked: bool  # whether it is the one to predict

    @property
    def seen(self) -> int:
        """How many digits are seen or asked for here."""
        return len(self.digits) + self.output + self.asked


@dataclass(frozen=True)
class Shape:
    """What all steps of one shape have in common: they compute the same function of the tokens at its atoms."""

    root: Node
    atoms: tuple[Atom, ...]  # all that a context gives a value to
    label: int | None  # the right token where it is the same in every context
    places: tuple[Place, ...] = ()  # from the units up, of outputs that follow places
    case: tuple[Hashable, ...] = ()  # of tables: what else decides which tokens can stand there, and which is right
