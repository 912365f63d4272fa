"""What trying contexts gives: how many there are, which are wrong and where the margin is smallest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from abc_nb.certificates.contexts import Block
from abc_nb.certificates.shapes import Shape

NARROW = 64  # contexts with small margins that are kept of each chunk and in the end
EXAMPLES = 200  # wrong contexts that are kept of each shape; all are counted


@dataclass
class Tried:
    """What trying the contexts of one shape gave."""

    shape: Shape
    where: list[tuple[Any, int]]  # (width, step), narrowest first
    contexts: int = 0
    wrong: int = 0
    margin: float = float("inf")
    narrow: list[tuple[float, np.ndarray, int]] = field(default_factory=list)  # smallest margins: margin, tokens, right
    examples: list[tuple[np.ndarray, int]] = field(default_factory=list)  # wrong ones: tokens, right token

    def add(self, block: Block, margin: np.ndarray) -> None:
        least = np.argpartition(margin, NARROW)[:NARROW] if len(margin) > NARROW else np.arange(len(margin))
        narrow = [(float(margin[row]), block.values[row], int(block.right[row])) for row in least]
        wrong = np.flatnonzero(~(margin > 0))
        examples = [(block.values[row], int(block.right[row])) for row in wrong[:EXAMPLES]]
        found = Tried(self.shape, [], len(margin), len(wrong), float(margin.min()), narrow, examples)
        self.join(found)

    def join(self, other: Tried) -> None:
        """Add what trying other contexts of the same shape gave."""
        self.contexts += other.contexts
        self.wrong += other.wrong
        self.margin = min(self.margin, other.margin)
        self.narrow = sorted([*self.narrow, *other.narrow], key=lambda each: each[0])[:NARROW]
        self.examples = [*self.examples, *other.examples][:EXAMPLES]


def margins(logits: Tensor, right: Tensor) -> Tensor:
    """The right token's logit minus the largest other one."""
    own = logits.gather(1, right[:, None])
    return (own - logits.scatter(1, right[:, None], float("-inf")).amax(1, keepdim=True))[:, 0]
