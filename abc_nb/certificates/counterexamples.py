"""Problems that show wrong contexts, the shortest first, verified by greedy decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.contexts import Candidate, Contexts
from abc_nb.certificates.tried import Tried
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import greedy


@dataclass(frozen=True)
class Counterexample:
    """A problem that the model gets wrong, in the form that `abc-nb compute` takes."""

    problem: str
    answer: str  # the model's, as a person writes it
    right: str
    token: int  # the first output token that is wrong, counted from the units = 0
    zeros: bool  # whether it is wrong only with these zeros in front, which `abc-nb compute` leaves out


def counterexamples(contexts: Contexts, results: Iterable[Tried], most: int) -> list[Counterexample]:
    """The shortest problems that the model gets wrong, at most one for each wrong context."""
    task, wrong = contexts.task, [each for each in results if each.wrong]
    waiting, shown = contexts.candidates(wrong), dict[str, Counterexample]()
    waiting.sort(key=lambda each: (each.zeros, len(task.typed(each.operands, each.zeros))))
    while waiting and len(shown) < most:
        count = most - len(shown)
        for example in decoded(contexts.model, contexts.sampler, waiting[:count]):
            shown.setdefault(example.problem, example)
        waiting = waiting[count:]
    return list(shown.values())


def decoded(model: Transformer, sampler: Sampler, problems: Sequence[Candidate]) -> list[Counterexample]:
    """Those that the model gets wrong, in their order; problems of one width are decoded together."""
    found: dict[int, Counterexample] = {}
    for width in {each.width for each in problems}:
        rows = [row for row, each in enumerate(problems) if each.width == width]
        operands = [np.concatenate(each) for each in zip(*(problems[row].operands for row in rows), strict=True)]
        batch = sampler.batch(operands, width)
        source = batch.source.to(next(model.parameters()).device)
        written = greedy(model, source, batch.layout, sampler.task.token(SOS)).cpu()
        for row, own, right in zip(rows, written.tolist(), batch.target[:, 1:].tolist(), strict=True):
            first = next((place for place, token in enumerate(right) if own[place] != token), None)
            if first is not None:
                text = sampler.task.typed(problems[row].operands, problems[row].zeros)
                answer, correct = (sampler.task.write(tokens, batch.layout) for tokens in (own, right))
                found[row] = Counterexample(text, answer, correct, first, problems[row].zeros)
    return [found[row] for row in sorted(found)]
