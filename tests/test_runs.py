"""Runs: trained once, resumed to the bit, calibrated, never half-made; kept, shipped and found by name."""

import json
import os
import pickle
import signal
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import assert_same_result, child_of, longer_experiment, never, renamed, tiny_experiment
from processes import SERVER, serve
from safetensors.torch import load_file

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.bias import Causal
from abc_nb.bias.base import Attention
from abc_nb.calibration.calibrate import Calibration, Determining, Inherited
from abc_nb.certificates.certify import contexts_of
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.common.config import added_field, digest, from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import split, value
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.runs import runner, store, sweep, trainings
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import every_name, parse
from abc_nb.specs.spec import Spec, spec
from abc_nb.training.fit import Progress, Training
from abc_nb.training.problems import train
from abc_nb.training.recipe import TrainingConfig
from audit import DATA


def assert_all_there(value: Any, data: dict[str, Any]) -> None:
    """Every field of a configuration, however deep, stands in its plain data."""
    for stored in (part for part in fields(value) if part.metadata.get("stored", True)):
        assert stored.name in data
        if is_dataclass(part := getattr(value, stored.name)):
            assert_all_there(part, data[stored.name])


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


# ---- the store


def shipped(chosen: Spec, seed: int = 0) -> Run:
    run = store.find(chosen, seed, ("shipped",))
    assert run is not None
    return run


def test_a_shipped_run_is_the_run_to_the_bit(calibrated: Run) -> None:
    assert store.find(calibrated.spec, 0, ("shipped",)) is None
    store.ship(calibrated, weights=True)
    again = shipped(calibrated.spec)
    assert_same_result(again, calibrated)
    assert again.shipped and not calibrated.shipped
    assert again.bias() == calibrated.bias() and again.facts == calibrated.facts
    pd.testing.assert_frame_equal(again.table("history"), calibrated.table("history"))
    torch.testing.assert_close(again.model().state_dict(), calibrated.model().state_dict(), rtol=0, atol=0)


def test_shipping_appends_and_the_last_line_counts(run: Run, folders: Folders) -> None:
    store.ship(run, weights=False)
    first = (folders.shipped / store.RUNS).read_text()
    second = runner.ensure(run.spec, 1)
    store.ship(second, weights=True)
    store.ship(run, weights=True)
    assert (folders.shipped / store.RUNS).read_text().startswith(first)
    assert [seed for seed in store.seeds(run.spec) if store.find(run.spec, seed, ("shipped",))] == [0, 1]
    assert_same_result(shipped(run.spec, 1), second)
    assert shipped(run.spec).weights is not None
    assert len((folders.shipped / store.SPECS).read_text().splitlines()) == 1


def test_weights_of_8_bits_are_kept_as_such(run: Run, folders: Folders) -> None:
    rounded = {name: value(*split(tensor)) for name, tensor in run.state().items()}
    record = dict(run.record) | {"facts": run.facts | {"weights": store.tensors_checksum(rounded)}}
    store.write_run(record, rounded, folders.runs / "rounded")
    store.ship(replace(run, record=record, weights=folders.runs / "rounded" / store.WEIGHTS), weights=True)
    torch.testing.assert_close(shipped(run.spec).state(), rounded, rtol=0, atol=0)
    file = folders.shipped / shipped(run.spec).record["tensors"][0]
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.int8}


def test_damaged_results_are_named(run: Run, folders: Folders) -> None:
    store.ship(run, weights=False)
    (folders.shipped / store.RUNS).write_text('{"key": "half of a line')
    with pytest.raises(InputError, match="the shipped results are damaged: copy"):
        shipped(run.spec)


def test_every_shipped_run_is_found_by_its_name() -> None:
    """Its key is that of the experiment as the package has it now, digest included."""
    records, experiments = store.records("shipped"), defaultdict[tuple[Any, ...], list[store.Data]](list)
    digests = {json.loads(line)["digest"]: json.loads(line)["spec"] for line in (paths.SHIPPED / store.SPECS).open()}
    assert len(records) > 2000 and DATA.exists(), "the audit's models are known"
    for record in records:
        assert "tensors" not in record or (paths.SHIPPED / record["tensors"][0]).exists()
        experiments[record["task"], record["model"], record["base"], record["profile"]].append(record)
    for (*name, profile), of_name in experiments.items():
        today = spec(Name(*name), profile)
        assert parse(str(today.identity)) == today.identity
        assert {record["key"] for record in of_name} == {today.key(record["seed"]) for record in of_name}
        data = json.loads(json.dumps(today.data))
        assert all(digests[digest] == data for digest in {record["spec"] for record in of_name})


def test_names_and_experiments_are_one_to_one() -> None:
    names = [*every_name(any_base=True)]
    assert len({str(name) for name in names}) == len(names) == len({*names})
    assert all(parse(str(name)) == name for name in names[:: len(names) // 50])


def test_a_new_field_changes_no_key_and_a_new_default_does() -> None:
    """A field is added to the recipe: what older records mean by lacking it is left out of the data for ever."""

    def with_field(default: bool) -> Any:
        added = [("nesterov", bool, added_field(False, default))]
        return make_dataclass("TrainingConfig", added, bases=(TrainingConfig,), frozen=True)

    plain = spec("addition-abc").training
    old, key = vars(plain), digest(to_data(plain))
    for default in (False, True):
        kind = with_field(default)
        assert digest(to_data(kind(**old, nesterov=False))) == key
        assert (digest(to_data(kind(**old))) == key) is (default is False)
        assert from_data(to_data(plain), [kind]).nesterov is False, "an older record means the old value"
        assert from_data(to_data(kind(**old, nesterov=True)), [kind]).nesterov is True


@dataclass(frozen=True)
class Shrunk:
    """A configuration that had a field `norm`, of which all records have one value."""

    RETIRED = (("norm", "pre"),)
    width: int = 8
    bias: tuple[int, ...] = field(default=())


def test_a_removed_field_changes_no_key() -> None:
    record = {"type": "Shrunk", "norm": "pre", "width": 8, "bias": []}
    assert digest(to_data(Shrunk())) == digest(record) and from_data(record, [Shrunk]) == Shrunk()
    with pytest.raises(InputError, match="no setting 'norm'"):
        from_data(record | {"norm": "post"}, [Shrunk])


def test_whatever_a_command_leaves_among_runs_is_readable_by_what_reads_them(
    run: Run, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed run, a record of a task that nobody knows any more and half a file: results are read all the same."""
    smoke = ["--profile", "smoke"]
    assert main(["train", "parity-abc", *smoke, "--set", "training.steps=2", "--set", "parent.training.steps=2"]) == 0
    (folders.runs / "half").mkdir()
    (folders.runs / "half" / store.RECORD).write_text('{"key": ')
    strange = dict(run.record) | {"task": "nothing", "key": "nothing-vanilla-smoke-seed0-0"}
    store.write_run(strange, run.state(), folders.runs / "nothing-vanilla-smoke-seed0-0")
    assert certified.certificates_table(Results("smoke", "any", [0])).empty
    assert main(["list", "parity*", *smoke]) == 0 and "parity-abc" in capsys.readouterr().out


def test_shipped_results_are_small() -> None:
    assert sum(path.stat().st_size for path in paths.SHIPPED.rglob("*") if path.is_file()) < 95 * 2**20
