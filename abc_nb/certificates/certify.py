"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from tqdm.auto import tqdm

from abc_nb.certificates.automaton import Automaton, automaton
from abc_nb.certificates.contexts import Block, contexts
from abc_nb.certificates.reach import shapes
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.states import States
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import evaluating

CHUNK = 2**17  # contexts between two looks at the clock
DELAY = 3  # seconds before a progress bar appears


@dataclass
class Tried:
    """What trying the contexts of one shape gave."""

    shape: Shape
    where: list[tuple[int, int]]  # (width, step)
    contexts: int = 0
    wrong: int = 0
    margin: float = float("inf")
    narrow: Block | None = None  # the context with the smallest margin
    examples: list[tuple[np.ndarray, int]] = field(default_factory=list)  # wrong ones: tokens, right token


def margins(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The right token's logit minus the largest other one."""
    own = logits.gather(1, right[:, None])
    return (own - logits.scatter(1, right[:, None], float("-inf")).amax(1, keepdim=True))[:, 0]


def chunks(shape: Shape, automaton: Automaton) -> Iterator[Block]:
    for block in contexts(shape, automaton):
        for start in range(0, len(block.right), CHUNK):
            part = slice(start, start + CHUNK)
            yield Block(block.values[part], block.right[part])


def tried(states: States, shape: Shape, where: list[tuple[int, int]], examples: int, bar: tqdm) -> Tried:
    found = Tried(shape, where)
    for block in chunks(shape, states.automaton):
        right = torch.from_numpy(block.right).to(states.device)
        margin = margins(states.logits(shape, block), right).cpu().numpy()
        found.contexts += len(margin)
        least = int(margin.argmin())
        if margin[least] < found.margin:
            found.margin = float(margin[least])
            found.narrow = Block(block.values[least : least + 1], block.right[least : least + 1])
        wrong = np.flatnonzero(~(margin > 0))
        found.wrong += len(wrong)
        for row in wrong[: max(0, examples - len(found.examples))]:
            found.examples.append((block.values[row], int(block.right[row])))
        bar.update(len(margin))
    return found


def try_all(model: Transformer, sampler: Sampler, zeros: bool = True, examples: int = 200) -> list[Tried]:
    rules = automaton(sampler.task)
    found = shapes(model, sampler, rules.settled, zeros)
    with evaluating(model), tqdm(unit="context", unit_scale=True, delay=DELAY) as bar:
        states = States(model, rules)
        results = []
        for shape, where in found.items():
            results.append(tried(states, shape, where, examples, bar))
    return results


if __name__ == "__main__":
    import sys

    import abc_nb

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        name, _, seed = name.partition(":")
        run = abc_nb.load(name, int(seed or 0))
        start = time.time()
        r = try_all(run.model(), run.experiment.sampler)
        print(name, seed, len(r), "shapes", sum(t.contexts for t in r), "contexts", sum(t.wrong for t in r), "wrong", min(t.margin for t in r), f"{time.time() - start:.1f} s", flush=True)
