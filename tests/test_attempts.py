"""Attempts of a run: while validation is too low more lines are read, and the best attempt is kept."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import altered, assert_same_result, deleted, weights
from torch import Tensor

from abc_nb.bias.lines import Lines
from abc_nb.calibration import of_model
from abc_nb.calibration.calibrate import Calibration
from abc_nb.experiments.experiment import Experiment
from abc_nb.problems.sampling import Batch
from abc_nb.runs import runner, store
from abc_nb.training import trainer
from abc_nb.training.progress import Progress
from abc_nb.training.trainer import Trainer


@pytest.fixture(scope="module", autouse=True)
def few_thresholds() -> Iterator[None]:
    """Every second of them is enough for a choice."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(of_model, "SHARES", of_model.SHARES[::2])
        patched.setattr(runner, "SHARES", of_model.SHARES)
        yield


@pytest.fixture(scope="session")
def child(child: Experiment) -> Experiment:
    """New weights under lines at the highest threshold at first, accepted only if no answer is wrong."""
    return replace(child, calibration=Calibration(keep=1e-6), warm=False, accept=1.0)


@dataclass(frozen=True)
class Found:
    """The lines at a threshold."""

    share: float
    bias: Lines


@pytest.fixture(scope="module")
def expected(finished: Path, tiny: Experiment, child: Experiment) -> list[Found]:
    """The attempts that there are: every threshold whose lines differ from those of the attempt before."""
    model, batch = tiny.build(0), child.calibration_batch(0)
    model.load_state_dict(weights(finished))
    found: list[Found] = []
    for share in of_model.SHARES:
        bias = of_model.calibrate_model(model, batch, Calibration(share=share)).bias
        if not found or {*bias.lines} != {*found[-1].bias.lines}:
            found.append(Found(share, bias))
    assert len(found) > 3, "enough for a choice"
    return found


@dataclass
class Judged:
    """What is said of each attempt instead of its validation, by the lines that it has; and what was trained."""

    accuracy: dict[int, float] = field(default_factory=dict)  # by the number of lines
    trained: list[Lines] = field(default_factory=list)

    def validate(self, trainer: Trainer, batches: Sequence[Batch], loss: Tensor) -> None:
        bias, progress = trainer.model.config.bias, trainer.progress
        assert isinstance(bias, Lines)
        if bias not in self.trained:
            self.trained.append(bias)
        row = {"step": progress.step, "seconds": progress.seconds, "loss": loss.item()}
        progress.history.append(row | {"accuracy": self.accuracy[len(bias.lines)]})

    def say(self, attempts: Sequence[Found], accuracy: Sequence[float]) -> None:
        self.accuracy = {len(each.bias.lines): value for each, value in zip(attempts, accuracy, strict=True)}
        assert len(self.accuracy) == len(attempts), "each has another number of lines"


@pytest.fixture
def judged(run: store.Run, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Nothing is validated any more; the parent is there."""
    return judge(monkeypatch)


def judge(monkeypatch: pytest.MonkeyPatch) -> Judged:
    found = Judged()
    monkeypatch.setattr(Trainer, "validate", lambda self, batches, loss: found.validate(self, batches, loss))
    return found


def peak(attempts: Sequence[Found], best: int) -> list[float]:
    """Accuracies that are highest at one attempt."""
    return [0.9 - 0.1 * abs(number - best) for number in range(len(attempts))]


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is read."""
    clock = count()
    monkeypatch.setattr("abc_nb.training.trainer.time.perf_counter", lambda: float(next(clock)))


def assert_same_run(folder: Path, expected: Path) -> None:
    assert_same_result(folder, expected)
    for name in ("bias.json", "thresholds.csv"):
        assert (folder / name).read_bytes() == (expected / name).read_bytes()


# ---- reading more lines -----------------------------------------------------------------------------


def test_more_lines_are_read_until_none_are_left(child: Experiment, expected: list[Found], judged: Judged) -> None:
    judged.say(expected, [0.5] * len(expected))
    found = runner.ensure(child, 0)
    assert judged.trained == [each.bias for each in expected]
    assert found.bias() == expected[0].bias, "of equally good attempts the first, which has the fewest lines"
    fewer = [len(each.bias.lines) for each in expected]
    assert all(before < after for before, after in pairwise(fewer))


def test_no_more_lines_are_read_once_an_attempt_is_accepted(
    child: Experiment, expected: list[Found], judged: Judged
) -> None:
    judged.say(expected, [0.5, 0.8, *[0.9] * (len(expected) - 2)])
    found = runner.ensure(replace(child, accept=0.8), 0)
    assert judged.trained == [each.bias for each in expected[:2]]
    assert found.bias() == expected[1].bias


def test_where_the_first_attempt_is_accepted_it_is_the_only_one(
    child: Experiment, expected: list[Found], judged: Judged, folders: Folders
) -> None:
    judged.say(expected, [1.0] * len(expected))
    found = runner.ensure(child, 0)
    assert judged.trained == [expected[0].bias]
    found.folder.rename(folders.runs / "accepted")
    fixed = replace(child, calibration=Calibration(share=expected[0].share), accept=0.0)
    assert_same_result(folders.runs / "accepted", runner.ensure(fixed, 0).folder)


def test_the_last_validation_decides_even_if_an_earlier_one_was_better(
    child: Experiment, expected: list[Found], judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged.say(expected, [0.5] * len(expected))
    usual = judged.validate

    def better_at_first(trainer: Trainer, batches: Sequence[Batch], loss: Tensor) -> None:
        usual(trainer, batches, loss)
        if trainer.progress.step < trainer.config.steps:
            trainer.progress.history[-1]["accuracy"] = 1.0

    monkeypatch.setattr(judged, "validate", better_at_first)
    assert len(runner.ensure(child, 0).history()) == 2
    assert judged.trained == [each.bias for each in expected]


@pytest.mark.parametrize("settings", [Calibration(share=0.3), Calibration(kappa=(1.0, 1.0))])
def test_a_threshold_that_is_given_is_never_changed(
    settings: Calibration, run: store.Run, child: Experiment, judged: Judged
) -> None:
    given = of_model.calibrate_model(run.model(), child.calibration_batch(0), settings).bias
    judged.accuracy = {len(given.lines): 0.0}
    found = runner.ensure(replace(child, calibration=settings), 0)
    assert judged.trained == [given] and found.bias() == given


def test_what_has_no_lines_is_trained_once_whatever_is_accepted(tiny: Experiment, folders: Folders) -> None:
    steps: list[int] = []
    found = runner.ensure(replace(tiny, accept=2.0), 0, lambda progress: steps.append(progress.step))
    assert steps == [1, 2, 3, 4]
    assert found.manifest["steps"] == 4


# ---- the best attempt -------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [0, 2, -1])
def test_the_best_attempt_is_what_its_threshold_gives_alone(
    best: int, child: Experiment, expected: list[Found], judged: Judged, folders: Folders
) -> None:
    best %= len(expected)
    judged.say(expected, peak(expected, best))
    found = runner.ensure(child, 0)
    assert len(judged.trained) == len(expected)
    assert found.bias() == expected[best].bias
    assert found.history().accuracy.tolist() == pytest.approx([0.9, 0.9])
    found.folder.rename(folders.runs / "best")
    alone = runner.ensure(replace(child, calibration=Calibration(share=expected[best].share), accept=0.0), 0)
    assert_same_result(folders.runs / "best", alone.folder)


def test_thresholds_tried_up_to_the_best_attempt_stand_beside_it_with_their_validation(
    child: Experiment, expected: list[Found], judged: Judged
) -> None:
    accuracy = peak(expected, 2)
    judged.say(expected, accuracy)
    shares = runner.ensure(child, 0).thresholds()
    assert shares is not None
    tried = [share for share in of_model.SHARES if share >= expected[2].share]
    assert shares.share.tolist() == tried
    at = shares.set_index("share").validation
    assert at[[each.share for each in expected[:2]]].tolist() == pytest.approx(accuracy[:2])
    assert at.drop([each.share for each in expected[:2]]).isna().all()
    lines = {share: max((e for e in expected if e.share >= share), key=lambda e: len(e.bias.lines)) for share in tried}
    assert shares.lines.tolist() == [len(lines[share].bias.lines) for share in tried]


def test_facts_are_those_of_the_best_attempt_and_seconds_those_of_all(
    child: Experiment, expected: list[Found], judged: Judged, run: store.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt has one step more for each line that is more, and every step takes a second."""
    judged.say(expected, peak(expected, 1))
    ticking(monkeypatch)
    begin = Trainer.__init__

    def of_own_length(self: Trainer, model: torch.nn.Module, sampler: object, config: object, seed: int) -> None:
        begin(self, model, sampler, replace(config, steps=steps[model.config.bias]), seed)  # type: ignore

    steps = {each.bias: 4 + 2 * number for number, each in enumerate(expected)}
    monkeypatch.setattr(Trainer, "__init__", of_own_length)
    facts = runner.ensure(child, 0).manifest
    assert facts["steps"] == 6
    assert facts["seconds"]["training"] == sum(steps.values())
    assert facts["parent"]["run"] == run.folder.name
    assert facts["calibration_seconds"] >= len(expected), "every reading of lines takes a second at least"
    assert not {"validation", "attempts"} & facts.keys()


# ---- interrupted ------------------------------------------------------------------------------------


def stop_at(call: int, usual: Callable[..., object]) -> Callable[..., object]:
    """The same function, which stops the process at one of its calls."""
    calls = count(1)

    def stopped(*arguments: object, **settings: object) -> object:
        if next(calls) == call:
            raise KeyboardInterrupt
        return usual(*arguments, **settings)

    return stopped


@pytest.fixture(scope="module")
def unbroken(
    finished: Path, child: Experiment, expected: list[Found], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run that nothing interrupted, of which the second attempt is best."""
    folder = tmp_path_factory.mktemp("unbroken")
    shutil.copytree(finished, folder / finished.name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(folder))
        judge(patched).say(expected, peak(expected, 1))
        ticking(patched)
        return runner.ensure(child, 0).folder


@pytest.fixture
def whole(unbroken: Path, expected: list[Found], judged: Judged, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same; from now on attempts are judged as they were then, and every step is kept."""
    judged.say(expected, peak(expected, 1))
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", -1.0)
    return unbroken


WHERE = [
    ("keep_if_best", 1),
    ("keep_if_best", 3),
    ("read_more_lines", 1),
    ("read_more_lines", 3),
    ("write_origin", 2),
    ("write_manifest", 3),
    ("evaluate", 1),
    ("take_best", 1),
]


@pytest.mark.parametrize(("name", "call"), WHERE)
def test_a_run_killed_between_attempts_and_resumed_is_the_same_run(
    name: str, call: int, whole: Path, child: Experiment, expected: list[Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of training too: an attempt that was finished before the kill is not counted again."""
    ticking(monkeypatch)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(runner, name, stop_at(call, getattr(runner, name)))
        runner.ensure(child, 0)
    assert store.find(child, 0) is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = runner.ensure(child, 0)
    assert_same_run(found.folder, whole)
    seconds = json.loads((whole / "manifest.json").read_text())["seconds"]["training"]
    assert found.manifest["seconds"]["training"] == seconds == 4.0 * len(expected)
    half_written = name == "write_manifest"  # lines of the next attempt, and the last one's name for them
    assert [str(each.message).count("begun anew") for each in caught] == [1] * half_written
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(path.name for path in whole.iterdir())


@pytest.mark.parametrize("step", [1, 3])
def test_a_run_killed_within_a_later_attempt_goes_on_with_that_attempt(
    step: int, whole: Path, child: Experiment, expected: list[Found]
) -> None:
    steps: list[int] = []

    def stop_in_the_third(progress: Progress) -> None:
        steps.append(progress.step)
        if len(steps) == 2 * 4 + step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.ensure(child, 0, stop_in_the_third)
    steps.clear()
    found = runner.ensure(child, 0, lambda progress: steps.append(progress.step))
    assert steps == [*range(step + 1, 5)] + [1, 2, 3, 4] * (len(expected) - 3)
    assert_same_run(found.folder, whole)


@pytest.mark.parametrize("name", ["bias.json", "thresholds.csv", "origin.json"])
@pytest.mark.parametrize("damage", [altered, deleted])
def test_a_later_attempt_whose_lines_are_damaged_leaves_nothing_to_the_first(
    name: str, damage: Callable[[Path], None], whole: Path, child: Experiment, folders: Folders
) -> None:
    """Least of all the checkpoint, whose weights were trained under other lines."""
    with pytest.raises(KeyboardInterrupt):
        runner.ensure(child, 0, stop_at(2 * 4 + 3, lambda progress: None))  # type: ignore[arg-type]
    damage(folders.runs / ".partial" / child.key(0) / name)
    with pytest.warns(UserWarning, match="begun anew"):
        found = runner.ensure(child, 0)
    assert_same_run(found.folder, whole)
    (kept,) = (folders.runs / ".set-aside").iterdir()
    assert runner.CHECKPOINT in {path.name for path in kept.iterdir()}


def test_a_finished_run_is_not_tried_again(whole: Path, child: Experiment, judged: Judged, folders: Folders) -> None:
    shutil.copytree(whole, folders.runs / whole.name)
    found = runner.ensure(child, 0)
    assert not judged.trained
    pd.testing.assert_frame_equal(found.history(), pd.read_csv(whole / "history.csv"))
