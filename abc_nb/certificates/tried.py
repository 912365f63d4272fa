"""Trying all contexts of all shapes: how many there are, which are wrong and where the margin is smallest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.certificates.contexts import Block, contexts
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.states import States

CHUNK = 2**17  # contexts between two steps of the progress bar
NARROW = 64  # contexts with small margins that are kept of each chunk and in the end
EXAMPLES = 200  # wrong contexts that are kept of each shape; all are counted
DELAY = 3  # seconds before a progress bar appears


@dataclass
class Tried:
    """What trying the contexts of one shape gave."""

    shape: Shape
    where: list[tuple[int, int]]  # (width, step), narrowest first
    contexts: int = 0
    wrong: int = 0
    margin: float = float("inf")
    narrow: list[tuple[float, np.ndarray, int]] = field(default_factory=list)  # smallest margins: margin, tokens, right
    examples: list[tuple[np.ndarray, int]] = field(default_factory=list)  # wrong ones: tokens, right token

    def add(self, block: Block, margin: np.ndarray) -> None:
        self.contexts += len(margin)
        self.margin = min(self.margin, float(margin.min()))
        least = np.argpartition(margin, NARROW)[:NARROW] if len(margin) > NARROW else np.arange(len(margin))
        self.narrow += [(float(margin[row]), block.values[row], int(block.right[row])) for row in least]
        self.narrow = sorted(self.narrow, key=lambda each: each[0])[:NARROW]
        wrong = np.flatnonzero(~(margin > 0))
        self.wrong += len(wrong)
        for row in wrong[: max(0, EXAMPLES - len(self.examples))]:
            self.examples.append((block.values[row], int(block.right[row])))


def margins(logits: Tensor, right: Tensor) -> Tensor:
    """The right token's logit minus the largest other one."""
    own = logits.gather(1, right[:, None])
    return (own - logits.scatter(1, right[:, None], float("-inf")).amax(1, keepdim=True))[:, 0]


def try_contexts(states: States, shape: Shape, where: list[tuple[int, int]], bar: tqdm) -> Tried:
    found = Tried(shape, where)
    for block in chunks(contexts(shape, states.automaton)):
        right = torch.from_numpy(block.right).to(states.device)
        found.add(block, margins(states.logits(shape, block), right).cpu().numpy())
        bar.update(len(block.right))
    return found


def chunks(blocks: Iterator[Block]) -> Iterator[Block]:
    for block in blocks:
        for start in range(0, len(block.right), CHUNK):
            part = slice(start, start + CHUNK)
            yield Block(block.values[part], block.right[part])


def try_all(states: States, shapes: dict[Shape, list[tuple[int, int]]]) -> list[Tried]:
    """All shapes in turn, with a progress bar where it takes more than a few seconds."""
    with tqdm(unit=" contexts", unit_scale=True, delay=DELAY, mininterval=1, leave=False) as bar:
        found = []
        for number, (shape, where) in enumerate(shapes.items(), 1):
            bar.set_description(f"shape {number} of {len(shapes)}", refresh=False)
            found.append(try_contexts(states, shape, where, bar))
    return found
