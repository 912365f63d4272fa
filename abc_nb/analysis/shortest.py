"""The shortest wrong problem of every model: from its certificate, or found by a search where it can have none."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates.files import PLAIN
from abc_nb.specs.studies import ARITHMETIC

STUDIES = ("baselines", "lora", "variants", "methods", "places", "decoder-only")  # whose models are searched


def of_models_without_certificate(found: Results, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The shortest wrong problem of each model that can have no certificate: kept, or searched where weights are there.

    The columns are those of `certified.counterexamples`, the first seed alone. A model in which the search found no
    wrong problem has none in its row; one that was not searched has no row.
    """
    rows = []
    for run in found.first.existing([name for name in found.names(*STUDIES) if name.task in tasks]):
        example, name = run.shortest_wrong(), run.spec.identity
        if example is not None:
            about = {"task": name.task, "model": name.model, "seed": run.seed, "recipe": PLAIN}
            rows.append(about | example._asdict())
    return pd.DataFrame(rows, columns=["task", "model", "seed", "recipe", *certified.SHOWN])


def of_every_model(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of every model with wrong contexts, and of those that can have no certificate.

    The column `found by` says whether it is from a certificate or a search. Where a search found none, it is empty.
    """
    parts = {"certificate": certified.counterexamples(found), "search": of_models_without_certificate(found)}
    return pd.concat([part.assign(**{"found by": how}) for how, part in parts.items()], ignore_index=True)
