"""The store: a run is trained once, checked whenever it is read, and never lost or half there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import DAMAGES, assert_same_result, emptied, interrupted_and_resumed, never, weights

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.runs import manifest, runner, store, sweep
from abc_nb.training import evaluation
from abc_nb.training import trainer as training

FILES = ["manifest.json", "config.json", "weights.safetensors", "history.csv", "evaluation.csv"]


def interrupt(monkeypatch: pytest.MonkeyPatch, experiment: Experiment, owner: object, name: str) -> None:
    """Make a run, and stop it as Ctrl-C does when it comes to this function."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(owner, name, stop)
        runner.ensure(experiment, 0)


# ---- finished or absent -----------------------------------------------------------------------------


def test_a_run_is_trained_once_and_then_reused(tiny: Experiment, folders: Folders) -> None:
    steps: list[int] = []
    first = runner.ensure(tiny, 0, lambda progress: steps.append(progress.step))
    second = runner.ensure(tiny, 0, never)
    assert steps == [1, 2, 3, 4]
    assert second == first
    assert first.folder == folders.runs / tiny.key(0)
    assert sorted(path.name for path in first.folder.iterdir()) == sorted(FILES)


def test_training_repeats_bit_for_bit(run: store.Run, tiny: Experiment, finished: Path) -> None:
    shutil.rmtree(run.folder)
    assert_same_result(runner.ensure(tiny, 0).folder, finished)


def test_a_run_is_trained_on_one_thread_and_the_others_are_given_back(
    tiny: Experiment, folders: Folders, finished: Path
) -> None:
    """A notebook that has retrained a model goes on with all its threads."""
    torch.set_num_threads(2)
    try:
        made = runner.ensure(tiny, 0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert made.manifest["threads"] == 1
    assert_same_result(made.folder, finished)


def test_seeds_have_runs_of_their_own(run: store.Run, tiny: Experiment) -> None:
    other = runner.ensure(tiny, 1)
    assert other.folder != run.folder
    assert not torch.equal(weights(other.folder)["head.weight"], weights(run.folder)["head.weight"])


def test_run_gives_its_model_history_and_evaluation(run: store.Run, tiny: Experiment) -> None:
    model = run.model()
    assert not model.training
    torch.testing.assert_close(dict(model.state_dict()), weights(run.folder), rtol=0, atol=0)
    assert run.history().step.tolist() == [2, 4]
    assert run.evaluation().length.tolist() == [1, 3]
    np.testing.assert_array_equal(run.evaluation().samples, [5, 5])
    assert set(run.evaluation().experiment) == {tiny.name}


def test_manifest_says_how_the_result_came_about(run: store.Run) -> None:
    assert run.manifest["steps"] == 4
    assert run.manifest["shipped"] is False
    assert run.manifest["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert set(run.manifest["files"]) == set(FILES) - {"manifest.json"}
    assert run.manifest["device"]


def test_problems_are_counted_as_training_drew_them(
    tiny: Experiment, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With large batches while the rate is held, and small ones after it."""
    chosen = replace(tiny, training=replace(tiny.training, steps=12, batch=4, held_batch=20, hold=7))
    drawn: list[int] = []
    loss_of = training.loss_of

    def counted(model: Transformer, batch: Batch, phase: torch.Tensor | int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn.append(len(batch.source))
        return loss_of(model, batch, phase)

    monkeypatch.setattr(training, "loss_of", counted)
    run = runner.ensure(chosen, 0)
    assert set(drawn) == {4, 20}
    assert run.problems() == sum(drawn)


def test_nothing_is_found_where_nothing_was_trained(tiny: Experiment, folders: Folders) -> None:
    assert store.find(tiny, 0) is None


def test_initial_weights_follow_from_the_seed_and_disturb_no_other_random_numbers(tiny: Experiment) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = (tiny.build(seed).state_dict() for seed in (0, 0, 1))
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_an_interrupted_run_is_absent_and_then_goes_on(
    tiny: Experiment, folders: Folders, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = interrupted_and_resumed(tiny, monkeypatch)
    assert_same_result(run.folder, finished)
    assert sorted(path.name for path in run.folder.iterdir()) == sorted(FILES)


def test_a_run_interrupted_in_its_evaluation_is_absent_and_then_finished(
    tiny: Experiment, folders: Folders, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, tiny, runner, "evaluate")
    assert store.find(tiny, 0) is None
    assert_same_result(runner.ensure(tiny, 0).folder, finished)


def test_a_finished_run_holds_nothing_of_an_interrupted_one(tiny: Experiment, folders: Folders) -> None:
    partial_folder = folders.runs / ".partial" / tiny.key(0)
    partial_folder.mkdir(parents=True)
    (partial_folder / "checkpoint.tmp").write_bytes(b"half a checkpoint")  # the process was killed while it wrote
    run = runner.ensure(tiny, 0)
    assert sorted(path.name for path in run.folder.iterdir()) == sorted(FILES)


def test_a_run_that_ends_while_it_is_put_into_place_is_not_trained_again(
    tiny: Experiment, folders: Folders, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, tiny, Path, "rename")
    run = runner.ensure(tiny, 0, never)
    assert_same_result(run.folder, finished)
    assert sorted(path.name for path in run.folder.iterdir()) == sorted(FILES)


# ---- damage -----------------------------------------------------------------------------------------


def test_trouble_of_the_disk_is_no_damage(run: store.Run, tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file descriptor left, a network that is away: the run stays where it is."""

    def fails(path: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many open files"):
        patched.setattr(manifest, "sha256", fails)
        store.find(tiny, 0)
    assert store.find(tiny, 0) == run


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_set_aside_with_a_warning_and_computed_again(
    name: str,
    damage: Callable[[Path], None],
    run: store.Run,
    tiny: Experiment,
    folders: Folders,
    finished: Path,
) -> None:
    damage(run.folder / name)
    left = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.warns(UserWarning, match=f"damaged: {name} is .*it is kept in") as caught:
        again = runner.ensure(tiny, 0)
    (kept,) = (folders.runs / ".set-aside").iterdir()
    assert str(kept) in str(caught[0].message)
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == left
    assert again.folder == run.folder
    assert_same_result(again.folder, finished)


def test_a_manifest_that_names_no_files_is_damage(run: store.Run, tiny: Experiment) -> None:
    manifest = json.loads((run.folder / "manifest.json").read_text())
    (run.folder / "manifest.json").write_text(json.dumps(manifest | {"files": {}}))
    with pytest.warns(UserWarning, match="damaged"):
        assert store.find(tiny, 0) is None


def test_a_folder_of_another_experiment_is_set_aside(run: store.Run, tiny: Experiment, folders: Folders) -> None:
    other = replace(tiny, training=replace(tiny.training, clip=2.0))
    run.folder.rename(folders.runs / other.key(0))
    with pytest.warns(UserWarning, match="holds another experiment; it is kept in"):
        assert store.find(other, 0) is None
    (kept,) = (folders.runs / ".set-aside").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == sorted(FILES)


def test_a_folder_of_another_seed_is_set_aside(run: store.Run, tiny: Experiment, folders: Folders) -> None:
    run.folder.rename(folders.runs / tiny.key(1))
    with pytest.warns(UserWarning, match="holds another experiment"):
        assert store.find(tiny, 1) is None


def test_what_is_set_aside_twice_is_kept_twice(run: store.Run, tiny: Experiment, folders: Folders) -> None:
    for _ in range(2):
        emptied(run.folder / "config.json")
        with pytest.warns(UserWarning, match="damaged"):
            runner.ensure(tiny, 0)
    assert len([*(folders.runs / ".set-aside").iterdir()]) == 2


# ---- shipped results --------------------------------------------------------------------------------


def test_a_run_shipped_with_its_weights_is_found_without_the_run(
    run: store.Run, tiny: Experiment, folders: Folders, finished: Path
) -> None:
    assert store.ship(run, weights=True) == folders.shipped
    shutil.rmtree(run.folder)
    shipped = store.find(tiny, 0)
    assert shipped is not None
    assert shipped.folder == folders.shipped
    assert shipped.manifest["shipped"] is True
    torch.testing.assert_close(dict(shipped.model().state_dict()), weights(finished), rtol=0, atol=0)


def test_a_run_shipped_without_its_weights_has_numbers_but_no_model(
    run: store.Run, tiny: Experiment, folders: Folders
) -> None:
    store.ship(run, weights=False)
    shipped = store.find(tiny, 0, ("shipped",))
    assert shipped is not None
    assert not shipped.has_weights
    assert not [*folders.shipped.rglob("*.safetensors")]
    pd.testing.assert_frame_equal(shipped.evaluation(), run.evaluation())
    with pytest.raises(InputError, match="was shipped without its weights: run `abc-nb train"):
        shipped.model()


def test_a_run_made_here_comes_before_a_shipped_one(run: store.Run, tiny: Experiment, folders: Folders) -> None:
    store.ship(run, weights=False)
    found = store.find(tiny, 0)
    assert found is not None
    assert found.folder.parent == folders.runs


def test_shipping_leaves_the_run_alone_and_replaces_what_was_shipped(run: store.Run, folders: Folders) -> None:
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    store.ship(run, weights=True)
    store.ship(run, weights=False)
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before
    assert len((folders.shipped / "runs.csv").read_text().splitlines()) == 2
    assert not [*folders.shipped.rglob("*.safetensors")]


def test_a_shipped_result_does_not_stand_for_a_training(run: store.Run, tiny: Experiment) -> None:
    store.ship(run, weights=False)
    shutil.rmtree(run.folder)
    steps: list[int] = []
    assert runner.ensure(tiny, 0, lambda progress: steps.append(progress.step)).has_weights
    assert steps == [1, 2, 3, 4]


def test_a_sound_run_is_read_without_a_warning(run: store.Run, tiny: Experiment) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.find(tiny, 0) == run


# ---- tests have a key of their own ------------------------------------------------------------------


MORE = ((1, 5), (2, 4), (3, 9))  # the first is one of the tiny experiment's, the others are not


def finished_by(experiment: Experiment) -> tuple[store.Run, list[tuple[int, int]]]:
    """The run of an experiment that is trained already, and the tests that were made for it now."""
    made: list[tuple[int, int]] = []

    def noted(model: Transformer, sampler: Sampler, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        made.extend(tests)
        return evaluation.evaluate(model, sampler, tests)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "evaluate", noted)
        return runner.ensure(experiment, 0, never), made


def test_a_run_that_is_asked_for_more_tests_makes_those_alone_and_trains_nothing(
    run: store.Run, tiny: Experiment, folders: Folders, finished: Path
) -> None:
    found, made = finished_by(replace(tiny, tests=MORE))
    assert made == [(2, 4), (3, 9)]
    wanted = evaluation.evaluate(run.model(), tiny.sampler, MORE, tiny.name, 0)
    pd.testing.assert_frame_equal(found.evaluation(), wanted)
    assert (found.folder, found.checksum) == (run.folder, run.checksum)
    assert (found.folder / "weights.safetensors").read_bytes() == (finished / "weights.safetensors").read_bytes()
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(FILES)
    assert not [*(folders.runs / ".partial").iterdir()]
    assert finished_by(replace(tiny, tests=MORE))[1] == []
    back, made = finished_by(tiny)
    assert made == []
    pd.testing.assert_frame_equal(back.evaluation(), run.evaluation())


def test_seconds_of_later_tests_are_added(run: store.Run, tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.time, "perf_counter", iter(range(0, 10**6, 100)).__next__)
    found, _ = finished_by(replace(tiny, tests=MORE))
    before = run.manifest["seconds"]
    assert found.manifest["seconds"] == before | {"evaluation": round(before["evaluation"] + 100, 2)}


def test_until_a_run_is_tested_anew_the_largest_test_of_each_length_is_shown(run: store.Run, tiny: Experiment) -> None:
    finished_by(replace(tiny, tests=((3, 8), (3, 2))))
    found = store.find(replace(tiny, tests=((3, 7), (1, 5), (9, 9))), 0)
    assert found is not None
    assert found.evaluation()[["length", "samples"]].to_numpy().tolist() == [[3, 8], [1, 5]]
    assert found.untested() == ((3, 7), (9, 9))
    store.ship(found, weights=False)
    shutil.rmtree(found.folder)
    shipped = store.find(found.experiment, 0)
    assert shipped is not None and not shipped.has_weights
    assert shipped.evaluation()[["length", "samples"]].to_numpy().tolist() == [[3, 8], [1, 5]]


@pytest.mark.parametrize("owner, name", [(runner, "evaluate"), (shutil, "copytree"), (runner, "write_manifest")])
def test_a_run_whose_later_tests_were_interrupted_is_still_there(
    owner: object, name: str, run: store.Run, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = replace(tiny, tests=MORE)
    interrupt(monkeypatch, more, owner, name)
    found = store.find(more, 0)
    assert found is not None
    pd.testing.assert_frame_equal(found.evaluation(), run.evaluation().iloc[[0, 1]])
    assert finished_by(more)[0].evaluation().length.tolist() == [1, 2, 3]


@pytest.mark.parametrize("moves", [0, 1])
def test_a_run_that_is_interrupted_while_its_later_tests_are_put_into_place_is_not_trained_again(
    moves: int, run: store.Run, tiny: Experiment, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, rename, left = replace(tiny, tests=MORE), Path.rename, [None] * moves

    def stop(path: Path, target: Path) -> Path:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return rename(path, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", stop)
        runner.ensure(more, 0, never)
    again, _ = finished_by(more)
    assert again.evaluation().length.tolist() == [1, 2, 3]
    assert again.checksum == run.checksum
    assert finished_by(more)[1] == []


def test_a_sweep_makes_the_tests_that_are_missing(run: store.Run, tiny: Experiment) -> None:
    more = replace(tiny, tests=MORE)
    assert sweep.missing([(tiny, 0), (more, 0)]) == [(more, 0)]
    assert sweep.sweep([(more, 0)], show=False, in_turn=True) == []
    assert sweep.missing([(more, 0)]) == []


# ---- where runs are ---------------------------------------------------------------------------------


def test_the_environment_moves_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "elsewhere"))
    assert paths.runs() == tmp_path / "elsewhere"
    monkeypatch.delenv("ABC_NB_RUNS")
    assert paths.runs() == paths.ROOT / "runs"
