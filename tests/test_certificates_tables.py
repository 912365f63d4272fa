"""Certificates of models that write tables, against whole forward passes over random problems."""

from dataclasses import replace

import numpy as np
import pytest
from certifying import table_model

from abc_nb.bias import Causal
from abc_nb.bias.lines import Line
from abc_nb.certificates.certify import certify_model
from abc_nb.certificates.tables import TableContexts
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task

NO_POOL = np.empty(0, np.int64)


@pytest.mark.parametrize("change", [{"decoder_layers": 2}, {"position": Sinusoidal(3)}, {"bias": Causal()}])
def test_models_without_such_a_certificate_are_refused(change: dict[str, object]) -> None:
    task = Task("n-by-n", 2)
    model = Transformer(replace(table_model(task).config, **change), len(task.vocabulary))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="with positions, without lines or of several layers"):
        certify_model(model, Sampler(task))


@pytest.mark.parametrize(
    "line",
    [
        Line("cross", 0, 2, "vertical", "operand 1", 0, 0.0),
        Line("cross", 0, 2, "diagonal", "operand 1", -1, 0.0),
        Line("cross", 0, 2, "vertical", "whole", 1, 0.0),
        Line("self", 0, 2, "vertical", "output", 1, 0.0),
    ],
)
def test_lines_that_do_not_follow_the_cells_are_refused(line: Line) -> None:
    """Else two different digits would have one name, and contexts in which they differ would not be tried."""
    task = Task("n-by-n", 2)
    contexts = TableContexts(table_model(task, more=(line,)).config, Sampler(task))
    with pytest.raises(InputError, match="does not follow the cells"):
        contexts.shapes  # noqa: B018
