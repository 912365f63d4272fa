"""What a certificate needs to know of a task: the shapes of its steps, their contexts, and the right token of each.

A shape is the tree of tokens that a step depends on, without the names of the places where they stand, and with what
these places can hold: see `reach`.

Outputs that follow the places of numbers or lists are in `places`, those that stand in a text in `text`, and tables in
`tables`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task, Width

# ("token", token, 0), ("factor", 0, place), ("digit", operand, place), ("output", 0, place), operands from 0 on; in
# leaves of tables they are numbered from 1, as in the names of lines: see `tables`.
Leaf = tuple[str, int, int]
# What digits a place can hold. any: every digit; highest: every digit, but not all of them zero;
# a tuple: these operands, numbered from 0, have no digit there, and others have any.
PlaceValues = Literal["any", "highest"] | tuple[int, ...]
Site = tuple[Width, int]  # where a step stands: the width of the problem, and how many output tokens come before it
Context = tuple[np.ndarray, int]  # the tokens at a shape's leaves, and the token that is right there


class Token(NamedTuple):
    """An embedded token with the residue of its index."""

    leaf: Leaf
    residue: int

    @property
    def leaves(self) -> frozenset[Leaf]:
        """The token, if it can vary."""
        return frozenset() if self.leaf[0] == "token" else frozenset([self.leaf])

    def renamed(self, names: Mapping[int, int]) -> "Token":
        kind, number, place = self.leaf
        return Token((kind, number, names[place]), self.residue) if kind in ("digit", "output") else self


@dataclass(frozen=True)
class Node:
    """A state of layer `layer`, and what it is computed from; each key with the bias of every head, as bytes.

    A state of the problem, which a decoder-only model has, has no `cross_keys`.
    """

    layer: int
    before: "Node | Token"
    self_keys: "tuple[tuple[bytes, Node | Token], ...]"
    cross_keys: "tuple[tuple[bytes, Node | Token], ...]"

    @cached_property
    def leaves(self) -> frozenset[Leaf]:
        """The tokens that it depends on and that can vary."""
        return self.before.leaves.union(*(key.leaves for _, key in (*self.self_keys, *self.cross_keys)))

    def renamed(self, names: Mapping[int, int]) -> "Node":
        """The same with other numbers for the places."""
        self_keys = tuple((bias, key.renamed(names)) for bias, key in self.self_keys)
        cross = tuple((bias, key.renamed(names)) for bias, key in self.cross_keys)
        return Node(self.layer, self.before.renamed(names), self_keys, cross)


@dataclass(frozen=True)
class Place:
    """One place of the numbers of a problem."""

    kind: PlaceValues
    digits: tuple[int, ...]  # the operands whose digit is seen
    output: bool  # whether the output digit is seen
    asked: bool  # whether it is the one to predict
    can_end: bool = False  # whether the answer ends here, unless more than zeros is left of the result

    @property
    def seen_count(self) -> int:
        """How many digits are seen here."""
        return len(self.digits) + self.output


class Case(NamedTuple):
    """What else decides, for a step that writes a table, which tokens can stand at its leaves and which is right."""

    first_row: bool
    first_column: bool
    reads: tuple[Leaf | None, ...]  # the leaves that the rule reads, None where nothing stands
    present: tuple[tuple[bool, ...], ...]  # which operands hold something at each leaf: see `TableContexts.present`


@dataclass(frozen=True)
class Shape:
    """What all steps of one shape share: they compute the same function of the tokens at its leaves."""

    root: Node
    leaves: tuple[Leaf, ...]  # all that a context gives a value to
    label: int | None  # the right token where it is the same in every context
    places: tuple[Place, ...] = ()  # from the units up, of outputs that follow places
    case: Case | None = None  # of tables


Wrong = Sequence[tuple[Shape, Context]]  # contexts that a model gets wrong


@dataclass(frozen=True)
class Block:
    """Contexts of one shape."""

    values: np.ndarray  # (contexts, leaves of the shape)
    right: np.ndarray  # (contexts,): the token that is right there

    def __len__(self) -> int:
        return len(self.right)

    def __getitem__(self, row: int) -> Context:
        return self.values[row], int(self.right[row])

    def part(self, rows: np.ndarray) -> "Block":
        return Block(self.values[rows], self.right[rows])

    @classmethod
    def of(cls, contexts: Iterable[Context]) -> "Block":
        """A block of contexts of one shape; there must be at least one."""
        values, right = zip(*contexts, strict=True)
        return cls(np.stack(values), np.array(right))


class Contexts(ABC):
    """All that a model's steps can look at, whatever its weights; InputError where they cannot all be covered."""

    task: Task
    config: ModelConfig
    statement: str  # what is proven, in words, if no context is wrong
    facts: dict[str, Any]  # more about the problems, for an independent check: nothing that follows from the model

    @abstractmethod
    def sites(self) -> Iterator[Site]:
        """Steps that show every shape of a step in any problem, the narrowest first."""

    @abstractmethod
    def shape(self, site: Site) -> Shape:
        """The shape of a step."""

    @cached_property
    def shapes(self) -> dict[Shape, list[Site]]:
        """Every shape, with the sites that were read."""
        shapes: dict[Shape, list[Site]] = {}
        for site in self.sites():
            shapes.setdefault(self.shape(site), []).append(site)
        return shapes

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """An upper bound on the contexts of a shape."""

    @cached_property
    def counts(self) -> dict[Shape, int]:
        """An upper bound for every shape."""
        return {shape: self.count(shape) for shape in self.shapes}

    @abstractmethod
    def blocks(self, shape: Shape) -> Iterator[Block]:
        """All contexts of a shape, each once."""

    @abstractmethod
    def tokens(self, batch: Batch, site: Site, leaf: Leaf) -> np.ndarray:
        """The tokens at a leaf of a step's shape, in every problem of a batch."""

    def width(self, layout: Layout) -> Width:
        """The width of a layout's problems, or both lengths where the two operands have different ones."""
        places = tuple(operand.places for operand in layout.operands)
        return (places[0], places[1]) if layout.unpadded and len(places) == 2 else layout.width

    def contexts_at(self, batch: Batch, step: int) -> tuple[Shape, Block]:
        """The shape of a step, and its context in every problem of a batch."""
        site = self.width(batch.layout), step
        shape = self.shape(site)
        values = np.empty((len(batch.source), len(shape.leaves)), np.int64)
        for number, leaf in enumerate(shape.leaves):
            values[:, number] = self.tokens(batch, site, leaf)
        return shape, Block(values, batch.target[:, step + 1].numpy())

    def problem(self, shape: Shape, context: Context, site: Site) -> list[Digits] | None:
        """The operands of a problem that holds a context at a site, (1, places) each; None if none is known."""
        return None

    def training_sites(self, shapes: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """The sites at which a problem of training is looked for, for each of these shapes; by default none."""
        return {shape: [] for shape in shapes}

    @abstractmethod
    def counterexamples(self, model: Transformer, wrong: Wrong) -> list[Counterexample]:
        """The shortest problems with wrong contexts that a model gets wrong; for tables among random problems."""
