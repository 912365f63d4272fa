"""Results: which runs may be missing, and the tables that are made of many runs."""

import shutil

import pytest
from conftest import Folders

from abc_nb.analysis import results
from abc_nb.analysis.results import Results
from abc_nb.common.errors import InputError
from abc_nb.runs import runner, store
from abc_nb.specs.spec import Spec

NAME = "successor-vanilla"


@pytest.fixture
def run(tiny: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> store.Run:
    """Seed 0 of the tiny experiment, made here; it stands for every name."""
    monkeypatch.setattr(results, "spec", lambda *_: tiny)
    return runner.ensure(tiny, 0)


def test_runs_made_here_must_have_every_seed(run: store.Run) -> None:
    assert Results("smoke", "runs", [0]).runs([NAME]) == [run]
    with pytest.raises(InputError, match=f"no results of {NAME}, seed 1, were made here: run `abc-nb train {NAME}"):
        Results("smoke", "runs", [0, 1]).runs([NAME])


@pytest.mark.parametrize(
    ("origin", "where"), [("shipped", "shipped"), ("any", "made here or shipped"), ("runs", "made here")]
)
def test_of_shipped_results_one_seed_is_enough_and_without_any_those_that_are_there_are_named(
    origin: str, where: str, run: store.Run
) -> None:
    store.ship(run, weights=False)
    shutil.rmtree(run.folder)
    if origin != "runs":
        (found,) = Results("smoke", origin, [1, 0, 2]).runs([NAME])
        assert (found.seed, found.manifest["shipped"]) == (0, True)
    says = rf"no results of {NAME}, seed 7, were {where}: run `abc-nb train {NAME} .*or take the seeds .*there \(0\)"
    with pytest.raises(InputError, match=says):
        Results("smoke", origin, [7]).runs([NAME])
    assert Results("smoke", origin, [7]).there([NAME]) == []


def test_of_runs_made_here_and_shipped_ones_those_of_the_seeds_asked_for_are_taken(run: store.Run, tiny: Spec) -> None:
    for seed in (1, 2):
        store.ship(runner.ensure(tiny, seed), weights=False)
        shutil.rmtree(runner.ensure(tiny, seed).folder)
    found = Results("smoke", "runs", [0, 1, 7]).or_shipped()
    assert [(each.seed, each.manifest["shipped"]) for each in found.runs([NAME])] == [(0, False), (1, True)]
    assert "6 runs, 3 made here and 3 shipped; seeds 0 to 1; tight" in found.provenance([NAME] * 3)
    assert "1 runs, made here; seed 0; tight" in Results("smoke", "runs", [0]).provenance([NAME])
    assert "1 runs, shipped; seed 1; tight" in Results("smoke", "any", [1]).provenance([NAME])


def test_where_nothing_is_shipped_the_error_says_how_to_name_the_results(folders: Folders) -> None:
    says = f"set ABC_NB_RESULTS to the folder results of a checkout, for {folders.shipped} holds no shipped results"
    with pytest.raises(InputError, match=says):
        Results("quick", "shipped", [0]).runs([NAME])
