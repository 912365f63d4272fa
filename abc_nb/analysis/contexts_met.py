"""The contexts that one problem meets, as a frame to look at."""

import numpy as np
import pandas as pd

from abc_nb.certificates.certify import Margins, contexts_of
from abc_nb.certificates.contexts import Shape
from abc_nb.certificates.rounding import Unbounded
from abc_nb.common.errors import InputError
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import evaluating


def contexts_met(run: Run, problem: str) -> pd.DataFrame:
    """The contexts that a typed problem meets, a row an output token; InputError for a task that writes a table.

    Columns: `output`, counted from 1; the tokens of the context by name (see `token_names`), from the lowest place on,
    empty where it has none; `writes`, the right token; and `margin`.
    """
    if run.spec.task.table:
        raise InputError(f"contexts are listed of answers in one row, and {run.spec.task.title} writes a table")
    batch, model, rows = run.spec.sampler.typed_batch(problem), run.model(), []
    contexts, vocabulary = contexts_of(model, run.spec.sampler), np.array(run.spec.task.vocabulary)
    margins = Margins(Unbounded(model), contexts)
    with evaluating(model):
        for step in range(batch.layout.target_length):
            shape, block = contexts.contexts_at(batch, step)
            tokens = dict(zip(token_names(shape), vocabulary[block.values].T, strict=True))
            output = {"output": str(step + 1), "writes": vocabulary[block.right], "margin": margins(shape, block)[0]}
            rows.append(pd.DataFrame(tokens | output))
    frame = pd.concat(rows, ignore_index=True).fillna("")
    names = frame.columns.difference(["output", "writes", "margin"])  # of tokens
    names_in_order = sorted(names, key=lambda name: (name[0], -int(name[2:] or 0)))
    return frame[["output", *names_in_order, "writes", "margin"]]


def token_names(shape: Shape) -> list[str]:
    """The tokens of a context: `a` and `b` of the numbers, `y` of the answer, and how many places below.

    Of a factor with several digits `b` is the units, and `b+1` the tens.
    """
    places = shape.places
    output_place = len(places) - bool(places and places[-1].asked)
    letters = {("digit", 0): "a", ("digit", 1): "b", ("factor", 0): "b", ("output", 0): "y"}
    names = []
    for kind, number, place in shape.leaves:
        offset = place if kind == "factor" else place - output_place
        names.append(letters[kind, number] + (f"{offset:+d}" if offset else ""))
    return names
