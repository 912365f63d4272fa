"""Making runs: trained once, resumed to the bit, calibrated, tested later; nothing half-made is ever found."""

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from conftest import Folders
from helpers import assert_same_result, child_of, longer_experiment, never, renamed, tiny_experiment
from processes import SERVER, serve

from abc_nb.bias import Causal
from abc_nb.bias.base import Attention
from abc_nb.calibration.calibrate import Calibration, Determining, Inherited
from abc_nb.certificates.certify import contexts_of
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.runs import runner, store, sweep, trainings
from abc_nb.runs.store import Run
from abc_nb.specs.spec import Spec, spec
from abc_nb.training.fit import Progress, Training
from abc_nb.training.problems import train


def assert_all_there(value: Any, data: dict[str, Any]) -> None:
    """Every field of a configuration, however deep, stands in its plain data."""
    for field in fields(value):
        if field.metadata.get("stored", True):
            assert field.name in data
            if is_dataclass(part := getattr(value, field.name)):
                assert_all_there(part, data[field.name])


@pytest.mark.parametrize("name", ["addition-vanilla", "n-by-1-abc", "successor-window-cyclic"])
def test_every_field_that_training_depends_on_is_part_of_the_key(name: str) -> None:
    chosen = spec(name)
    assert_all_there(chosen, chosen.data)
    assert replace(chosen, training=replace(chosen.training, clip=2.0)).digest != chosen.digest
    assert replace(chosen, tests=((2, 5),), profile="smoke").digest == chosen.digest
    if parent := chosen.parent:
        other = replace(parent, training=replace(parent.training, steps=5))
        assert replace(chosen, parent=other).digest != chosen.digest


def test_a_finished_run_is_not_made_again_and_another_seed_is_another_run(run: Run) -> None:
    assert_same_result(runner.ensure(run.spec, 0, never), run)
    other = runner.ensure(run.spec, 1)
    assert other.checksum != run.checksum and other.seed == 1


def train_and_die(folder: str) -> None:
    os.environ["ABC_NB_RUNS"] = folder
    torch.set_num_threads(1)
    Training.checkpoint_seconds = 0.0
    runner.ensure(longer_experiment(), 0, lambda progress: progress.step == 30 and os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_result(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    serve()
    process = SERVER.Process(target=train_and_die, args=(str(folders.runs),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    chosen, steps = longer_experiment(), list[int]()
    assert store.find(chosen, 0) is None, "half of a run is none"
    run = runner.ensure(chosen, 0, lambda progress: steps.append(progress.step))
    assert steps[0] > 1, "it goes on from the checkpoint"
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs / "whole"))
    assert_same_result(run, runner.ensure(chosen, 0))


def test_a_run_is_in_place_whole_or_not_at_all(
    run: Run, tiny: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs / "other"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_run", full)
        with pytest.raises(OSError, match="No space"):
            runner.ensure(tiny, 0)
    assert store.find(tiny, 0) is None
    assert_same_result(runner.ensure(tiny, 0, never), run)


def make_and_report(folder: str, done: Any) -> None:
    os.environ["ABC_NB_RUNS"] = folder
    steps: list[int] = []
    runner.ensure(tiny_experiment(), 0, lambda progress: steps.append(progress.step))
    done.put(len(steps))


@pytest.mark.slow
def test_two_processes_do_not_make_a_run_twice(folders: Folders) -> None:
    serve()
    done = SERVER.Queue()
    both = [SERVER.Process(target=make_and_report, args=(str(folders.runs), done)) for _ in range(2)]
    for process in both:
        process.start()
    assert sorted(done.get(timeout=120) for _ in both) == [0, 4]
    for process in both:
        process.join()


DAMAGE = {  # of the record or the weights
    "truncated": (store.RECORD, lambda content: content[:200]),
    "another seed": (store.RECORD, lambda content: content.replace(b'"seed": 0', b'"seed": 3')),
    "other weights": (store.WEIGHTS, lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]),
    "no weights": (store.WEIGHTS, lambda content: b""),
    "a pickle": (store.WEIGHTS, lambda content: pickle.dumps({"head.weight": [0.0]})),
}


@pytest.mark.parametrize(("file", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_is_named_and_not_used(run: Run, file: str, damage: Callable[[bytes], bytes]) -> None:
    path = run.folder / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"train (it|the run) again"):
        runner.ensure(run.spec, 0, never).model()
    assert path.exists(), "nothing is deleted"


def test_a_calibrated_run_keeps_its_lines_and_where_they_are_from(calibrated: Run, child: Spec) -> None:
    assert child.parent is not None
    bias, parent = calibrated.bias(), runner.ensure(child.parent, 0)
    assert bias is not None and bias.lines
    made_from = calibrated.facts["parent"]
    assert (made_from["run"], made_from["weights"]) == (parent.key, parent.checksum)
    assert calibrated.model().config.bias == bias
    assert calibrated.table("thresholds").lines.tolist() == [len(bias.lines)]


def test_new_weights_or_the_parents(child: Spec, folders: Folders) -> None:
    """Before the first step: the parent's weights to the bit, or those of the seed."""
    assert child.parent is not None
    parent = runner.ensure(child.parent, 0)
    bias, *_ = next(trainings.readings(child, 0, parent))
    warm = trainings.start(child, 0, bias, parent).state_dict()
    torch.testing.assert_close(warm, parent.model().state_dict(), rtol=0, atol=0)
    new = trainings.start(replace(child, start="new"), 0, bias, parent).state_dict()
    torch.testing.assert_close(new, child.build(0).state_dict(), rtol=0, atol=0)


def test_the_sparsest_lines_that_determine_the_answer_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of this place have 60% of the attention and those below 40%: without these a carry is not known."""
    chosen, vanilla = replace(spec("successor-abc-unpractised"), calibration=Determining()), spec("successor-vanilla")

    def attention(model: Transformer, batch: Batch, source: str) -> dict[tuple[str, int], torch.Tensor]:
        layout, heads = batch.layout, model.config.heads
        cross = torch.zeros(heads, layout.target_length, layout.source_length)
        for step in range(layout.target_length):
            cross[:, step, max(layout.units - step, 0)] = 0.6
            cross[:, step, layout.units - step + 1] = 0.4
        diagonal = torch.eye(layout.target_length).repeat(heads, 1, 1)
        return {(name, layer): part for layer in range(2) for name, part in (("cross", cross), ("self", diagonal))}

    monkeypatch.setattr(trainings, "average_attention", attention)
    assert chosen.calibration is not None
    calibrated = trainings.calibrate_lines(chosen, vanilla.build(0), chosen.calibration_batch(0), chosen.calibration)
    assert calibrated.tried[["share", "skill"]].to_numpy().tolist() == [[1.0, 0], [0.7, 0], [0.5, 0], [0.4, 1]]
    assert {line.offset for line in calibrated.bias.lines if line.attention == "cross"} == {0, 1}
    contexts = contexts_of(chosen.build(0, calibrated.bias), chosen.sampler)
    for shape in contexts.shapes:
        rows = [row.tobytes() for block in contexts.blocks(shape) for row in block.values]
        assert len({*rows}) == len(rows), "no two contexts look the same"


@pytest.mark.parametrize(("kept", "opened"), [("cross", "self"), ("self", "cross")])
def test_lines_of_one_attention_are_the_parents_and_the_other_sees_all_keys(kept: Attention, opened: Attention) -> None:
    parent = store.find(spec("addition-abc"), 0)
    assert parent is not None
    chosen = replace(spec("addition-abc-unpractised"), calibration=Inherited(attention=kept), parent=parent.spec)
    [(bias, *_)] = trainings.readings(chosen, 0, parent)
    assert bias is not None
    layout = chosen.sampler.layout(6)
    for layer in range(chosen.model.decoder_layers):
        assert torch.equal(bias.dense(layout, kept, layer), parent.bias().dense(layout, kept, layer))
        everything = Causal().opened(layout, opened, layer)
        assert torch.equal(bias.opened(layout, opened, layer), everything.expand(bias.heads, -1, -1))


@pytest.fixture
def hard_to_please(child: Spec) -> Spec:
    """ABC that chooses its threshold itself, and whose validation is never good enough."""
    return replace(child, calibration=Calibration(keep=0.01), accept=2.0, start="new")


def test_while_validation_is_too_low_more_lines_are_read(
    hard_to_please: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until none are left; the attempt that is best in validation is kept, with its lines."""
    validated = iter([0.2, 0.9, 0.5, *[0.1] * 9])

    def train_as_if(*settings: Any) -> Progress:
        progress = train(*settings)
        progress.history = [{"step": 1, "seconds": 1.0, "loss": 1.0, "accuracy": next(validated)}]
        return progress

    assert hard_to_please.parent is not None
    runner.ensure(hard_to_please.parent, 0)
    monkeypatch.setattr(trainings, "train", train_as_if)
    run = runner.ensure(hard_to_please, 0)
    thresholds, bias = run.table("thresholds"), run.bias()
    assert bias is not None
    assert run.validation == 0.9 and thresholds.validation.dropna().tolist() == [0.2]
    assert thresholds.share.is_monotonic_decreasing and thresholds.lines.iloc[-1] == len(bias.lines)
    assert next(validated) < 0.5, "attempts go on after the best one"
    assert not [*(folders.runs / ".partial").rglob("attempt-*")], "checkpoints go when the run is whole"


# ---- sweeps


def test_a_parent_that_is_nowhere_is_made_first(child: Spec, tiny: Spec, folders: Folders) -> None:
    jobs = [(child, 0), (child, 1), (tiny, 1)]
    todo = sweep.missing(jobs)
    assert todo == [(tiny, 0), (child, 0), (tiny, 1), (child, 1)]
    assert [sweep.depth(job) for job, _ in todo] == [0, 1, 0, 1]


@pytest.mark.slow
def test_processes_give_what_one_process_gives(child: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    serve()
    monkeypatch.setattr("joblib.externals.loky.backend.context._DEFAULT_START_METHOD", "forkserver")
    jobs = [(child, 0), (child, 1)]
    alone = [runner.ensure(*job) for job in jobs]
    monkeypatch.setenv("ABC_NB_RUNS", str(folders.runs / "together"))
    assert sweep.sweep(jobs, processes=2) == []
    for run, job in zip(alone, jobs, strict=True):
        again = store.find(*job)
        assert again is not None and again.folder != run.folder
        assert_same_result(run, again)
    assert sweep.missing(jobs) == []


def test_a_failure_is_named_and_the_others_go_on(tiny: Spec, folders: Folders) -> None:
    broken = renamed(replace(tiny, tests=((1, 0),)), "broken")
    orphan = replace(child_of(broken), tests=())
    failures = sweep.sweep([(orphan, 0), (tiny, 0), (broken, 1)], processes=1)
    wanted = ("successor-broken seed 0", "successor-broken seed 1", "successor-abc seed 0")
    for failure, name in zip(failures, wanted, strict=True):
        assert failure.startswith(f"{name} failed: ") and "0 problems of 1 digits are too few" in failure
    assert store.find(tiny, 0) is not None
