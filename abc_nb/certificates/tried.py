"""Shapes with equal trees give equal logits, so a context that was tried in one shape is skipped in the others.

Steps near the units show contexts that higher steps show, too, under other names of places: a quarter of those of ABS.
"""

from collections import Counter

import numpy as np

from abc_nb.certificates.automaton_walks import LARGEST
from abc_nb.certificates.contexts import Block, Contexts, Shape, Token
from abc_nb.model.transformer import Transformer

REMEMBERED = 2**25  # contexts of one shape that are remembered


class TriedContexts:
    """The contexts that are right for sure, of the first shape of each tree that several shapes have."""

    def __init__(self, contexts: Contexts, model: Transformer) -> None:
        counts, self.token_count = contexts.counts, model.embedding.num_embeddings
        self.order = sorted(counts, key=counts.__getitem__, reverse=True)
        self.trees = {shape: unnamed(shape) for shape in counts}
        shape_counts = Counter(self.trees.values())
        small = [shape for shape in self.order if counts[shape] <= REMEMBERED]
        small = [shape for shape in small if self.token_count ** (len(shape.leaves) + 1) < LARGEST]
        first_shapes = {self.trees[shape]: shape for shape in reversed(small)}
        self.remembered = {shape for tree, shape in first_shapes.items() if shape_counts[tree] > 1}
        self.codes: dict[object, list[np.ndarray]] = {}  # of contexts that are right for sure

    def untried(self, shape: Shape, block: Block) -> Block:
        """The contexts of a block that are not known to be right."""
        tried = self.codes.get(self.trees[shape])
        if shape in self.remembered or tried is None:
            return block
        if len(tried) > 1:
            tried[:] = [np.sort(np.concatenate(tried))]
        codes = self.code(block)
        indices = np.searchsorted(tried[0], codes).clip(max=len(tried[0]) - 1)
        return block.part(np.flatnonzero(tried[0][indices] != codes))

    def add(self, shape: Shape, block: Block, sure: np.ndarray) -> None:
        """Remember the contexts of a block that are right for sure; `sure` says which."""
        if shape in self.remembered and sure.any():
            self.codes.setdefault(self.trees[shape], []).append(self.code(block)[sure])

    def code(self, block: Block) -> np.ndarray:
        """One number for each context with its right token."""
        code = np.zeros(len(block), np.int64)
        for column in (*block.values.T, block.right):
            code = code * self.token_count + column
        return code


def unnamed(shape: Shape) -> tuple[object, ...]:
    """The tree of a shape and its leaves, with places numbered from the lowest one that is seen."""
    places = sorted({place for kind, _, place in shape.leaves if kind in ("digit", "output")})
    names = {place: number for number, place in enumerate(places)}
    return shape.root.renamed(names), tuple(Token(leaf, 0).renamed(names).leaf for leaf in shape.leaves)
