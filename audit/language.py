"""Language models side by side: the loss on text, and problems answered right in it."""

from collections.abc import Mapping, Sequence

import pandas as pd

from abc_nb.language.evaluation import TEXT_TESTS
from abc_nb.runs.store import Run
from audit.statistics import ends


def compared(runs: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """A row a model, from the runs of its seeds.

    The lowest loss on held-out text before practice, in nats per character over the seeds; percent right at each
    length, of the worst task and seed; seeds certified on every task.
    """
    return pd.DataFrame({name: summary(of_model) for name, of_model in runs.items()}).T.rename_axis("model")


def summary(runs: Sequence[Run]) -> dict[str, str]:
    """The row of one model."""
    losses = []
    for run in runs:
        history = run.table("history")
        losses.append(history[history.step <= run.facts["trained"]["steps"]].text.min())
    row = {"lowest loss": ends([f"{loss:.3f}" for loss in sorted(losses)])}
    tests = pd.concat([run.evaluation() for run in runs])
    for length, _ in TEXT_TESTS:
        accuracy = tests.accuracy[tests.length == length]
        row[f"{length:,} digits"] = f"{100 * accuracy.min():.0f}" if len(accuracy) else "–"
    proven = [all(record["certified"] for record in run.certificates) for run in runs if run.spec.rounds]
    row["certified"] = f"{sum(proven)} of {len(proven)}" if proven else "–"
    return row
