"""What a certificate needs to know of a task: the shapes of its steps, their contexts, and the right token of each.

There are two kinds of tasks. Outputs that follow the places of numbers or lists are in `places`, tables in `tables`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from abc_nb.certificates.shapes import Shape
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Width

if TYPE_CHECKING:
    from abc_nb.certificates.counterexamples import Counterexample
    from abc_nb.certificates.tried import Tried

Site = tuple[Width, int]  # where a step stands: the width of the problem, and how many output tokens come before it
Context = tuple[np.ndarray, int]  # the tokens at a shape's atoms, and the token that is right there


@dataclass(frozen=True)
class Block:
    """Contexts of one shape."""

    values: np.ndarray  # (contexts, atoms of the shape)
    right: np.ndarray  # (contexts,): the token that is right there


@dataclass(frozen=True)
class Candidate:
    """A problem that the model may get wrong."""

    width: Width
    operands: list[Digits]  # (1, places) each
    zeros: bool = False  # whether it may need the zeros in front of it to be wrong


class Contexts(ABC):
    """All that the steps of one model can look at."""

    reach: dict[str, int]  # how far they look, for the certificate
    narrowest: int  # width of all problems
    zeros: bool = True  # whether numbers may have any number of zeros in front

    def __init__(self, model: Transformer, sampler: Sampler) -> None:
        self.model, self.sampler, self.task = model, sampler, sampler.task

    @abstractmethod
    def check(self) -> None:
        """InputError for a model whose steps cannot all be covered, whatever its weights are; it says why."""

    @cached_property
    @abstractmethod
    def shapes(self) -> dict[Shape, list[Site]]:
        """Every shape that a step has in any problem, with the sites that were read, narrowest first."""

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """At most so many contexts does a shape have."""

    @abstractmethod
    def blocks(self, shape: Shape) -> Iterator[Block]:
        """All contexts of a shape, each once."""

    @abstractmethod
    def seen(self, batch: Batch, step: int) -> tuple[Shape, Block]:
        """The shape of a step, and its context in every problem of a batch."""

    @abstractmethod
    def problem(self, shape: Shape, context: Context, site: Site) -> list[Digits] | None:
        """The operands of a problem that holds a context at a site, (1, places) each; None if none is known."""

    @abstractmethod
    def candidates(self, wrong: Iterable[Tried]) -> list[Candidate]:
        """Problems that may show wrong contexts, those that people should see first."""

    @abstractmethod
    def in_training(self, wanted: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """Where problems of training show some shapes, the best sites for practice first."""

    def counterexamples(self, results: Sequence[Tried], most: int) -> list[Counterexample]:
        """The shortest problems that the model gets wrong, at most so many."""
        from abc_nb.certificates.counterexamples import counterexamples

        return counterexamples(self, results, most)

    def symbol(self, token: int) -> str:
        """A token as people read it."""
        return self.task.vocabulary[token]

    @property
    def facts(self) -> dict[str, Any]:
        """What the statement is about, for an independent check: nothing that follows from the model."""
        return {
            "task": self.task.name,
            "base": self.task.base,
            "arrangement": self.sampler.arrangement,
            "zeros": self.zeros,
            "narrowest": self.narrowest,
        }

    @abstractmethod
    def statement(self) -> str:
        """What is proven, in words, if no context is wrong."""

    @abstractmethod
    def named(self, shape: Shape, values: np.ndarray) -> dict[str, Any]:
        """The tokens of a context by names for people."""
