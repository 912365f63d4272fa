"""Hand-made scores for judges, and what a verdict says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from helpers import rows

from abc_nb.analysis.claims import Scores, Verdict
from abc_nb.training.evaluation import wilson

LENGTHS = (3, 6, 10, 15, 20, 60, 200)
TASKS = ("Successor", "Addition", "N x 1", "Parity")
Place = tuple[str, str, int]  # task, model, length


def scores(
    models: Sequence[str],
    changed: Mapping[Place, float | list[float]] | None = None,
    value: float = 1.0,
    tasks: Sequence[str] = TASKS,
    lengths: Sequence[int] = LENGTHS,
) -> Scores:
    """The same accuracy everywhere, but for some places, which have one of their own or one a seed."""

    def seeds(place: Place) -> list[float]:
        found = (changed or {}).get(place, value)
        return found if isinstance(found, list) else [found]

    frames = [
        rows(model, {length: seeds((task, model, length)) for length in lengths}, task)
        for model in models
        for task in tasks
    ]
    return Scores(pd.concat(frames))


def interval(correct: int) -> str:
    low, high = wilson(correct, 1000)
    return f"[{100 * low:.2f}, {100 * high:.2f}]"


def assert_judged(judged: Verdict, id: str, verdict: str, *shown: str) -> None:
    assert (judged.id, judged.verdict) == (id, verdict)
    for part in shown:
        assert part in judged.figure
