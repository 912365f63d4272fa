"""The shortest problem that a model without a certificate gets wrong, as far as a search finds one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates.counterexamples import Counterexample, decoded, typed
from abc_nb.certificates.files import PLAIN
from abc_nb.experiments import ARITHMETIC
from abc_nb.model.transformer import Transformer
from abc_nb.problems.expressions import widen
from abc_nb.problems.sampling import Sampler, generator, make_batch, random_factors
from abc_nb.problems.tasks import Digits, Task
from abc_nb.training.evaluation import TEST_SEED, exact_match

STUDIES = ("baselines", "lora", "variants", "methods", "places", "decoder-only")  # whose models are searched
LONGEST = 40  # places
TRIED = 50  # wrong problems of one number of places that are decoded


def shortest_wrong(
    model: Transformer, sampler: Sampler, samples: int = 200, longest: int = LONGEST
) -> Counterexample | None:
    """The first wrong problem among `samples` of one place, of two, and so on to `longest`; None if there is none.

    Of those with equally many places it is the one with the fewest characters, then with the smallest digits. Problems
    are as wide as `abc-nb compute` writes them. Only the answer as a person writes it counts: zeros in front of it do
    not. Not all problems are tried, so a shorter one may exist.
    """
    for places in range(1, longest + 1):
        found = [each for each in wrong_problems(model, sampler, places, samples) if each.answer != each.right]
        if found:
            return min(found, key=lambda each: (len(each.problem), each.problem))
    return None


def wrong_problems(model: Transformer, sampler: Sampler, places: int, samples: int) -> list[Counterexample]:
    """Those of `samples` problems of so many places whose tokens are not all right, decoded greedily; at most TRIED."""
    task, width = sampler.task, sampler.task.width_for(places, sampler.regime)
    operands = widen(hard_operands(task, places, samples), width, task)
    wrong = np.flatnonzero(~exact_match(model, make_batch(task, operands, width, sampler.arrangement)).cpu().numpy())
    each_alone = [[digits[row : row + 1] for digits in operands] for row in wrong]
    each_alone.sort(key=lambda one: (len(typed(task, one, zeros=False)), typed(task, one, zeros=False)))
    return decoded(model, sampler, [(width, one, False) for one in each_alone[:TRIED]])


def hard_operands(task: Task, places: int, samples: int) -> list[Digits]:
    """Operands with at most `places` digits, the first with exactly so many (fewer only if they are all zero).

    Every second one has no more than two different digits, so that long carries and repeated digits come up. A
    second number is as long as the first in half of the problems, and shorter in the others.
    """
    rng = generator(TEST_SEED, places)
    first = random_factors(task, samples, places, rng)
    if not task.operation.items:
        first[:, -1] = np.maximum(first[:, -1], places > 1)
    if task.operation.second == 0:
        return [first]
    second = random_factors(task, samples, task.operand_places(places)[1], rng)
    if task.operation.second is None:
        shorter = rng.integers(1, places + 1, samples)[:, None]
        second[(np.arange(places) >= shorter) & (rng.random((samples, 1)) < 0.5)] = 0
    return [first, second]


def of_models_without_certificate(
    found: Results, samples: int = 200, tasks: Sequence[str] = ARITHMETIC
) -> pd.DataFrame:
    """The shortest wrong problem that is found of each model that has no certificate and whose weights are there.

    The columns are those of `certified.counterexamples`, the first seed alone. A model with no wrong problem up to
    `LONGEST` places has none in its row.
    """
    names = [name for name in found.names(*STUDIES) if name.model not in certified.EVERY and name.task in tasks]
    rows = []
    for run in found.first.existing(names):
        if run.has_weights:
            example = shortest_wrong(run.model(), run.experiment.sampler, samples)
            name, shown = run.experiment.identity, {each: getattr(example, each, "") for each in certified.SHOWN}
            rows.append({"task": name.task, "model": name.model, "seed": run.seed, "recipe": PLAIN} | shown)
    return pd.DataFrame(rows, columns=["task", "model", "seed", "recipe", *certified.SHOWN])


def of_every_model(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of every model that has one: from its certificate, or found by a search.

    The column `found by` says which.
    """
    parts = {"certificate": certified.counterexamples(found), "search": of_models_without_certificate(found)}
    frame = pd.concat([part.assign(**{"found by": how}) for how, part in parts.items()], ignore_index=True)
    return frame[frame.problem != ""].reset_index(drop=True)
