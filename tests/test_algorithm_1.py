"""What a run of Algorithm 1 kept: its last layer's lines, the short ones, and the heads that are left without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from abc_nb.bias.lines import Line, Lines
from abc_nb.specs.spec import spec
from audit import tables

DIAGONAL = Line("self", 1, 0, "diagonal", "whole", 0, 0.0)
FEW_CELLS = Line("self", 1, 0, "diagonal", "whole", -6, 0.0)  # of eight steps it is seen at the last two
CORNER = Line("cross", 1, 3, "antidiagonal", "whole", 0, 0.0)
OF_ANOTHER_LAYER = Line("cross", 0, 5, "antidiagonal", "whole", 0, 0.0)


def run(*lines: Line, model: str = "algorithm-1-pooled") -> Any:
    return SimpleNamespace(
        spec=spec(f"addition-{model}"),
        seed=3,
        validation=0.5,
        bias=lambda: Lines(8, lines),
        table=lambda name: pd.DataFrame({"share": [None], "lines": [len(lines)], "skill": [0.75]}),
        evaluation=lambda: pd.DataFrame({"length": [6, 20, 60], "accuracy": [0.5, 0.4, 0.25]}),
    )


def test_a_row_counts_the_last_layers_lines_and_heads() -> None:
    found = tables.kept(run(DIAGONAL, FEW_CELLS, CORNER, OF_ANOTHER_LAYER))
    assert (found["lines"], found["short"], found["open_heads"]) == (3, 1, 14 / 16)
    assert (found["skill"], found["validation"], found["twenty"], found["sixty"]) == (0.75, 0.5, 0.4, 0.25)
    assert (found["layers"], found["regime"], found["seed"]) == (2, "tight", 3)


def test_tasks_and_seeds_are_written_as_a_range() -> None:
    other = {"task": "successor", "sixty": 1.0}
    rows = [tables.kept(run(DIAGONAL)), tables.kept(run(DIAGONAL, CORNER)) | other]
    (row,) = tables.by_reading(pd.DataFrame(rows)).to_dict("records")
    assert (row["tasks"], row["runs"]) == ("Addition, Successor", 2)
    assert (row["lines"], row["short"], row["60 digits"]) == ("1–2", "0", "25.0–100.0")
