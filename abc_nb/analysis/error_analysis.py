"""Mistakes: where answers go wrong, on which digits, and what far digits have to do with it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.further_tests import by_run
from abc_nb.bias.base import Near
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import TEST_SEED, exact_match


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
