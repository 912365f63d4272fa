"""The shortest problem that a model without a certificate gets wrong, as far as a search finds one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from abc_nb.analysis.results import identity
from abc_nb.certificates.counterexamples import Counterexample, decoded, typed
from abc_nb.model.transformer import Transformer
from abc_nb.problems.edge_cases import KINDS
from abc_nb.problems.expressions import widen
from abc_nb.problems.sampling import Sampler, generator, make_batch
from abc_nb.problems.tasks import Digits, Task
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, exact_match

LONGEST = 40  # places
TRIED = 50  # wrong problems of one length that are decoded


def shortest_wrong(
    model: Transformer, sampler: Sampler, samples: int = 200, longest: int = LONGEST
) -> Counterexample | None:
    """The shortest wrong problem among `samples` of each kind of hard problem at every number of places.

    Kinds are those of `edge_cases`: random digits, long carries, repeated digits. Problems are as wide as
    `abc-nb compute` writes them, and only what a person reads of the answer counts: zeros in front of it do not.
    A shorter wrong problem may exist, since not all are tried. None if no answer is wrong.
    """
    for places in range(1, longest + 1):
        wrong = sorted(wrong_problems(model, sampler, places, samples), key=lambda each: size(sampler.task, each))
        for operands in wrong[:TRIED]:
            width = sampler.task.width_for(places, sampler.regime)
            found = decoded(model, sampler, width, widen(operands, width, sampler.task), zeros=False)
            if found is not None and found.answer != found.right:
                return found
    return None


def wrong_problems(model: Transformer, sampler: Sampler, places: int, samples: int) -> Iterator[list[Digits]]:
    """Problems of exactly so many places that the model gets wrong, operands of (1, places) each."""
    task, width = sampler.task, sampler.task.width_for(places, sampler.regime)
    for number, make in enumerate(KINDS.values()):
        operands = make(task, places, samples, generator(TEST_SEED, places, number))
        batch = make_batch(task, widen(operands, width, task), width, sampler.arrangement)
        right = exact_match(model, batch).numpy()
        whole = np.any([digits[:, -1] > 0 for digits in operands if digits.shape[1] == places], axis=0)
        whole = whole | (places == 1) | task.operation.items
        for row in np.flatnonzero(~right & whole):
            yield [digits[row : row + 1] for digits in operands]


def size(task: Task, operands: Sequence[Digits]) -> tuple[int, str]:
    """What makes one problem come before another: fewer characters, then smaller digits."""
    text = typed(task, [*operands], zeros=False)
    return len(text), text


def table(runs: Sequence[Run], samples: int = 200) -> pd.DataFrame:
    """The shortest wrong problem found of each run: task, model, seed, problem, answer, right; empty where none was."""
    rows = []
    for run in runs:
        found = shortest_wrong(run.model(), run.experiment.sampler, samples)
        shown = {name: getattr(found, name, "") for name in ("problem", "answer", "right")}
        rows.append(identity(run) | {"seed": run.seed} | shown)
    return pd.DataFrame(rows)
