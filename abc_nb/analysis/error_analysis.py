"""Mistakes: where answers go wrong, on which digits, and what far digits have to do with it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from abc_nb.analysis.attention import far_shares
from abc_nb.analysis.further_tests import by_run
from abc_nb.analysis.results import identity
from abc_nb.bias.base import Near
from abc_nb.experiments.catalogue import PERIOD
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import DIGITS
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, correct_digits, exact_match


def first_errors(runs: Sequence[Run], lengths: Sequence[int], samples: int = 500) -> pd.DataFrame:
    """How many answers are wrong (percent), and of those, where the first wrong token is (percent).

    Columns task, model, seed, length, samples, wrong, first digit, later digit, end token.
    """

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        right = correct_digits(model, sampler.test_batch(length, samples, TEST_SEED))
        wrong = ~right[~right.all(1)]
        place = wrong.float().argmax(1)
        last = right.shape[1] - 1
        found = {"first digit": place == 0, "later digit": (place > 0) & (place < last), "end token": place == last}
        shares = {name: 100 * chosen.float().mean().item() for name, chosen in found.items()}  # NaN if all are right
        return pd.DataFrame([{"samples": len(right), "wrong": 100 * len(wrong) / len(right), **shares}])

    return by_run(runs, lengths, measure)


def far_attention(runs: Sequence[Run], lengths: Sequence[int], samples: int = 16) -> pd.DataFrame:
    """Attention (percent) that goes to digits more than two places away: task, model, seed, length, cross, self."""

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        found = far_shares(model, sampler.test_batch(length, samples, TEST_SEED))
        return pd.DataFrame([{"cross": 100 * found["cross"], "self": 100 * found["self"]}])

    return by_run(runs, lengths, measure)


def without_far_digits(runs: Sequence[Run], lengths: Sequence[int], samples: int = 200, reach: int = 2) -> pd.DataFrame:
    """Exact match (percent) of models as they are, and with far digits closed at test: no weight is changed.

    Columns task, model, seed, length, samples, open, closed.
    """

    def measure(model: Transformer, sampler: Sampler, length: int) -> pd.DataFrame:
        batch = sampler.test_batch(length, samples, TEST_SEED)
        tested = {"open": model, "closed": model.with_bias(Near(reach))}
        shares = {name: 100 * exact_match(each, batch).float().mean().item() for name, each in tested.items()}
        return pd.DataFrame([{"samples": len(batch.source), **shares}])

    return by_run(runs, lengths, measure)


def imperfect(runs: Sequence[Run]) -> list[Run]:
    """The runs that are not always right at the longest length."""
    return [run for run in runs if run.evaluation().accuracy.iloc[-1] < 1]


def all_wrong_digits(runs: Sequence[Run]) -> pd.DataFrame:
    """`wrong_digits` of several runs, with task, model and seed in front."""
    columns = ["task", "model", "seed", "problem", "place", "residue", "operand 1", "operand 2"]
    parts = [wrong_digits(run).assign(**identity(run), seed=run.seed) for run in runs]
    return pd.concat([pd.DataFrame(columns=columns), *parts], ignore_index=True)[columns].fillna("")


def contexts(wrong: pd.DataFrame, most: int = 5) -> pd.DataFrame:
    """`all_wrong_digits` counted by what stands there: residue, operands' digits, `here`; of each run the `most`.

    Task, model, seed, and how much is wrong in all (problems, digits, contexts) stand in front.
    """
    run, context = ["task", "model", "seed"], ["residue", "operand 1", "operand 2"]
    runs = wrong.groupby(run, sort=False).agg(problems=("problem", "nunique"), digits=("place", "size"))
    counted = wrong.groupby([*run, *context], sort=False).size().rename("here").reset_index()
    runs["contexts"] = counted.groupby(run, sort=False).size()
    ordered = counted.sort_values("here", ascending=False, kind="stable").groupby(run, sort=False).head(most)
    return runs.join(ordered.set_index(run)).reset_index()


def wrong_digits(run: Run, below: int = 2) -> pd.DataFrame:
    """Every wrong output token at the longest length that a run was tested on, with what stands there.

    Columns problem, place (0: units), residue (of the period 3), and for each operand its digits at this
    place and at those `below` it, most significant first; a single digit stands for itself.
    """
    batch = run.experiment.sampler.test_batch(*run.experiment.tests[-1], TEST_SEED)
    operands = batch.operands(torch.arange(len(batch.source)), run.experiment.task)
    rows = []
    for problem, place in (~correct_digits(run.model(), batch)).nonzero().tolist():
        row = {"problem": problem, "place": place, "residue": place % PERIOD}
        for i, digits in enumerate(operands):
            here = min(place, digits.shape[1] - 1)
            chosen = digits[problem, max(0, here - below) : here + 1]
            row[f"operand {i + 1}"] = "".join(DIGITS[digit] for digit in reversed(chosen.tolist()))
        rows.append(row)
    return pd.DataFrame(rows)
