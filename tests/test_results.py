"""Results and the tables that are made of them: which runs may be missing, numbers against hand-made frames."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Folders
from helpers import rows

from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.show import pictures, tables
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import wilson
from audit import frames, plots, statistics
from audit import tables as beside
from audit.results import Results

NAME = "addition-vanilla"  # in the profile smoke
SPEC = spec(NAME, "smoke")


def has(seed: int, record: Mapping[str, Any], folders: Folders, *, shipped: bool) -> None:
    """A run of that seed, with another's numbers and without weights, made here or shipped."""
    record_of_seed = dict(record) | {"key": SPEC.key(seed), "seed": seed}
    folder = folders.runs / str(record_of_seed["key"])
    store.write_run(record_of_seed, {}, folder)
    if shipped:
        store.ship(store.read_run(SPEC, seed, folder), weights=False)
        shutil.rmtree(folder)


def test_runs_made_here_must_have_every_seed(vanilla: store.Run, folders: Folders) -> None:
    has(0, vanilla.record, folders, shipped=False)
    assert [run.seed for run in Results("smoke", "runs", [0]).runs([NAME])] == [0]
    with pytest.raises(InputError, match=f"no results of {NAME}, seed 1, were made here: run `abc-nb train {NAME}"):
        Results("smoke", "runs", [0, 1]).runs([NAME])


@pytest.mark.parametrize(
    ("origin", "where"), [("shipped", "shipped"), ("any", "made here or shipped"), ("runs", "made here")]
)
def test_of_shipped_results_one_seed_is_enough_and_without_any_those_that_are_there_are_named(
    origin: str, where: str, vanilla: store.Run, folders: Folders
) -> None:
    has(0, vanilla.record, folders, shipped=True)
    if origin != "runs":
        (run,) = Results("smoke", origin, [1, 0, 2]).runs([NAME])
        assert (run.seed, run.shipped) == (0, True)
    says = rf"no results of {NAME}, seed 7, were {where}: run `abc-nb train {NAME} .*or take the seeds .*there \(0\)"
    with pytest.raises(InputError, match=says):
        Results("smoke", origin, [7]).runs([NAME])
    assert Results("smoke", origin, [7]).with_results([NAME]) == []


def test_of_runs_made_here_and_shipped_ones_those_of_the_seeds_asked_for_are_taken(
    vanilla: store.Run, folders: Folders
) -> None:
    for seed in (0, 1, 2):
        has(seed, vanilla.record, folders, shipped=seed > 0)
    results = Results("smoke", "runs", [0, 1, 7]).or_shipped()
    assert [(run.seed, run.shipped) for run in results.runs([NAME])] == [(0, False), (1, True)]
    assert "6 runs, 3 made here and 3 shipped; seeds 0 to 1; tight" in results.provenance([NAME] * 3)
    assert "1 runs, made here; seed 0; tight" in Results("smoke", "runs", [0]).provenance([NAME])
    assert "1 runs, shipped; seed 1; tight" in Results("smoke", "any", [1]).provenance([NAME])


def test_where_nothing_is_shipped_the_error_says_how_to_name_the_results(folders: Folders) -> None:
    says = f"set ABC_NB_RESULTS to the folder results of a checkout, for {folders.shipped} holds no shipped results"
    with pytest.raises(InputError, match=says):
        Results("quick", "shipped", [0]).runs([NAME])


def test_median_worst_and_best_over_seeds_are_those_of_numpy() -> None:
    values = {6: [1.0, 0.5, 0.75], 10: [0.0, 0.25, 0.125, 0.5, 0.0625], 60: [0.2, 0.4]}
    by_length = statistics.over_seeds(rows("Vanilla", values)).set_index("length")
    for length, accuracies in values.items():
        middle = sorted(accuracies)[(len(accuracies) - 1) // 2]  # of an even number a seed, not a mean
        assert by_length.ours[length] == pytest.approx(100 * middle)
        assert (by_length.worst[length], by_length.best[length]) == (100 * min(accuracies), 100 * max(accuracies))
        low, high = wilson(round(1000 * middle), 1000)
        assert (by_length.ci_low[length], by_length.ci_high[length]) == pytest.approx((100 * low, 100 * high))


@pytest.mark.parametrize(
    ("value", "text", "short"),
    [
        (100.0, "100.0", "100"),
        (99.97, "99.97", "99.97"),
        (99.6, "99.6", "99.6"),
        (0.02, "0.02", "0.02"),
        (7.4, "7.4", "7"),
    ],
)
def test_a_percentage_is_not_rounded_to_all_or_nothing(value: float, text: str, short: str) -> None:
    assert (statistics.percent(value), statistics.percent(value, 0)) == (text, short)
    panel = pictures.new_figure(1)[1][0]
    plots.percent_map(panel, pd.DataFrame([[value]]), "")
    assert [label.get_text() for label in panel.texts] == [short]


def test_the_papers_number_stands_beside_ours() -> None:
    table = beside.beside_paper(rows("RPE", {length: [0.5] for length in (6, 7, 10, 15, 20, 60)}), "table1")
    assert list(table.length) == [6, 10, 15, 20, 60]
    assert list(table.paper[:4]) == [100, 99.9, 97.2, 21.3]
    assert np.isnan(table.paper[4])
    assert beside.wide(table).loc[("Addition", "RPE"), 10] == "99.9 | 50.0"
    ours = pd.concat([rows(model, {60: [1.0]}) for model in ("window-cyclic", "nope-window", "abs-unpractised")])
    assert beside.beside_paper(ours, "table1").paper.tolist() == [100, 99.35, 99.35], "ours are models before practice"
    assert beside.beside_paper(rows("abc-unpractised", {60: [1.0]}), "table3").paper.tolist() == [99.8]


def test_parity_with_scratchpad_is_compared_with_the_papers_scratchpad_row() -> None:
    table = beside.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table1")
    assert (table.model[0], table.paper[0]) == ("+ scratchpad", 29.23)
    assert beside.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table3").model[0] == "Vanilla"


def test_table_2_says_yes_where_the_median_seed_reaches_the_bar() -> None:
    parts = [rows("vanilla", {6: [1.0], 60: [0.1]}, "Successor").assign(validation=0.99)]
    parts += [rows("vanilla", {60: [1.0, 0.995]}).assign(validation=[0.98, 0.99]), rows("rope", {60: [0.0]}, "Parity")]
    table = beside.interpolation(pd.concat(parts)).set_index("task")
    assert table["interpolation, ours"].to_dict() == {"Successor": "yes", "Addition": "no"}
    assert table["extrapolation, ours"].to_dict() == {"Successor": "no", "Addition": "yes"}
    assert table["validation (%)"].to_dict() == {"Successor": 99.0, "Addition": 98.0}
    assert set(table["interpolation, paper"]) == {"yes"} and set(table["extrapolation, paper"]) == {"no"}


def test_accuracies_by_length_say_how_far_seeds_differ_and_how_many_problems() -> None:
    far = rows("ABC", {60: [1.0, 0.75, 1.0], 1000: [0.5, 1.0, 0.75]}).assign(samples=lambda x: x.length + 40)
    table = frames.by_length(statistics.over_seeds(pd.concat([far, rows("ABS", {60: [1.0], 1000: [0.998]})])))
    assert table.loc[("Addition", "ABC", "3")].to_list() == ["100.0 (75.0–100.0)", "75.0 (50.0–100.0)"]
    assert table.loc[("Addition", "ABS", "1")].to_list() == ["100.0", "99.8"]
    assert table.loc[("problems", "", "")].to_list() == ["100 to 1000", "1000 to 1040"]


def test_reach_ends_where_the_median_first_falls_below_the_bar() -> None:
    far = rows("ABC", {6: [1.0], 60: [1.0, 0.995, 0.2], 100: [0.98], 200: [1.0]})
    never = rows("ABS", {6: [0.5], 60: [1.0]})
    table = frames.reach(pd.concat([far, never, rows("ABC", {500: [1.0]}, "Successor")]), "Addition")
    ours = table[table.source == "this notebook"].set_index("system")
    assert ours.tested.to_dict() == {"ABC, here": 60, "ABS, here": 0}
    assert ours.trained.to_list() == [7, 7], "2**20 has seven digits"


def test_saved_tables_can_be_read_back(figures: Path) -> None:
    table = beside.beside_paper(rows("RoPE", {6: [1.0], 10: [0.0]}), "table1")
    tables.save_table(table, "table-x", "quick", beside.wide(table))
    pd.testing.assert_frame_equal(pd.read_csv(figures / "table-x.csv"), table, check_dtype=False)
    lines = (figures / "table-x.md").read_text().splitlines()
    assert r"100 \| 100.0" in lines[2]
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in lines}) == 1, "every row has as many columns"
    assert "\\begin{tabular}" in (figures / "table-x.tex").read_text()
