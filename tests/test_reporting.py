"""Results, tables and the arrays of figures: numbers against hand-made frames."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import rows
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from abc_nb.analysis import dataset, statistics
from abc_nb.analysis.attention import Panel
from abc_nb.analysis.results import Results
from abc_nb.common.errors import InputError
from abc_nb.experiments.catalogue import MODELS
from abc_nb.paper import tables as beside
from abc_nb.problems.tasks import REGISTRY, Task
from abc_nb.show import maps, pictures, plots, tables
from abc_nb.training.evaluation import wilson


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    return tmp_path


def test_median_worst_and_best_over_seeds_are_those_of_numpy() -> None:
    values = {6: [1.0, 0.5, 0.75], 10: [0.0, 0.25, 0.125, 0.5, 0.0625], 60: [0.2, 0.4]}
    found = statistics.over_seeds(rows("Vanilla", values)).set_index("length")
    for length, accuracies in values.items():
        middle = sorted(accuracies)[(len(accuracies) - 1) // 2]  # of an even number a seed, not a mean
        assert found.ours[length] == pytest.approx(100 * middle)
        assert (found.worst[length], found.best[length]) == (100 * min(accuracies), 100 * max(accuracies))
        low, high = wilson(round(1000 * middle), 1000)
        assert (found.ci_low[length], found.ci_high[length]) == pytest.approx((100 * low, 100 * high))


@pytest.mark.parametrize(("value", "text"), [(100.0, "100.0"), (99.97, "99.97"), (99.6, "99.6"), (0.02, "0.02")])
def test_a_percentage_is_not_rounded_to_all_or_nothing(value: float, text: str) -> None:
    assert statistics.percent(value) == text


# ---- beside the paper -------------------------------------------------------------------------------


def test_the_papers_number_stands_beside_ours() -> None:
    table = beside.beside_paper(rows("RPE", {length: [0.5] for length in (6, 7, 10, 15, 20, 60)}), "table1")
    assert list(table.length) == [6, 10, 15, 20, 60]
    assert list(table.paper[:4]) == [100, 99.9, 97.2, 21.3]
    assert np.isnan(table.paper[4])
    assert beside.wide(table).loc[("Addition", "RPE"), 10] == "99.9 | 50.0"


def test_parity_with_scratchpad_is_compared_with_the_papers_scratchpad_row() -> None:
    table = beside.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table1")
    assert (table.model[0], table.paper[0]) == ("+ scratchpad", 29.23)
    assert beside.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table3").model[0] == "Vanilla"


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_every_paper_row_is_of_a_task_and_length_that_exist_here(table: str) -> None:
    numbers = beside.paper_numbers(table)
    assert set(numbers.task) <= {operation.title for operation in REGISTRY.values()}
    assert set(numbers.length) == set(beside.LENGTHS[table])
    assert set(numbers.model) <= {model.title for model in MODELS.values()} | {"+ scratchpad", "ABC"}


def test_table_2_says_yes_where_the_median_seed_reaches_the_bar() -> None:
    validation, longest = pd.Series({"Successor": 0.99, "Addition": 0.98}), pd.Series({"Successor": 0.1, "Addition": 1})
    table = beside.interpolation_table(validation, longest).set_index("task")
    assert table["interpolation, ours"].to_dict() == {"Successor": "yes", "Addition": "no"}
    assert table["extrapolation, ours"].to_dict() == {"Successor": "no", "Addition": "yes"}
    assert table["validation (%)"].to_dict() == {"Successor": 99.0, "Addition": 98.0}
    assert set(table["interpolation, paper"]) == {"yes"} and set(table["extrapolation, paper"]) == {"no"}


# ---- tables -----------------------------------------------------------------------------------------


def test_accuracies_by_length_say_how_far_seeds_differ_and_how_many_problems() -> None:
    far = rows("ABC", {60: [1.0, 0.75, 1.0], 1000: [0.5, 1.0, 0.75]}).assign(samples=lambda x: x.length + 40)
    table = tables.by_length(statistics.over_seeds(pd.concat([far, rows("ABS", {60: [1.0], 1000: [0.998]})])))
    assert table.loc[("Addition", "ABC", "3")].to_list() == ["100.0 (75.0–100.0)", "75.0 (50.0–100.0)"]
    assert table.loc[("Addition", "ABS", "1")].to_list() == ["100.0", "99.8"]
    assert table.loc[("problems", "", "")].to_list() == ["100 to 1000", "1000 to 1040"]


def test_reach_ends_where_the_median_first_falls_below_the_bar() -> None:
    far = rows("ABC", {6: [1.0], 60: [1.0, 0.995, 0.2], 100: [0.98], 200: [1.0]})
    never = rows("ABS", {6: [0.5], 60: [1.0]})
    table = tables.reach(pd.concat([far, never, rows("ABC", {500: [1.0]}, "Successor")]), "Addition")
    ours = table[table.source == "this notebook"].set_index("system")
    assert ours.tested.to_dict() == {"ABC, here": 60, "ABS, here": 0}
    assert ours.trained.to_list() == [7, 7], "2**20 has seven digits"


def test_saved_tables_can_be_read_back(figures: Path) -> None:
    table = beside.beside_paper(rows("RoPE", {6: [1.0], 10: [0.0]}), "table1")
    tables.save(table, "table-x", "quick", beside.wide(table))
    pd.testing.assert_frame_equal(pd.read_csv(figures / "table-x.csv"), table, check_dtype=False)
    lines = (figures / "table-x.md").read_text().splitlines()
    assert r"100 \| 100.0" in lines[2]
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in lines}) == 1, "every row has as many columns"
    assert "\\begin{tabular}" in (figures / "table-x.tex").read_text()


def test_missing_results_and_unknown_ones_are_one_sentence() -> None:
    message = r"addition-vanilla, seed 99, were shipped: run `abc-nb train addition-vanilla"
    with pytest.raises(InputError, match=message):
        Results("quick", "shipped", [99]).runs(["addition-vanilla"])
    for profile, origin in (("fast", "runs"), ("quick", "elsewhere")):
        with pytest.raises(InputError, match="choose one of"):
            Results(profile, origin, [0])


# ---- the data ---------------------------------------------------------------------------------------


def test_examples_have_the_right_answers_and_tokens() -> None:
    shown = dataset.task_examples().set_index("problem")
    assert (shown.answer["999"], shown.answer["123+456"], shown.answer["123*4"]) == ("1000", "579", "492")
    assert list(shown.answer.loc["3 9 4"])[:3] == [str((3 + 9 + 4) % 10), "9", "3"]
    tokens = dataset.example_tokens(Task("addition"), [123, 748], width=4)
    assert ("".join(tokens["source, natural"]), "".join(tokens["target"])) == ("$0123+0748&", "$1780&")


def test_shares_of_training_lengths_add_up() -> None:
    lengths = dataset.training_lengths(seed=0)
    np.testing.assert_allclose(lengths[["training", "validation"]].sum(), 1)
    assert lengths.set_index("digits").training[7] == pytest.approx((2**20 + 1 - 10**6) / (2**20 + 1), abs=0.002)


def test_a_small_matrix_is_text_with_tokens_and_dots_where_it_is_closed() -> None:
    lines = dataset.with_tokens(torch.tensor([[0.0, -torch.inf], [1.5, 2.0]]), "ab", "+&").splitlines()
    assert [line.split() for line in lines] == [["+", "&"], ["a", "0", "·"], ["b", "1.5", "2"]]


def test_what_a_sum_needs_are_the_digits_of_each_place_and_the_carries_are_those_of_the_sum() -> None:
    found = dataset.needed_cells("addition", "327+845")
    tokens, needs = np.array(found["source"]), [set(np.flatnonzero(row)) for row in found["cells"]]
    assert [sorted(tokens[list(columns)]) for columns in needs[:3]] == [["5", "7"], ["2", "4"], ["3", "8"]]
    assert ("".join(found["target"]), found["carries"]) == ("2711", [0, 2]), "7 + 5 and 3 + 8"


def test_the_window_of_a_problem_opens_its_place_and_the_column_to_the_right() -> None:
    opened = [[step, column] for step in range(4) for column in range(6 - 2 * step, 9 - 2 * step)]
    assert dataset.window("addition", "12+34", w=1).isfinite().nonzero().tolist() == opened


# ---- figures ----------------------------------------------------------------------------------------


def test_curves_show_medians_at_every_length_and_are_named_where_they_end() -> None:
    ends = {"ABC": {1: [1.0, 0.9, 0.8], 10_000: [0.5, 0.1, 0.3]}, "ABS": {1: [1.0], 10_000: [0.25]}}
    (panel,) = plots.length_curves(pd.concat([rows(*each) for each in ends.items()]), longest=10_000).axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), [90, 30])
    assert panel.get_xscale() == "log"
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "6", "10", "60", "200", "1,000", "10,000"]
    at = {text.get_text(): text.xy for text in panel.texts if isinstance(text, Annotation)}
    assert at["ABS"] == (10_000, 25) and at["ABC"][1] >= at["ABS"][1] + plots.GAP, "names do not lie on each other"


def test_reach_is_drawn_from_the_training_length_to_the_longest_that_holds() -> None:
    table = tables.reach(rows("ABC", {60: [1.0], 10_000: [1.0]}), "Addition")
    (panel,) = plots.reach(table).axes
    assert [list(line.get_xdata()) for line in panel.lines] == table[["trained", "tested"]].to_numpy().tolist()
    assert [label.get_text() for label in panel.get_yticklabels()] == list(table.system)


def test_the_map_shows_each_windows_and_periods_accuracy_at_one_length() -> None:
    cells = [("–", 0, 1.0), ("–", 3, 2.0), ("1", 0, 3.0), ("1", 3, 100.0)]
    frame = pd.DataFrame([("Parity", w, t, 60, x) for w, t, x in cells], columns=["task", "w", "T", "length", "ours"])
    panel = maps.grid_map(pd.concat([frame, frame.assign(length=6, ours=50.0)]), length=60).axes[0]
    values = np.asarray(panel.collections[0].get_array()).reshape(2, 2)
    across = [label.get_text() for label in panel.get_xticklabels()]
    for i, w in enumerate(panel.get_yticklabels()):
        shown = {(w.get_text(), 0 if t == "–" else int(t)): values[i, j] for j, t in enumerate(across)}
        assert shown.items() <= {(w, t): x for w, t, x in cells}.items()


def test_a_line_is_numbered_by_the_column_at_which_it_meets_the_first_row() -> None:
    matrix = np.arange(1.0, 13).reshape(3, 4) / 12
    _, *panels = maps.directions(matrix, (list("abcd"), list("123"))).axes
    numbers = np.indices(matrix.shape)
    lines = {"diagonal": numbers[1] - numbers[0], "antidiagonal": numbers.sum(0), "vertical": numbers[1]}
    for panel, (title, line) in zip(panels, lines.items(), strict=True):
        assert panel.get_title() == title
        bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in panel.patches}  # type: ignore[attr-defined]
        assert bars == pytest.approx({number: matrix[line == number].mean() for number in np.unique(line)})


def test_the_map_of_methods_has_a_given_order_and_leaves_empty_what_was_not_tested() -> None:
    tested = [rows("Vanilla", {6: [1.0], 60: [0.0]}), rows("FIRE", {6: [0.5], 60: [0.25], 200: [0.125]})]
    (panel,) = maps.accuracy_map(statistics.over_seeds(pd.concat(tested)), ["FIRE", "Sandwich", "Vanilla"]).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["FIRE", "Sandwich", "Vanilla"]
    assert [text.get_text() for text in panel.texts] == ["50", "25", "12", "100", "0"]


def figures_of_every_family() -> Iterator[Figure]:
    """One small figure of each function that draws."""
    frame = rows("Vanilla", {1: [1.0], 6: [0.5]}).assign(step=[1, 2], mass=0.5, w="1", T=[0, 3], ours=50.0, base=10)
    matrix = np.arange(12.0).reshape(3, 4) / 12
    panel = Panel("layer 1, head 1", matrix, list("123"), list("abcd"), [True, True, False], "input token")
    yield plots.length_curves(frame, longest=6)
    yield plots.reach(tables.reach(frame, "Addition"))
    yield plots.mass_and_accuracy({"Addition": frame})
    yield plots.offsets(frame.rename(columns={"step": "offset"})[["offset", "accuracy"]])
    yield maps.attention_maps([panel])
    yield maps.bias_matrices([{"window": matrix}])
    yield maps.dependencies("Addition", list("1+2"), list("3"), np.ones((1, 3)), carries=[0])
    yield maps.grid_map(frame.assign(length=6), length=6)
    yield maps.accuracy_map(statistics.over_seeds(frame), ["Vanilla"])
    yield maps.heads([matrix, matrix], ["head 1", "head 2"], [matrix > 0.5])
    yield maps.directions(matrix, (list("abcd"), list("123")))
    yield maps.index_matrices({"RPE": matrix - 0.5})


def test_drawing_and_saving_neither_change_matplotlibs_settings_nor_follow_them(figures: Path) -> None:
    def curves() -> bytes:
        shown = pictures.save(plots.length_curves(rows("Vanilla", {1: [1.0], 6: [0.5]}), 6), "figure-x", "quick")
        assert shown.data == (figures / "figure-x.png").read_bytes()
        return (figures / "figure-x.svg").read_bytes() + shown.data

    plain = curves()
    chosen = {"font.size": 17.0, "axes.grid": True, "savefig.bbox": None, "figure.dpi": 50, "axes.facecolor": "0.2"}
    with matplotlib.rc_context(chosen):
        before = dict(matplotlib.rcParams)
        for drawn in figures_of_every_family():
            assert dict(matplotlib.rcParams) == before, drawn.axes[0].get_title()
        assert curves() == plain
        assert dict(matplotlib.rcParams) == before
