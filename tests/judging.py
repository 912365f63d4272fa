"""Hand-made scores for judges, and what a verdict says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from abc_nb.analysis.claims import Scores, Verdict

LENGTHS = (1, 2, 3, 6, 8, 10, 20, 60)
Place = tuple[str, str]  # task, model


def rows(
    runs: Mapping[Place, Sequence[Mapping[int, float]]],
    otherwise: float = 0.0,
    validation: Mapping[Place, Sequence[float]] | None = None,
    base: int | None = None,
) -> pd.DataFrame:
    """Evaluation rows (percent in, fractions out): of each run accuracy by length, `otherwise` where none is given."""
    made = []
    for place, seeds in runs.items():
        for seed, accuracy in enumerate(seeds):
            learned = 100.0 if validation is None or place not in validation else validation[place][seed]
            row = {"task": place[0], "model": place[1], "seed": seed, "validation": learned / 100}
            row |= {} if base is None else {"base": base}
            made += [row | {"length": n, "accuracy": accuracy.get(n, otherwise) / 100} for n in LENGTHS]
    return pd.DataFrame(made)


def scores(runs: Mapping[Place, Sequence[Mapping[int, float]]], **settings: object) -> Scores:
    return Scores(rows(runs, **settings))  # type: ignore[arg-type]


def at_sixty(*percent: float) -> list[dict[int, float]]:
    """Runs that are right on so much at sixty digits, one a seed."""
    return [{60: value} for value in percent]


def assert_judged(judged: Verdict, id: str, verdict: str, runs: str = "", *shown: str) -> None:
    assert (judged.id, judged.verdict, judged.runs) == (id, verdict, runs and f"{runs} runs agree")
    for part in shown:
        assert part in judged.finding
    assert judged.finding.endswith(".")
