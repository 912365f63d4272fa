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


# ---- tables of many runs ----------------------------------------------------------------------------


def test_ablations_come_with_the_lines_that_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = {"ABC": [1.0, 0.5, 0.75], "kappa 2 (v1)": [0.25, 0.125, 0.0], "Vanilla": [1.0]}
    tested = [rows(model, {60: values, 20: [0.0] * len(values)}) for model, values in accuracy.items()]
    tested.append(rows("ABC", {60: [1.0]}, "Successor"))
    kept = pd.DataFrame({"task": ["Addition"] * 2, "model": ["kappa 2 (v1)", "ABC"], "lines": [12, 34]})
    monkeypatch.setattr(tables, "kept_lines", lambda runs: kept)
    monkeypatch.setattr(Results, "there", lambda self, names: [*names])
    monkeypatch.setattr(Results, "names", lambda self, *studies: [])
    monkeypatch.setattr(Results, "runs", lambda self, names: [])
    monkeypatch.setattr(Results, "evaluation", lambda self, names: asked.extend(map(str, names)) or pd.concat(tested))
    asked: list[str] = []
    table = tables.ablations(Results("quick", "shipped", [0]))
    assert "addition-abc-unpractised" in asked, "the unchanged model is asked for"
    assert list(table.task) == ["Addition", "Addition", "Successor"], "Vanilla is none, and 20 digits another table"
    assert table.ours.to_list() == [75.0, 12.5, 100.0] and table.seeds.to_list() == [3, 3, 1]
    shown = tables.by_choice(table)
    assert shown.loc["ABC"].to_dict() == {"Addition": "75.0 (50.0–100.0) [34]", "Successor": "100.0"}
    assert shown.loc["kappa 2 (v1)"].to_dict() == {"Addition": "12.5 (0.0–25.0) [12]", "Successor": ""}


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
    models = [
        f"{model}, {widths}"
        for model in ("Vanilla", "NoPE", "RPE", "ALiBi, cross too")
        for widths in ("1 width", "3 widths")
    ]
    assert [*zip(table.task, table.model, strict=True)] == [
        (task, m) for task in ("Successor", "Addition") for m in models
    ]
    assert table.ours.to_list() == [25.0, 75.0] * 8 and set(table.length) == {20} and set(table.seeds) == {2}
