"""Calibration studies of a small run: shares of lines, the strongest head, what it cost, and verticals."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.bias.lines import Lines
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.runs import runner
from abc_nb.runs.store import Run
from abc_nb.specs.spec import spec
from audit.measures import cost, strong_verticals


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalibrationStudy]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("study")))
        patched.setattr(paths, "SHIPPED", tmp_path_factory.mktemp("shipped"))
        yield CalibrationStudy(runner.ensure(spec("addition-abc", "smoke"), 0))


def test_a_run_without_calibration_and_a_parent_with_other_weights_are_errors(study: CalibrationStudy) -> None:
    for name in ("addition-vanilla", "addition-lora"):
        with pytest.raises(InputError, match=f"{name} has no calibrated bias: take an experiment such as addition-abc"):
            CalibrationStudy(replace(study.run, spec=spec(name, "smoke")))
    other = {**study.run.facts, "parent": {**study.run.facts["parent"], "weights": "0" * 64}}
    with pytest.raises(InputError, match="the addition-vanilla that addition-abc-unpractised was made from is not"):
        _ = CalibrationStudy(replace(study.run, record=dict(study.run.record) | {"facts": other})).parent


def test_every_line_has_a_row_with_its_share_of_the_averaged_attention(study: CalibrationStudy) -> None:
    assert len(study.lines) == len(study.bias.lines) > 0
    for row, line in zip(study.lines.to_dict("records"), study.bias.lines, strict=True):
        weights = study.averages[line.attention, line.layer][line.head]
        cells = Lines(1, (replace(line, head=0),)).opened(study.layout, line.attention, line.layer)[0]
        assert study.opened(line.attention, line.layer)[line.head][cells].all()
        share = pytest.approx((weights[cells].sum() / len(weights)).item(), rel=1e-4)
        place = (line.attention, line.layer + 1, line.head + 1, line.span, line.direction, line.offset)
        assert tuple(row.values()) == (*place, share, line.value)


def test_the_strongest_head_has_the_line_with_the_largest_share(study: CalibrationStudy) -> None:
    rows = [row for row in study.lines.to_dict("records") if row["attention"] == "cross"]
    best = max((row for row in rows if row["direction"] == "antidiagonal"), key=lambda row: row["share"])
    assert study.strongest_head("cross", "antidiagonal") == (best["layer"] - 1, best["head"] - 1)
    with pytest.raises(InputError, match="no diagonal line was kept in cross-attention of addition-abc"):
        study.strongest_head("cross", "diagonal")


def planted_in(run: Run, history: pd.DataFrame) -> dict[str, Any]:
    """The record of a run with another history."""
    return dict(run.record) | {"tables": run.record["tables"] | {"history": history.assign(loss=1.0).to_dict("list")}}


def test_costs_are_counted_to_the_first_validation_of_99_percent(study: CalibrationStudy) -> None:
    """Retraining gets there at step 20, after 4 s and 1 s of calibration; its parent at step 50, after 10 s."""
    columns = ["step", "seconds", "accuracy"]
    child = pd.DataFrame([(10, 2.0, 0.98), (20, 4.0, 0.99), (30, 6.0, 1.0)], columns=columns)
    parent = pd.DataFrame([(25, 5.0, 0.4), (50, 10.0, 0.995)], columns=columns)
    made = replace(
        study.run, record=planted_in(study.run, child) | {"facts": study.run.facts | {"calibration_seconds": 1.0}}
    )
    planted = CalibrationStudy(made)
    vars(planted)["parent_run"] = replace(study.parent_run, record=planted_in(study.parent_run, parent))
    row = cost(planted)
    training = study.run.spec.training
    assert training.batch == training.held_batch, "so problems are steps times this"
    assert (row["steps"], row["problems"], row["seconds"]) == (20 / 50, 20 / 50, pytest.approx(0.5))


def test_vertical_lines_are_named_by_the_token_they_stand_on(study: CalibrationStudy) -> None:
    """On absolute positions too, as on the second operand's units; those that causality makes do not count."""
    planted = CalibrationStudy(study.run)
    layout, steps = planted.layout, planted.layout.target_length
    cross, own = torch.zeros(2, steps, layout.source_length), torch.zeros(2, steps, steps)
    cross[0, :, layout.operands[1].last], cross[0, :, layout.source_length - 1] = 0.5, 0.25
    cross[1, :, layout.operands[0].last + 1] = 0.75
    own[0, :, 0], own[1, :, 2] = 0.875, 0.375
    vars(planted)["averages"] = {("cross", 0): cross, ("self", 0): own}
    expected = {("operand 2", 0.5), ("&", 0.25), ("+", 0.75)}
    assert {*strong_verticals(planted).itertuples(index=False, name=None)} == expected
