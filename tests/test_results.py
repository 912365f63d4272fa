"""Results: which runs may be missing, and the tables that are made of many runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from conftest import Folders
from helpers import rows

from abc_nb.analysis import results
from abc_nb.analysis.results import AnyName, Results
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Sinusoidal
from abc_nb.runs import runner, store
from abc_nb.show import tables
from abc_nb.specs.models import GRID_NAMES
from abc_nb.specs.names import Name
from abc_nb.specs.spec import Spec, spec
from abc_nb.specs.studies import BINARY, STUDIES, corner

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


@pytest.mark.parametrize("origin", ["shipped", "any"])
def test_of_shipped_results_one_seed_is_enough(origin: str, run: store.Run) -> None:
    store.ship(run, weights=False)
    shutil.rmtree(run.folder)
    (found,) = Results("smoke", origin, [1, 0, 2]).runs([NAME])
    assert (found.seed, found.manifest["shipped"]) == (0, True)
    if origin == "shipped":
        with pytest.raises(InputError, match=f"no results of {NAME}, seed 1, were .*shipped"):
            Results("smoke", origin, [1, 2]).runs([NAME])


@pytest.mark.parametrize("origin", ["shipped", "any", "runs"])
def test_seeds_that_no_run_has_are_an_error_that_names_those_which_are_there(origin: str, run: store.Run) -> None:
    store.ship(run, weights=False)
    shutil.rmtree(run.folder)
    where = {"shipped": "shipped", "any": "made here or shipped", "runs": "made here"}[origin]
    says = rf"no results of {NAME}, seed 7, were {where}: run `abc-nb train {NAME} .*or take the seeds .*there \(0\)"
    with pytest.raises(InputError, match=says):
        Results("smoke", origin, [7]).runs([NAME])
    assert Results("smoke", origin, [7]).there([NAME]) == []


def test_of_runs_made_here_and_shipped_ones_those_of_the_seeds_asked_for_are_taken(run: store.Run, tiny: Spec) -> None:
    store.ship(runner.ensure(tiny, 1), weights=False)
    store.ship(runner.ensure(tiny, 2), weights=False)
    shutil.rmtree(runner.ensure(tiny, 1).folder)
    shutil.rmtree(runner.ensure(tiny, 2).folder)
    found = Results("smoke", "runs", [0, 1, 7]).or_shipped()
    assert [(each.seed, each.manifest["shipped"]) for each in found.runs([NAME])] == [(0, False), (1, True)]


def test_provenance_says_how_many_runs_were_made_here(run: store.Run, tiny: Spec) -> None:
    store.ship(runner.ensure(tiny, 1), weights=False)
    shutil.rmtree(runner.ensure(tiny, 1).folder)
    said = {
        ("runs", 0): "1 runs, made here; seed 0;",
        ("shipped", 1): "1 runs, shipped; seed 1;",
        ("any", 1): "1 runs, shipped; seed 1;",
    }
    for (origin, seed), words in said.items():
        assert words in Results("smoke", origin, [seed]).provenance([NAME])
    mixed = Results("smoke", "any", [0, 1]).provenance([NAME, NAME, NAME])
    assert "6 runs, 3 made here and 3 shipped; seeds 0 to 1" in mixed


def test_where_nothing_is_shipped_the_error_says_how_to_name_the_results(folders: Folders) -> None:
    says = f"set ABC_NB_RESULTS to the folder results of a checkout, for {folders.shipped} holds no shipped results"
    with pytest.raises(InputError, match=says):
        Results("quick", "shipped", [0]).runs([NAME])


# ---- tables of many runs ----------------------------------------------------------------------------


def test_ablations_come_with_the_lines_that_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = {"ABC": [1.0, 0.5, 0.75], "kappa 2 (v1)": [0.25, 0.125, 0.0], "Vanilla": [1.0]}
    tested = [rows(model, {60: values, 20: [0.0] * len(values)}) for model, values in accuracy.items()]
    tested.append(rows("ABC", {60: [1.0]}, "Successor"))
    kept = pd.DataFrame({"task": ["Addition"] * 2, "model": ["kappa 2 (v1)", "ABC"], "lines": [12, 34]})
    monkeypatch.setattr(tables, "kept_lines", lambda runs: kept)

    class Found:
        def there(self, names: Sequence[AnyName]) -> list[AnyName]:
            return [*names]

        def names(self, *studies: str) -> list[str]:
            return []

        def runs(self, names: Sequence[str]) -> list[store.Run]:
            return []

        def evaluation(self, names: Sequence[AnyName]) -> pd.DataFrame:
            assert "addition-abc-mod3-warm" in map(str, names), "the unchanged model is asked for"
            return pd.concat(tested)

    table = tables.ablations(Found())  # type: ignore[arg-type]
    assert list(table.task) == ["Addition", "Addition", "Successor"]
    found = table.set_index(["task", "model"])
    assert len(found) == 3, "Vanilla is no ablation, and 20 digits are another table"
    assert found.ours.to_dict() == {
        ("Addition", "ABC"): 75.0,
        ("Addition", "kappa 2 (v1)"): 12.5,
        ("Successor", "ABC"): 100.0,
    }
    shown = tables.by_choice(table)
    assert shown.loc["ABC"].to_dict() == {"Addition": "75.0 (50.0–100.0) [34]", "Successor": "100.0"}
    assert shown.loc["kappa 2 (v1)"].to_dict() == {"Addition": "12.5 (0.0–25.0) [12]", "Successor": ""}
    assert found.seeds.to_list() == [3, 3, 1]
    shorter = tables.ablations(Found(), length=20)  # type: ignore[arg-type]
    assert tables.by_choice(shorter).Addition.to_dict() == {"ABC": "0.0 [34]", "kappa 2 (v1)": "0.0 [12]"}


class ByPeriod(Results):
    """Results whose accuracy is a tenth of the period of the model that was asked for."""

    def there(self, names: Sequence[AnyName]) -> list[AnyName]:
        return [*names]

    def evaluation(self, names: Sequence[str | Name]) -> pd.DataFrame:
        position = spec(names[0]).model.position
        assert isinstance(position, Sinusoidal)
        share = (position.period or 0) / 10
        return pd.concat([rows("any", {6: [1.0], 60: [share]}, spec(name).task.name) for name in names])


@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_the_grid_has_a_row_for_each_window_period_task_and_length(profile: str) -> None:
    found, study = (
        tables.by_window_and_period(ByPeriod(profile, "shipped", [0]), "grid"),
        corner(STUDIES["grid"], profile),
    )
    places = {("–" if w is None else str(w), t or 0) for (w, t), name in GRID_NAMES.items() if name in study.models}
    wanted = {(task, w, t, length) for task in study.tasks for w, t in places for length in (6, 60)}
    assert [*found.groupby(["task", "w", "T", "length"]).size()] == [1] * len(wanted)
    assert {*zip(found.task, found.w, found["T"], found.length, strict=True)} == wanted
    longest = found[found.length == 60]
    np.testing.assert_allclose(longest.ours, 10 * longest["T"])


def test_periods_are_those_of_the_models_that_have_them() -> None:
    found = tables.by_window_and_period(ByPeriod("quick", "shipped", [0]), "periods", "window-cyclic-both")
    found = found.query("length == 60")
    np.testing.assert_allclose(found.ours, 10 * found["T"])
    assert set(found.w) == {"1"} and set(found.task) == {*BINARY}
    read = tables.by_period(found, [60])
    assert read.loc[("Addition", 60)].to_dict() == {t: f"{10 * t}.0" for t in range(2, 9)}


class Trained(Results):
    """Results that know how many widths a model was trained at, and lack RoPE's."""

    def there(self, names: Sequence[AnyName]) -> list[AnyName]:
        return [name for name in names if "rope" not in str(name)]

    def evaluation(self, names: Sequence[str | Name]) -> pd.DataFrame:
        (name,) = names
        share = 0.25 * len(spec(name, self.profile).sampler.widths)
        return rows("any", {6: [1.0], 20: [share, share]}, spec(name).task.title)


def test_models_trained_at_one_width_and_at_several_stand_beside_each_other() -> None:
    table = tables.widths(Trained("quick", "shipped", [0]), ["successor", "addition"], [20])
    models = ["Vanilla, 1 width", "Vanilla, 3 widths", "RPE, 1 width", "RPE, 3 widths"]
    assert [*zip(table.task, table.model, strict=True)] == [
        (task, m) for task in ("Successor", "Addition") for m in models
    ]
    assert table.ours.to_list() == [25.0, 75.0] * 4 and set(table.length) == {20} and set(table.seeds) == {2}
