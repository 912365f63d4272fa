"""A look at contexts: which of them a model gets wrong, in plain arithmetic and without a bound, so it is no proof."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from abc_nb.certificates.certify import Margins
from abc_nb.certificates.contexts import Block, Context, Contexts, Shape
from abc_nb.certificates.rounding import Unbounded
from abc_nb.common.devices import one_thread
from abc_nb.model.transformer import Transformer
from abc_nb.training.evaluation import evaluating

EXAMPLES = 100  # wrong contexts of one shape that are kept, and as many narrow ones of a block
NARROW_MARGIN = 0.5  # a margin below it is narrow: what is practised beside such a context could turn it wrong
Known = dict[Shape, dict[bytes, Context]]  # contexts of each shape, by their tokens


@dataclass
class Look:
    """What a model gets wrong, of the contexts that were looked at."""

    wrong: dict[Shape, int] = field(default_factory=dict)  # how many, of each shape that has such
    poor: Known = field(default_factory=dict)  # some that are wrong or narrow, of each shape that has such

    def add(self, shape: Shape, block: Block, margins: np.ndarray) -> int:
        """Count a block whose right tokens lead by these margins; how many wrong contexts of it are kept."""
        room = max(0, EXAMPLES - len(self.poor.get(shape, {})))
        wrong = np.flatnonzero(~(margins > 0))
        narrow = np.flatnonzero((margins > 0) & (margins < NARROW_MARGIN))
        for row in (*wrong[:room], *narrow[:EXAMPLES]):
            self.poor.setdefault(shape, {})[block.values[row].tobytes()] = block[row]
        if len(wrong):
            self.wrong[shape] = self.wrong.get(shape, 0) + len(wrong)
        return min(room, len(wrong))


def wrong_contexts(
    model: Transformer,
    contexts: Contexts,
    first: Known | None = None,
    enough: float = math.inf,
    count: Callable[[int], None] = lambda _: None,
) -> Look:
    """A look at the `first` contexts, and then at all, in plain arithmetic, until so many wrong ones are kept.

    `count` is told how many there were in each block. A look that does not end early counts all that are wrong.
    """
    look, margins_of = Look(), Margins(Unbounded(model), contexts, torch.get_num_threads())
    known = ((shape, block_of(some)) for shape, some in (first or {}).items())
    every = ((shape, block) for shape in contexts.shapes for block in contexts.blocks(shape) if len(block))
    with one_thread(), evaluating(model):
        for blocks, again in ((known, True), (every, False)):
            look.wrong, kept = {}, 0
            for shape, block in blocks:
                margins, _ = margins_of(shape, block)
                kept += look.add(shape, block, margins)
                if not again:
                    count(len(block))
                if kept >= enough:
                    return look
    return look


def block_of(contexts: dict[bytes, Context]) -> Block:
    """Contexts of one shape together."""
    values, right = zip(*contexts.values(), strict=True)
    return Block(np.stack(values), np.array(right))
