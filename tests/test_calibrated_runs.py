"""Calibrated runs: the parent comes first, its attention gives the bias, its weights are trained on."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Folders, copied
from helpers import DAMAGES, assert_same_result, correct_checksums, interrupted_and_resumed, never, weights
from safetensors.torch import save_file

from abc_nb.bias.lines import Lines
from abc_nb.calibration import of_model
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import runner, store
from abc_nb.runs.manifest import sha256
from abc_nb.training import trainer as training
from abc_nb.training.evaluation import evaluate
from abc_nb.training.progress import Progress

FILES = ["manifest.json", "config.json", "weights.safetensors", "history.csv", "evaluation.csv"]
CALIBRATED = sorted([*FILES, "bias.json", "thresholds.csv"])


@pytest.fixture
def run(calibrated: store.Run) -> store.Run:
    """A finished child in this test's runs folder, without its parent."""
    return calibrated


@pytest.fixture
def parent(trained: Path, tiny: Experiment, folders: Folders) -> store.Run:
    """A finished parent in this test's runs folder, without its child."""
    return copied(trained / tiny.key(0), tiny, folders)


def assert_same_calibrated_result(folder: Path, expected: Path) -> None:
    assert_same_result(folder, expected)
    for name in ("bias.json", "thresholds.csv"):
        assert (folder / name).read_bytes() == (expected / name).read_bytes()


# ---- the parent -------------------------------------------------------------------------------------


def test_a_missing_parent_is_trained_first(
    child: Experiment, tiny: Experiment, folders: Folders, trained: Path
) -> None:
    steps: list[int] = []
    run = runner.ensure(child, 0, lambda progress: steps.append(progress.step))
    assert steps == [1, 2, 3, 4], "the child's own"
    assert sorted(path.name for path in run.folder.iterdir()) == CALIBRATED
    found = store.find(tiny, 0)
    assert found is not None
    assert found.folder == folders.runs / tiny.key(0)
    assert_same_result(found.folder, trained / tiny.key(0))
    assert_same_calibrated_result(run.folder, trained / child.key(0))


def test_a_parent_that_is_there_is_not_trained_again(parent: store.Run, child: Experiment, trained: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in parent.folder.iterdir()}
    run = runner.ensure(child, 0)
    assert {path.name: path.stat().st_mtime_ns for path in parent.folder.iterdir()} == before
    assert_same_calibrated_result(run.folder, trained / child.key(0))


def test_a_shipped_parents_weights_are_used(
    parent: store.Run, child: Experiment, tiny: Experiment, folders: Folders, trained: Path
) -> None:
    store.ship(parent, weights=True)
    shutil.rmtree(parent.folder)
    run = runner.ensure(child, 0)
    assert store.find(tiny, 0, ("runs",)) is None, "the parent was not trained"
    assert run.manifest["parent"]["run"] == tiny.key(0)
    assert_same_calibrated_result(run.folder, trained / child.key(0))


def test_a_parent_shipped_without_its_weights_is_trained(
    parent: store.Run, child: Experiment, tiny: Experiment, trained: Path
) -> None:
    store.ship(parent, weights=False)
    shutil.rmtree(parent.folder)
    run = runner.ensure(child, 0)
    assert store.find(tiny, 0, ("runs",)) is not None
    assert_same_calibrated_result(run.folder, trained / child.key(0))


def test_manifest_names_the_parent_and_its_weights(run: store.Run, tiny: Experiment, trained: Path) -> None:
    folder = trained / tiny.key(0)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert run.manifest["parent"] == {
        "run": folder.name,
        "weights": sha256(folder / "weights.safetensors"),
        "seconds": manifest["seconds"]["training"],
    }
    assert "parent" not in manifest
    assert set(run.manifest["files"]) == {*CALIBRATED} - {"manifest.json"}


def test_each_seed_has_a_parent_of_its_own(child: Experiment, tiny: Experiment, folders: Folders) -> None:
    run = runner.ensure(child, 1)
    assert run.manifest["parent"]["run"] == tiny.key(1)
    assert not (folders.runs / tiny.key(0)).exists()


@pytest.mark.parametrize("warm", [True, False])
def test_retraining_starts_from_the_parents_weights_or_from_new_ones(
    warm: bool, parent: store.Run, child: Experiment, tmp_path: Path
) -> None:
    model, _ = runner.prepare(replace(child, warm=warm), 0, tmp_path / "partial")
    found, start = dict(model.state_dict()), weights(parent.folder)
    new = dict(child.build(0).state_dict())
    torch.testing.assert_close(found, start if warm else new, rtol=0, atol=0)
    assert not torch.equal(start["head.weight"], new["head.weight"])


# ---- the bias ---------------------------------------------------------------------------------------


def test_the_bias_is_read_out_of_the_parent_on_its_own_training_problems(
    run: store.Run, parent: store.Run, child: Experiment, tiny: Experiment
) -> None:
    batch = tiny.sampler.calibration_batch(0)
    expected = of_model.calibrate_model(parent.model(), batch, child.calibration)
    assert run.bias() == expected.bias
    assert run.bias() != Lines(2, ())
    pd.testing.assert_frame_equal(pd.read_csv(run.folder / "thresholds.csv"), expected.tried)
    assert parent.bias() is None


def test_the_trained_model_has_the_bias_and_gives_the_evaluation_that_was_written(
    run: store.Run, child: Experiment
) -> None:
    model, bias = run.model(), run.bias()
    assert bias is not None
    assert model.config == replace(child.model, bias=bias)
    torch.testing.assert_close(dict(model.state_dict()), weights(run.folder), rtol=0, atol=0)
    rows = evaluate(model, child.sampler, child.tests, child.name, 0)
    pd.testing.assert_frame_equal(rows, run.evaluation())


def test_a_calibrated_run_is_shipped_with_its_bias(run: store.Run, child: Experiment) -> None:
    bias, tried = run.bias(), run.thresholds()
    store.ship(run, weights=False)
    shutil.rmtree(run.folder)
    shipped = store.find(child, 0, ("shipped",))
    assert shipped is not None
    assert shipped.bias() == bias
    assert tried is not None
    pd.testing.assert_frame_equal(shipped.thresholds(), tried)
    assert shipped.manifest["parent"] == run.manifest["parent"]


@pytest.mark.parametrize("name", ["bias.json", "thresholds.csv"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bias_is_noticed_and_the_run_computed_again(
    name: str, damage: Callable[[Path], None], run: store.Run, child: Experiment, folders: Folders, trained: Path
) -> None:
    damage(run.folder / name)
    with pytest.warns(UserWarning, match=f"damaged.*{name}.*it is kept in"):
        again = runner.ensure(child, 0)
    assert len([*(folders.runs / ".set-aside").iterdir()]) == 1
    assert_same_calibrated_result(again.folder, trained / child.key(0))


def stop(*_: object) -> None:
    raise KeyboardInterrupt


# ---- interrupted ------------------------------------------------------------------------------------


def test_an_interrupted_retraining_goes_on_with_the_bias_it_had(
    child: Experiment, folders: Folders, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(*arguments: Any) -> of_model.Calibrated:
        calls.append(1)
        return of_model.calibrate_model(*arguments)

    monkeypatch.setattr(runner, "calibrate_model", counted)
    run = interrupted_and_resumed(child, monkeypatch)
    assert len(calls) == 1, "the bias was there"
    assert_same_calibrated_result(run.folder, trained / child.key(0))
    assert sorted(path.name for path in run.folder.iterdir()) == CALIBRATED


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"type": "Lines"}', b'{"type": "Rows"}', None])
def test_a_damaged_bias_of_an_interrupted_run_is_read_anew(
    content: bytes | None, parent: store.Run, child: Experiment, folders: Folders, trained: Path
) -> None:
    """`None` is the first half of what was written."""
    partial = folders.runs / ".partial" / child.key(0)
    runner.prepare(child, 0, partial)
    bias = partial / "bias.json"
    bias.write_bytes(bias.read_bytes()[: bias.stat().st_size // 2] if content is None else content)
    with pytest.warns(UserWarning, match="damaged: bias.json is not what was written"):
        run = runner.ensure(child, 0)
    assert_same_calibrated_result(run.folder, trained / child.key(0))


@pytest.mark.parametrize("name", ["bias.json", "thresholds.csv", "origin.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_calibration_of_an_interrupted_run_is_named_kept_and_made_again(
    name: str, damage: Callable[[Path], None], parent: store.Run, child: Experiment, folders: Folders, trained: Path
) -> None:
    partial = folders.runs / ".partial" / child.key(0)
    runner.prepare(child, 0, partial)
    damage(partial / name)
    left = {path.name: path.read_bytes() for path in partial.iterdir()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = runner.ensure(child, 0)
    assert_same_calibrated_result(run.folder, trained / child.key(0))
    if name not in left and name == "origin.json":
        assert not caught, "as if nothing had been calibrated yet"
        return
    (kept,) = (folders.runs / ".set-aside").iterdir()
    assert f"{name} is " in str(caught[0].message)
    assert f"it is kept in {kept}" in str(caught[0].message)
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == left


def stop_after_two_steps(progress: Progress) -> None:
    if progress.step == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("calibrates", [True, False], ids=["ABC", "LoRA"])
def test_a_run_whose_parent_was_trained_anew_meanwhile_begins_anew(
    calibrates: bool,
    parent: store.Run,
    child: Experiment,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low_rank = replace(child, calibration=None, rank=2, training=replace(child.training, optimizer="adamw"))
    chosen = child if calibrates else low_rank
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        runner.ensure(chosen, 0, stop_after_two_steps)
    other = {name: tensor + 0.5 for name, tensor in weights(parent.folder).items()}
    save_file(other, parent.folder / "weights.safetensors")
    correct_checksums(parent.folder)
    expected = folders.runs / "expected"
    with pytest.warns(UserWarning, match="successor-vanilla was trained anew since successor-abc-smoke-seed0"):
        run = runner.ensure(chosen, 0)
    run.folder.rename(expected)
    assert_same_result(runner.ensure(chosen, 0).folder, expected)
    assert run.manifest["parent"]["weights"] == sha256(parent.folder / "weights.safetensors")
    (kept,) = (folders.runs / ".set-aside").iterdir()
    assert "checkpoint.pt" in {path.name for path in kept.iterdir()}


def test_a_resumed_run_tells_the_seconds_of_its_calibration(
    parent: store.Run, child: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(runner, "evaluate", stop)
        patched.setattr(runner.time, "perf_counter", iter(range(0, 10**6, 100)).__next__)
        runner.ensure(child, 0)
    assert runner.ensure(child, 0).manifest["calibration_seconds"] == 100


def test_files_that_were_half_written_are_no_part_of_the_finished_run(
    parent: store.Run, child: Experiment, folders: Folders, trained: Path
) -> None:
    partial = folders.runs / ".partial" / child.key(0)
    runner.prepare(child, 0, partial)
    for name in (".bias.json.99.tmp", ".thresholds.csv.99.tmp", "checkpoint.tmp", "checkpoint.damaged"):
        (partial / name).write_text("half")
    run = runner.ensure(child, 0)
    assert sorted(path.name for path in run.folder.iterdir()) == CALIBRATED
    assert set(run.manifest["files"]) == {*CALIBRATED} - {"manifest.json"}
    assert_same_calibrated_result(run.folder, trained / child.key(0))


@pytest.mark.parametrize("where", ["calibrate_model", "evaluate"])
def test_a_run_interrupted_before_or_after_retraining_is_absent_and_then_finished(
    where: str, parent: store.Run, child: Experiment, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(runner, where, stop)
        runner.ensure(child, 0)
    assert store.find(child, 0) is None
    assert_same_calibrated_result(runner.ensure(child, 0).folder, trained / child.key(0))


def test_a_finished_child_asks_for_no_parent(run: store.Run, child: Experiment, folders: Folders) -> None:
    assert runner.ensure(child, 0, never) == run
    assert [path.name for path in folders.runs.iterdir() if not path.name.startswith(".")] == [run.folder.name]


def test_one_more_test_of_a_parent_asks_for_no_other_child(run: store.Run, child: Experiment, tiny: Experiment) -> None:
    other = replace(child, parent=replace(tiny, tests=(*tiny.tests, (20, 50))))
    assert other.key(0) == child.key(0)
    assert runner.untrained(other, 0) == []
    assert runner.ensure(other, 0, never).folder == run.folder
    harder = replace(child, parent=replace(tiny, training=replace(tiny.training, clip=0.5)))
    assert harder.key(0) != child.key(0), "another training of the parent does"
