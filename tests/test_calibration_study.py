"""Calibration studies of a small run: lines against loops over cells, biases at other lengths, what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from abc_nb.analysis.calibration_study import CalibrationStudy, retraining_costs
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import experiment
from abc_nb.model.attention import Record
from abc_nb.problems.layouts import Layout
from abc_nb.runs import runner, store
from abc_nb.show import tables

ATTENTIONS: list[Attention] = ["self", "cross"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalibrationStudy]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("study")))
        patched.setattr(paths, "SHIPPED", tmp_path_factory.mktemp("shipped"))
        yield CalibrationStudy(runner.ensure(experiment("addition-abc", "smoke"), 0))


def column_of(line: Line, layout: Layout, step: int) -> int | None:
    """Where a line of this project's calibration is at a step: it follows an operand, a symbol or the output."""
    if line.span == "output":
        return step + line.offset if step + line.offset >= 0 else None
    if line.attention == "self":
        return 0
    if line.span.startswith("operand"):
        operand = layout.operands[int(line.span[-1]) - 1]
        column = operand.last - step + line.offset
        return column if operand.last - operand.places <= column <= operand.last + 1 else None
    return next(column for column, symbol in layout.symbols if symbol == line.span)


# ---- what was read ----------------------------------------------------------------------------------


def test_a_run_without_calibration_is_an_error(study: CalibrationStudy) -> None:
    for name in ("addition-vanilla", "addition-lora"):
        run = replace(study.run, experiment=experiment(name, "smoke"))
        with pytest.raises(InputError, match=f"{name} has no calibrated bias: take an experiment such as addition-abc"):
            CalibrationStudy(run)


def test_a_parent_that_is_gone_is_an_error(
    study: CalibrationStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path))
    with pytest.raises(InputError, match="the addition-vanilla that addition-abc was calibrated from is not there"):
        _ = CalibrationStudy(study.run).parent


def test_a_parent_of_the_same_name_with_other_weights_is_not_taken(study: CalibrationStudy) -> None:
    other = {**study.run.manifest, "parent": {**study.run.manifest["parent"], "weights": "0" * 64}}
    with pytest.raises(InputError, match="the addition-vanilla that addition-abc was calibrated from is not there"):
        _ = CalibrationStudy(replace(study.run, manifest=other)).parent


def test_averages_are_the_parents_attention_on_its_own_training_problems(study: CalibrationStudy) -> None:
    parent = experiment("addition-vanilla", "smoke")
    run, batch = store.find(parent, 0), parent.sampler.calibration_batch(0)
    assert run is not None
    record = Record()
    with torch.inference_mode():
        run.model()(batch.source, batch.target[:, :-1], batch.layout, record=record)
    for name in ATTENTIONS:
        for found, expected in zip(study.averaged(name, 0), record.weights[name, 0].mean(0), strict=True):
            torch.testing.assert_close(torch.from_numpy(found), expected)


def test_every_line_has_a_row_with_its_share_of_the_averaged_attention(study: CalibrationStudy) -> None:
    found = study.lines
    assert len(found) == len(study.bias.lines) > 0
    assert found.share.between(0, 1).all()
    for row, line in zip(found.to_dict("records"), study.bias.lines, strict=True):
        weights = study.averages[line.attention, line.layer][line.head]
        columns = [column_of(line, study.layout, step) for step in range(len(weights))]
        total = sum(weights[step, column].item() for step, column in enumerate(columns) if column is not None)
        assert row["share"] == pytest.approx(total / len(weights), rel=1e-4)
        place = (line.attention, line.layer + 1, line.head + 1, line.span, line.direction, line.offset, line.value)
        names = ("attention", "layer", "head", "span", "direction", "offset", "value")
        assert tuple(row[name] for name in names) == place


def test_opened_cells_are_those_of_the_lines(study: CalibrationStudy) -> None:
    for name in ATTENTIONS:
        for head, matrix in enumerate(study.opened(name, 0)):
            expected = np.zeros_like(matrix)
            for line in study.bias.lines:
                if (line.attention, line.head) == (name, head):
                    for step in range(len(matrix)):
                        column = column_of(line, study.layout, step)
                        if column is not None:
                            expected[step, column] = True
            np.testing.assert_array_equal(matrix, expected)


def test_the_strongest_head_has_the_line_with_the_largest_share(study: CalibrationStudy) -> None:
    lines = study.lines
    chosen = lines[(lines.attention == "cross") & (lines.direction == "antidiagonal")]
    best = max(chosen.to_dict("records"), key=lambda row: row["share"])
    assert study.strongest_head("cross", "antidiagonal") == (best["layer"] - 1, best["head"] - 1)
    with pytest.raises(InputError, match="no diagonal line was kept in cross-attention of addition-abc"):
        study.strongest_head("cross", "diagonal")


# ---- at other lengths -------------------------------------------------------------------------------


def tokens(layout: Layout) -> list[str]:
    """What stands in each column: a number and a place, or a symbol."""
    names = dict(layout.symbols)
    for number, operand in enumerate(layout.operands, 1):
        names |= {column: f"{number}:{place}" for place, column in enumerate(operand.columns.tolist())}
    return [names[column] for column in range(layout.source_length)]


def test_the_bias_opens_the_same_places_with_the_same_values_at_two_lengths(study: CalibrationStudy) -> None:
    """At all steps but those at which the shorter numbers end."""
    narrow, wide = (study.run.experiment.task.layout(study.run.experiment.task.width(n, "tight")) for n in (12, 30))
    reach = max(abs(line.offset) for line in study.bias.lines)
    steps = narrow.width - reach - 1
    assert steps > 3
    for name in ATTENTIONS:
        found = []
        for length, layout in ((12, narrow), (30, wide)):
            keys = tokens(layout) if name == "cross" else [str(step) for step in range(layout.target_length)]
            matrices = study.extended(name, 0, length)
            assert [matrix.shape for matrix in matrices] == [(layout.target_length, len(keys))] * 2
            found.append(
                [
                    {keys[column]: row[column].item() for column in np.flatnonzero(np.isfinite(row))}
                    for matrix in matrices
                    for row in matrix[:steps]
                ]
            )
        assert found[0] == found[1]
        assert any(found[0])


def test_a_layout_and_its_length_give_the_same_bias(study: CalibrationStudy) -> None:
    task = study.run.experiment.task
    for one, other in zip(
        study.extended("cross", 0, 9), study.extended("cross", 0, task.layout(task.width(9, "tight"))), strict=True
    ):
        np.testing.assert_array_equal(one, other)


# ---- why it should not work, and what it cost ------------------------------------------------------


def test_an_untrained_parent_is_diagnosed_with_its_own_lines(study: CalibrationStudy) -> None:
    untrained = study.untrained()
    found = study.diagnosis(untrained)
    assert found[0] == "the model answers 0.0% of problems of training length: train it to 99%"
    start, end = untrained.state_dict(), study.parent.state_dict()
    assert not torch.equal(start["head.weight"], end["head.weight"])
    expected = experiment("addition-vanilla", "smoke").build(0).state_dict()
    torch.testing.assert_close(dict(start), dict(expected), rtol=0, atol=0)


def test_the_diagnosis_of_the_parent_names_the_skill_that_was_found(study: CalibrationStudy) -> None:
    skill = study.thresholds().skill.iloc[-1]
    assert skill < 2 / 3, "twenty steps teach little"
    assert any(f"under its own lines alone the model gets {skill:.1%} of digits" in said for said in study.diagnosis())


def test_costs_are_those_of_calibration_and_retraining_over_those_of_the_parent(study: CalibrationStudy) -> None:
    (row,) = retraining_costs([study]).to_dict("records")
    assert row["problems"] == math.inf, "neither reaches 99% in twenty steps"
    assert row["whole"] == 1, "both take twenty steps of 32 problems in this profile"
    tried = pd.read_csv(study.run.folder / "thresholds.csv").iloc[-1]
    assert (row["share"], row["skill"]) == (tried.share, tried.skill)
    assert (row["task"], row["seed"], row["lines"]) == ("Addition", 0, len(study.bias.lines))


def test_costs_are_counted_to_the_first_validation_of_99_percent(
    study: CalibrationStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retraining gets there at step 20, after 4 s and 1 s of calibration; its parent at step 50, after 10 s."""
    columns = ["step", "seconds", "accuracy"]
    child = pd.DataFrame([(10, 2.0, 0.98), (20, 4.0, 0.99), (30, 6.0, 1.0)], columns=columns)
    parent = pd.DataFrame([(25, 5.0, 0.4), (50, 10.0, 0.995)], columns=columns)
    own = replace(study.run, manifest={**study.run.manifest, "calibration_seconds": 1.0})
    monkeypatch.setattr(store.Run, "history", lambda run: parent if run.experiment.parent is None else child)
    (row,) = retraining_costs([CalibrationStudy(own)]).to_dict("records")
    held, steps = study.run.experiment.training.held_batch, 20
    assert study.run.experiment.training.batch == held, "so problems are steps times this"
    assert (row["steps"], row["problems"], row["seconds"]) == (steps / 50, steps / 50, pytest.approx(0.5))


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
    assert {*planted.verticals().itertuples(index=False, name=None)} == expected


# ---- how many lines are kept ------------------------------------------------------------------------


def test_kept_lines_are_counted_for_each_run_and_none_without_a_bias(study: CalibrationStudy) -> None:
    parent = store.find(experiment("addition-vanilla", "smoke"), 0)
    assert parent is not None
    found = tables.kept_lines([study.run, parent])
    assert list(found.columns) == ["task", "model", "lines", "cross"]
    cross = len([line for line in study.bias.lines if line.attention == "cross"])
    expected = [("addition", "abc", len(study.bias.lines), cross), ("addition", "vanilla", 0, 0)]
    assert [tuple(row) for row in found.itertuples(index=False)] == expected


def test_of_several_seeds_the_median_of_kept_lines_is_shown(
    study: CalibrationStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each seed has fewer lines than the one before."""
    lines = study.bias.lines
    kept = [lines, lines[:4], lines[:2]]
    monkeypatch.setattr(store.Run, "bias", lambda run: replace(study.bias, lines=kept[run.seed]))
    found = tables.kept_lines([replace(study.run, seed=seed) for seed in range(3)])
    cross = sorted(sum(line.attention == "cross" for line in own) for own in kept)[1]
    assert found[["lines", "cross"]].to_numpy().tolist() == [[4, cross]]
