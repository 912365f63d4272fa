"""Wrong contexts read back from the counterexamples of a certificate.

The first token that a model gets wrong stands in a wrong context: what comes before it is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from abc_nb.certificates.certify import try_model
from abc_nb.certificates.counterexamples import Finder
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.tried import Tried
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch, Sampler


def wrong_contexts(model: Transformer, sampler: Sampler, certificate: Mapping[str, Any]) -> list[Tried]:
    """Every wrong context that a model's certificate counts, by shape.

    Where the certificate does not show them all, every context is tried again.
    """
    examples = [(example["problem"], example["token"]) for example in certificate["counterexamples"]]
    found = read_back(model, sampler, examples)
    return found if sum(each.wrong for each in found) == certificate["wrong"] else try_model(model, sampler)


def read_back(model: Transformer, sampler: Sampler, problems: Iterable[tuple[str, int]]) -> list[Tried]:
    """The contexts of some output tokens of problems, each once; zeros in front of a problem count."""
    finder = Finder(model, sampler, sampler.task.automaton(), zeros=True)
    found: dict[Shape, Tried] = {}
    for problem, step in problems:
        batch = sampler.typed_batch(problem)
        shape, values = context(finder, batch, step)
        right = int(batch.target[0, step + 1])
        each = found.setdefault(shape, Tried(shape, [(batch.layout.width, step)]))
        if all(right != other or (values != known).any() for known, other in each.examples):
            each.wrong += 1
            each.examples.append((values, right))
    return [*found.values()]


def context(finder: Finder, batch: Batch, step: int) -> tuple[Shape, np.ndarray]:
    """The shape of a step, and the tokens of the batch's first problem in the order of its atoms."""
    width = batch.layout.width
    unrolled, kept = finder.unrolled(width), finder.kept(width, step)
    kinds = unrolled.kinds(finder.zeros, finder.known.narrowest)
    shape = next(islice(unrolled.shapes(kinds, finder.automaton.settled), step, None))
    operands = batch.operands(torch.tensor([0]), finder.sampler.task)

    def token(kind: str, number: int, place: int) -> int:
        if kind == "factor":
            return int(operands[-1][0, place])
        return int(batch.target[0, kept[place] + 1] if kind == "output" else operands[number][0, kept[place]])

    return shape, np.array([token(*atom) for atom in shape.atoms], np.uint8)
