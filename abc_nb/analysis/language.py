"""Language models side by side: the loss on text, and problems answered right in it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from abc_nb.analysis.statistics import ends
from abc_nb.language.evaluation import TESTS

Record = Mapping[str, Any]  # of a run of a language model


def compared(records: Mapping[str, Sequence[Record]]) -> pd.DataFrame:
    """A row a model, from the records of its seeds.

    The loss on held-out text in nats per character over the seeds, the lowest before practice and the last; percent
    right at each length, of the worst task and seed; problems in the models' own text; seeds certified on every task.
    """
    return pd.DataFrame({name: of_model(own) for name, own in records.items()}).T.rename_axis("model")


def of_model(records: Sequence[Record]) -> dict[str, str]:
    histories = [(record["history"], record["trained"]["steps"]) for record in records]  # practice comes after it
    lowest = [min(row["text"] for row in history if row["step"] <= steps) for history, steps in histories]
    losses = {"lowest loss": lowest, "last loss": [record["text"] for record in records]}
    row = {name: ends([f"{loss:.3f}" for loss in sorted(own)]) for name, own in losses.items()}
    for length, _ in TESTS:
        tests = [test for record in records for test in record["evaluation"] if test["length"] == length]
        row[f"{length:,} digits"] = f"{100 * min(test['accuracy'] for test in tests):.0f}" if tests else "–"
    written = [record["generated"] for record in records]
    row["in own text"] = f"{sum(one['right'] for one in written)} of {sum(one['problems'] for one in written)}"
    proven = [all(one["certified"] for one in own["certificates"]) for own in records if "certificates" in own]
    row["certified"] = f"{sum(proven)} of {len(proven)}" if proven else "–"
    return row
