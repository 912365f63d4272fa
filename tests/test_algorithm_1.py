"""What a run of Algorithm 1 kept: its last layer's lines, the short ones, and the heads that are left without one."""

import pandas as pd
import pytest

from abc_nb.bias.base import ENCODER_DECODER
from audit import tables
from audit.results import Results


@pytest.mark.parametrize("name", ["addition-algorithm-1-none-new", "addition-algorithm-1-plain-new"])
def test_a_row_counts_the_last_layers_lines_and_heads_as_its_matrices_show(name: str) -> None:
    run = Results("quick", "shipped", [0]).first_run(name)
    found, bias, last = tables.kept(run), run.bias(), run.spec.model.decoder_layers - 1
    layout = run.spec.calibration_batch(0).layout
    lines = [line for line in bias.lines if line.layer == last]
    matrices = [bias.dense(layout, attention, last) for attention in ENCODER_DECODER]
    without = sum((matrix == 0).all().item() for part in matrices for matrix in part)  # heads that see every key
    assert found["lines"] == len(lines) and 0 <= found["short"] <= len(lines)
    assert found["open_heads"] == without / (2 * bias.heads)
    accuracy = run.evaluation().set_index("length").accuracy
    assert (found["twenty"], found["sixty"], found["validation"]) == (accuracy[20], accuracy[60], run.validation)


def test_tasks_and_seeds_are_written_as_a_range() -> None:
    row = tables.kept(Results("quick", "shipped", [0]).first_run("addition-algorithm-1-none-new"))
    row |= {"sixty": 0.25, "lines": 1, "short": 0}
    rows = pd.DataFrame([row, row | {"task": "successor", "sixty": 1.0, "lines": 2}])
    (shown,) = tables.by_reading(rows).to_dict("records")
    assert (shown["tasks"], shown["runs"]) == ("Addition, Successor", 2)
    assert (shown["lines"], shown["short"], shown["60 digits"]) == ("1–2", "0", "25.0–100.0")
