"""Training problems that show wrong contexts: numbers as long as those of training, and no longer.

Training starts the index at any of its residues. So a context that a whole problem shows at a high place alone may
be shown at a lower place too, with another start of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.counterexamples import Finder
from abc_nb.certificates.practice_tables import practice_of_tables
from abc_nb.certificates.reach import Unrolled
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.tried import Tried
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits, is_below
from abc_nb.problems.products import Product
from abc_nb.problems.sampling import Sampler


@dataclass(frozen=True)
class Practice:
    """What can be practised of some wrong contexts."""

    operands: list[Digits]  # (problems, places) each, least significant first, places as in the widest training width;
    # of tables followed by the size of each problem
    left: int  # wrong contexts that no training problem shows


def practice(model: Transformer, sampler: Sampler, results: Iterable[Tried]) -> Practice:
    """One training problem for each wrong context that `results` keeps, where there is one.

    InputError for a task whose problems are lists: a list in a wider layout is another list.
    """
    if isinstance(sampler.task, Product):
        return Practice(*practice_of_tables(sampler, [*results]))
    if not sampler.task.can_pad:
        raise InputError(f"{sampler.task.title} cannot be repaired: only numbers can be written at several widths")
    finder = Finder(model, sampler, sampler.task.automaton(), zeros=True)
    wrong = [each for each in results if each.wrong]
    where = places(finder, {each.shape for each in wrong})
    found, left = [], 0
    for each in wrong:
        problems = [shown(finder, each.shape, where.get(each.shape, []), *context) for context in each.examples]
        found += [problem for problem in problems if problem is not None]
        left += each.wrong - sum(problem is not None for problem in problems)
    columns = zip(*found, strict=True)
    return Practice([np.concatenate(column) for column in columns], left)


def places(finder: Finder, wanted: set[Shape]) -> dict[Shape, list[tuple[int, int]]]:
    """Where training shows a shape: the (width, step), lowest steps first."""
    found: dict[Shape, list[tuple[int, int]]] = {}
    for width in finder.sampler.widths:
        assert isinstance(width, int)
        for step, shape in shapes_in_training(finder, width):
            if shape in wanted:
                found.setdefault(shape, []).append((width, step))
    return {shape: sorted(steps, key=lambda pair: pair[::-1]) for shape, steps in found.items()}


def shapes_in_training(finder: Finder, width: int) -> Iterator[tuple[int, Shape]]:
    """The shape of every step of one width, for each start of the index."""
    for phase in range(finder.model.config.position.phases()):
        unrolled = Unrolled(finder.model, finder.sampler, width, finder.known.near, phase)
        kinds = unrolled.kinds(True, finder.known.narrowest)
        yield from enumerate(unrolled.shapes(kinds, finder.automaton.settled))


def shown(
    finder: Finder, shape: Shape, where: Iterable[tuple[int, int]], values: np.ndarray, right: int
) -> list[Digits] | None:
    """The operands of a training problem that holds a context, in the widest training width; None if there is none."""
    task, widest = finder.sampler.task, finder.sampler.widest
    for width, step in where:
        operands = finder.operands(shape, width, step, values, right, lead=False)
        if operands is None or not all(is_below(each, task.training_limit + 1, task.base)[0] for each in operands):
            continue
        return task.widen(operands, widest)
    return None
