"""The store: what is shipped is read back to the bit, a name is one run, and keys survive changes of classes."""

import json
from collections import defaultdict
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import assert_same_result
from safetensors.torch import load_file

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.common.config import digest, from_data, later, to_data
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import split, value
from abc_nb.runs import runner, store
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import every_name, parse
from abc_nb.specs.spec import Spec, spec
from abc_nb.training.recipe import TrainingConfig
from audit import DATA


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
        added = [("nesterov", bool, later(False, default))]
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
