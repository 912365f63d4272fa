"""Certifying a path: every context of every pattern is tried, against the whole vocabulary.

Contexts are those of `certificates.spans`, so the certificate holds for numbers of any lengths, and for any text around
them, since the path sees none. What rounding can change is not bounded here, as it is for this package's own layers:
the narrowest contexts are computed again in float64, and the certificate says how far float32 is from that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.assistant.contexts import Contexts, every_context
from abc_nb.assistant.path import Path
from abc_nb.bias.base import CLOSED
from abc_nb.problems.spans import Pattern

NARROW = 64  # contexts that are computed again in float64
SMALL = 1.0  # a margin below it is practised, too


@dataclass(frozen=True)
class Certificate:
    """What trying every context of a pattern gave."""

    form: str
    contexts: int
    wrong: int
    margin: float  # the smallest: the right token's logit minus that of the best other token of the vocabulary
    rounding: float  # how far float32 is from float64 at most, in the narrowest contexts
    problem: str  # the shortest that is wrong, if one is

    @property
    def certified(self) -> bool:
        """Whether every context is right."""
        return self.wrong == 0

    def __str__(self) -> str:
        if not self.certified:
            return (
                f"{self.form} is not certified: {self.wrong:,} of {self.contexts:,} contexts are wrong: {self.problem}"
            )
        return (
            f"Every answer to {self.form} is right, for numbers of any lengths and in any text: each of "
            f"{self.contexts:,} contexts is, by {self.margin:.2f} at least. Float32 and float64 differ by "
            f"{self.rounding:.0e} in the narrowest; for others rounding is not bounded."
        )


@torch.inference_mode()
def certify(path: Path, practice: list[tuple[Contexts, Tensor]] | None = None) -> list[Certificate]:
    """A certificate of each pattern; contexts that are wrong or nearly so, and what is right, go into `practice`."""
    return [certify_pattern(path, pattern, practice) for pattern in path.bias.patterns]


def certify_pattern(path: Path, pattern: Pattern, practice: list[tuple[Contexts, Tensor]] | None = None) -> Certificate:
    count, wrong, problem, narrow = 0, 0, "", list[tuple[float, Contexts, Tensor]]()
    for block in tqdm(every_context(path.bias, pattern), delay=3, leave=False, unit="block"):
        margin = lead(path(block.contexts), path.get_buffer("tokens")[block.right])
        poor, bad = (~(margin > SMALL)).nonzero()[:, 0], (~(margin > 0)).nonzero()[:, 0]
        count, wrong = count + len(margin), wrong + len(bad)
        found = [block.problem(row) for row in bad[:8].tolist()]
        problem = min([each for each in (problem, *found) if each], key=len, default="")
        if practice is not None and len(poor):
            practice.append((block.contexts.part(poor), block.right[poor]))
        least = int(margin.argmin())
        narrow.append(
            (float(margin[least]), block.contexts.part(slice(least, least + 1)), block.right[least : least + 1])
        )
    narrow = sorted(narrow, key=lambda each: each[0])[:NARROW]
    return Certificate(pattern.form, count, wrong, narrow[0][0], rounding(path, narrow), problem)


def lead(logits: Tensor, right: Tensor) -> Tensor:
    """By how much the right token leads, (N,)."""
    own = logits.gather(1, right[:, None])
    return (own - logits.scatter(1, right[:, None], CLOSED).amax(1, keepdim=True))[:, 0]


def rounding(path: Path, narrow: Sequence[tuple[float, Contexts, Tensor]]) -> float:
    """The most by which margins of some contexts differ from those in float64."""
    double = copy.deepcopy(path).double()
    return max(
        abs(float(lead(double(contexts), path.get_buffer("tokens")[right])) - margin)
        for margin, contexts, right in narrow
    )
