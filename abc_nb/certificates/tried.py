"""Trying every context of every shape: how many there are, which are wrong and where the margin is smallest."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.certificates.contexts import Block, Context, Contexts, Site
from abc_nb.certificates.shapes import Node, Shape
from abc_nb.certificates.states import States
from abc_nb.common.errors import InputError
from abc_nb.training.evaluation import evaluating

MOST = 2 * 10**9  # contexts: at three millionths of a second each they take 100 minutes
NARROW = 64  # contexts with small margins that are kept of each block and in the end
EXAMPLES = 200  # wrong contexts that are kept of each shape; all are counted


@dataclass
class Tried:
    """What trying the contexts of one shape gave."""

    shape: Shape
    where: list[Site]  # narrowest first
    contexts: int = 0
    wrong: int = 0
    narrow: list[tuple[float, Context]] = field(default_factory=list)  # the smallest margins, the smallest first
    examples: list[Context] = field(default_factory=list)  # wrong ones

    @property
    def margin(self) -> float:
        return self.narrow[0][0]

    def add(self, block: Block, margin: np.ndarray) -> None:
        """Count a block whose right tokens lead by these margins."""
        wrong = np.flatnonzero(~(margin > 0))
        self.contexts += len(margin)
        self.wrong += len(wrong)
        self.examples += [(block.values[row], int(block.right[row])) for row in wrong[: EXAMPLES - len(self.examples)]]
        least = np.argpartition(margin, NARROW)[:NARROW] if len(margin) > NARROW else np.arange(len(margin))
        self.narrow += [(float(margin[row]), (block.values[row], int(block.right[row]))) for row in least]
        self.narrow = sorted(self.narrow, key=lambda each: each[0])[:NARROW]


def try_all(contexts: Contexts) -> list[Tried]:
    """Every shape in turn, with a progress bar where it takes more than a few seconds.

    InputError where there are too many contexts, or the model can have no certificate.
    """
    counts = {shape: contexts.count(shape) for shape in contexts.shapes}
    total = sum(counts.values())
    if total > MOST:
        raise InputError(f"no certificate: there are {total:,} contexts, and at most {MOST:,} are tried")
    found = []
    with (
        evaluating(contexts.model),
        tqdm(total=total, unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar,
    ):
        for shape, where in contexts.shapes.items():
            tried = Tried(shape, where)
            for block in contexts.blocks(shape):
                if len(block.right):
                    tried.add(block, margins_of(contexts, shape, block).cpu().numpy())
                    bar.update(len(block.right))
            bar.update(counts[shape] - tried.contexts)
            found += [tried] * (tried.contexts > 0)
    return found


def margins_of(contexts: Contexts, shape: Shape, block: Block) -> Tensor:
    """By how much the right token leads in each context of a block."""
    assert isinstance(shape.root, Node)
    logits = States(contexts.model, shape.atoms, block.values).logits(shape.root)
    return margins(logits, torch.from_numpy(block.right).to(logits.device))


def margins(logits: Tensor, right: Tensor) -> Tensor:
    """The right token's logit minus the largest other one."""
    own = logits.gather(1, right[:, None])
    return (own - logits.scatter(1, right[:, None], float("-inf")).amax(1, keepdim=True))[:, 0]
