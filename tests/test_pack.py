"""Shipped runs: written as tables, read back to the bit, and damage named in one sentence."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from abc_nb.runs.run import checksum
from conftest import Folders
from helpers import assert_same_result

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import split, value
from abc_nb.runs import pack, runner, store
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.spec import Spec, spec


def shipped(chosen: Spec, seed: int = 0) -> Run:
    run = store.find(chosen, seed, ("shipped",))
    assert run is not None
    return run


def test_a_shipped_run_is_the_run_to_the_bit(calibrated: Run) -> None:
    assert store.find(calibrated.spec, 0, ("shipped",)) is None
    store.ship(calibrated, weights=True)
    found = shipped(calibrated.spec)
    assert_same_result(found, calibrated)
    assert found.bias() == calibrated.bias()
    pd.testing.assert_frame_equal(found.table("history"), calibrated.table("history"), check_dtype=False)
    torch.testing.assert_close(found.model().state_dict(), calibrated.model().state_dict(), rtol=0, atol=0)
    facts = {name: value for name, value in calibrated.facts.items() if name != "shipped"}
    facts["bias"] = {name: value for name, value in facts["bias"].items() if value is not None}
    assert found.facts == facts | {"shipped": True}


def test_runs_are_added_and_replaced(run: Run, folders: Folders) -> None:
    """One run more leaves the others as they are; the same name and seed again takes the old one's place."""
    second = runner.ensure(run.spec, 1)
    for each in (second, run):
        store.ship(each, weights=True)
    changed = replace(run.spec, training=replace(run.spec.training, steps=5))
    store.ship(runner.ensure(changed, 0), weights=True)
    assert_same_result(shipped(run.spec, 1), second)
    assert shipped(changed).facts["steps"] == 5
    rows = pack.Pack(folders.shipped).rows
    assert [row["seed"] for row in rows.values()] == [0, 1]


def test_weights_of_8_bits_and_others_take_each_others_place(run: Run) -> None:
    """Nothing is left of the exponents that rounded weights have beside them."""
    assert run.weights is not None
    rounded = {name: value(*split(tensor)) for name, tensor in run.weights().items()}
    facts = {**run.facts, "weights": checksum(rounded)}
    for each in (replace(run, weights=lambda: rounded, manifest=facts), run):
        store.ship(each, weights=True)
        found, wanted = shipped(run.spec).model().state_dict(), each.model().state_dict()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("file", [pack.RUNS, "evaluation.csv.gz"])
def test_a_damaged_table_is_named(run: Run, folders: Folders, file: str) -> None:
    store.ship(run, weights=False)
    (folders.shipped / file).write_bytes(b"run\n1\n")
    pack.kept.cache_clear()
    with pytest.raises(InputError, match="the shipped results are damaged: copy"):
        shipped(run.spec).evaluation()


def test_every_shipped_run_is_that_of_todays_recipe() -> None:
    """Its row names the digest of the experiment as the package has it now, and that one stands in the list."""
    known = pack.open_pack(paths.SHIPPED)
    assert len(known.rows) > 2000
    for name, row in known.rows.items():
        todays = spec(Name(row["task"], row["model"], row["base"]), row["profile"])
        assert row["experiment"] == todays.digest and name == todays.run_name(row["seed"])


def test_shipped_results_are_small() -> None:
    files = [path for path in paths.SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 80 * 2**20
