"""Results, tables, figures' arrays, claims: numbers against hand-made frames."""

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

from abc_nb.analysis import claims, dataset, statistics
from abc_nb.analysis.attention import Panel
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.catalogue import MODELS, SCAFFOLDS
from abc_nb.problems.tasks import OPERATIONS, Task
from abc_nb.show import maps, pictures, plots, tables
from abc_nb.training.evaluation import wilson


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "figures", lambda profile="quick": tmp_path)
    return tmp_path


def test_median_worst_and_best_over_seeds_are_those_of_numpy() -> None:
    values = {6: [1.0, 0.5, 0.75], 10: [0.0, 0.25, 0.125, 0.5, 0.0625]}
    found = statistics.over_seeds(rows("Vanilla", values)).set_index("length")
    for length, accuracies in values.items():
        assert found.ours[length] == pytest.approx(100 * np.median(accuracies))
        assert (found.worst[length], found.best[length]) == (100 * min(accuracies), 100 * max(accuracies))
        low, high = wilson(round(1000 * float(np.median(accuracies))), 1000)
        assert (found.ci_low[length], found.ci_high[length]) == pytest.approx((100 * low, 100 * high))


def test_an_even_number_of_seeds_reports_a_seed_not_a_mean() -> None:
    assert statistics.over_seeds(rows("Vanilla", {6: [0.2, 0.4]})).ours[0] == pytest.approx(20)


def test_the_papers_number_stands_beside_ours() -> None:
    table = tables.beside_paper(rows("RPE", {length: [0.5] for length in (6, 7, 10, 15, 20, 60)}), "table1")
    assert list(table.length) == [6, 10, 15, 20, 60]
    assert list(table.paper[:4]) == [100, 99.9, 97.2, 21.3]
    assert np.isnan(table.paper[4])
    assert tables.wide(table).loc[("Addition", "RPE"), 10] == "99.9 | 50.0"


def test_parity_with_scratchpad_is_compared_with_the_papers_scratchpad_row() -> None:
    table = tables.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table1")
    assert table.model[0] == "+ scratchpad"
    assert table.paper[0] == 29.23
    assert tables.beside_paper(rows("Vanilla", {6: [1.0]}, task="Parity"), "table3").model[0] == "Vanilla"


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_every_paper_row_is_of_a_task_and_length_that_exist_here(table: str) -> None:
    numbers = tables.paper_numbers(table)
    assert set(numbers.task) <= {operation.title for operation in OPERATIONS.values()}
    assert set(numbers.length) == set(tables.TABLE_LENGTHS[table])
    known = {model.title for model in MODELS.values()} | {"+ scratchpad", "ABC"}
    assert set(numbers.model) <= known


def test_accuracies_by_length_say_how_far_seeds_differ_and_how_many_problems() -> None:
    far = rows("ABC", {60: [1.0, 0.75, 1.0], 1000: [0.5, 1.0, 0.75]}).assign(samples=lambda x: x.length + 40)
    several = statistics.over_seeds(pd.concat([far, rows("ABS", {60: [1.0], 1000: [0.998]})]))
    table = tables.by_length(several)
    assert table.loc[("Addition", "ABC", "3")].to_list() == ["100.0 (75.0–100.0)", "75.0 (50.0–100.0)"]
    assert table.loc[("Addition", "ABS", "1")].to_list() == ["100.0", "99.8"]
    assert table.loc[("problems", "", "")].to_list() == ["100 to 1000", "1000 to 1040"]
    assert list(table.index) == [("Addition", "ABC", "3"), ("Addition", "ABS", "1"), ("problems", "", "")]


def test_seeds_that_agree_need_no_range() -> None:
    table = tables.by_length(statistics.over_seeds(rows("ABC", {60: [0.9, 0.9], 100: [0.3, 0.4]})))
    assert table.loc[("Addition", "ABC", "2")].to_list() == ["90.0", "30.0 (30.0–40.0)"]


def test_reach_ends_where_the_median_first_falls_below_the_bar() -> None:
    far = rows("ABC", {6: [1.0], 60: [1.0, 0.995, 0.2], 100: [0.98], 200: [1.0]})
    never = rows("ABS", {6: [0.5], 60: [1.0]})
    table = tables.reach(pd.concat([far, never, rows("ABC", {500: [1.0]}, "Successor")]), "Addition")
    ours = table[table.source == "this notebook"].set_index("system")
    assert ours.tested.to_dict() == {"ABC, here": 60, "ABS, here": 0}
    assert ours.trained.to_list() == [7, 7], "2**20 has seven digits"
    assert ours.ratio.to_dict() == {"ABC, here": 60 / 7, "ABS, here": 0}
    others = table[table.source != "this notebook"].set_index("system").ratio.round(1)
    assert others.to_dict() == {
        "Zhou et al.": 2.5, "Abacus embeddings": 5.0, "position coupling": 6.7, "the paper (ABS and ABC)": 8.6,
    }  # fmt: skip


def test_saved_tables_can_be_read_back(figures: Path) -> None:
    table = tables.beside_paper(rows("RoPE", {6: [1.0], 10: [0.0]}), "table1")
    tables.save(table, "table-x", "quick", tables.wide(table))
    pd.testing.assert_frame_equal(pd.read_csv(figures / "table-x.csv"), table, check_dtype=False)
    assert (
        "100 \\| 100.0" in (figures / "table-x.md").read_text() or "100 | 100.0" in (figures / "table-x.md").read_text()
    )
    assert "\\begin{tabular}" in (figures / "table-x.tex").read_text()


def test_table_2_says_yes_where_the_median_seed_reaches_the_bar() -> None:
    trained = pd.DataFrame(
        [("Successor", 0.5), ("Successor", 0.99), ("Successor", 1.0), ("Addition", 0.98)],
        columns=["task", "validation"],
    )
    tested = pd.concat(
        [rows("Vanilla", {6: [0.0], 60: [0.1]}, "Successor"), rows("Vanilla", {6: [0.0], 60: [0.99]}, "Addition")]
    )
    table = tables.interpolation_table(trained, tested).set_index("task")
    assert table["interpolation, ours"].to_dict() == {"Successor": "yes", "Addition": "no"}
    assert table["extrapolation, ours"].to_dict() == {"Successor": "no", "Addition": "yes"}
    assert table["validation (%)"].to_dict() == {"Successor": 99.0, "Addition": 98.0}
    assert table["60 digits (%)"].to_dict() == {"Successor": 10.0, "Addition": 99.0}
    assert set(table["interpolation, paper"]) == {"yes"} and set(table["extrapolation, paper"]) == {"no"}


def test_curves_plot_the_median_over_seeds() -> None:
    figure = plots.length_curves(rows("Vanilla", {1: [1.0, 0.9, 0.8], 2: [0.5, 0.1, 0.3]}), longest=2)
    line = figure.axes[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), [1, 2])
    np.testing.assert_allclose(line.get_ydata(), [90, 30])


def test_curves_are_logarithmic_keep_every_length_and_have_ticks_that_count_digits() -> None:
    frame = rows("ABC", {1: [1.0], 60: [1.0], 10_000: [0.5]})
    (panel,) = plots.length_curves(frame, longest=10_000).axes
    assert panel.get_xscale() == "log"
    low, high = panel.get_xlim()
    assert low < 1 and high > 10_000
    np.testing.assert_allclose(panel.lines[0].get_ydata(), [100, 100, 50])
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "6", "10", "60", "200", "1,000", "10,000"]


def test_each_curve_is_named_where_it_ends_and_names_do_not_lie_on_each_other() -> None:
    ends = {"ABC": {1: [1.0], 60: [1.0]}, "ABS": {1: [1.0], 60: [0.99]}, "Vanilla": {1: [1.0], 20: [0.0]}}
    frame = pd.concat([rows(model, accuracy) for model, accuracy in ends.items()])
    (panel,) = plots.length_curves(frame, longest=60).axes
    at = {text.get_text(): text.xy for text in panel.texts if isinstance(text, Annotation)}
    assert set(at) == set(ends)
    assert at["Vanilla"] == (20, 0)
    assert at["ABS"] == (60, 99)
    assert at["ABC"][1] >= at["ABS"][1] + plots.GAP


def test_reach_is_drawn_from_the_training_length_to_the_longest_that_holds() -> None:
    table = tables.reach(rows("ABC", {60: [1.0], 10_000: [1.0]}), "Addition")
    (panel,) = plots.reach(table).axes
    assert [list(line.get_xdata()) for line in panel.lines] == table[["trained", "tested"]].to_numpy().tolist()
    assert [label.get_text() for label in panel.get_yticklabels()] == list(table.system)
    assert "10,000" in [text.get_text() for text in panel.texts]


def test_every_model_of_the_headline_has_its_own_colour() -> None:
    drawn = [MODELS[name].title for name in ("vanilla", *SCAFFOLDS, "abc")]
    assert len({plots.LOOKS[title] for title in drawn}) == len(drawn)


def test_figures_are_written_as_png_and_svg_and_svg_is_reproducible(figures: Path) -> None:
    for _ in range(2):
        plots.save(plots.length_curves(rows("Vanilla", {1: [1.0]}), longest=1), "figure-x", "quick")
        svg = (figures / "figure-x.svg").read_bytes()
    assert (figures / "figure-x.png").read_bytes()[:4] == b"\x89PNG"
    plots.save(plots.length_curves(rows("Vanilla", {1: [1.0]}), longest=1), "figure-y", "quick")
    assert (figures / "figure-y.svg").read_bytes() == svg


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a,b\n1,2\n", b'id,verdict\n"'], ids=range(4))
def test_a_ledger_that_is_none_is_one_sentence(content: bytes, figures: Path) -> None:
    claims.record([claims.Verdict("C02", "holds", "100, 0")], "02", "quick")
    (path,) = figures.rglob("claims.csv")
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"claims\.csv is not a ledger of claims: remove it and run"):
        claims.ledger("quick")


def test_a_claim_that_is_not_in_the_ledger_is_refused(figures: Path) -> None:
    with pytest.raises(InputError, match="C99"):
        claims.record([claims.Verdict("C99", "holds", "")], "02", "quick")


def test_missing_results_are_named() -> None:
    with pytest.raises(
        InputError, match=r"addition-vanilla, seed 99, were shipped: run `abc-nb train addition-vanilla"
    ):
        Results("quick", "shipped", [99]).runs(["addition-vanilla"])


@pytest.mark.parametrize(("profile", "origin"), [("fast", "runs"), ("quick", "elsewhere")])
def test_unknown_profile_or_results_are_errors(profile: str, origin: str) -> None:
    with pytest.raises(InputError, match="choose one of"):
        Results(profile, origin, [0])


def test_examples_have_the_right_answers() -> None:
    shown = dataset.task_examples().set_index("problem")
    assert shown.answer["999"] == "1000"
    assert shown.answer["123+456"] == "579"
    assert shown.answer["123*4"] == "492"
    assert list(shown.answer.loc["3 9 4"])[:3] == [str((3 + 9 + 4) % 10), "9", "3"]


def test_tokens_of_the_papers_example_are_reversed_in_the_target() -> None:
    tokens = dataset.example_tokens(Task("addition"), [123, 748], width=4)
    assert "".join(tokens["source, natural"]) == "$0123+0748&"
    assert "".join(tokens["target"]) == "$1780&"


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
    assert "".join(found["target"]) == "2711"
    assert found["carries"] == [0, 2], "7 + 5 and 3 + 8"


def test_the_window_of_a_problem_opens_its_place_and_the_column_to_the_right() -> None:
    found = dataset.window("addition", "12+34", w=1)
    assert found.isfinite().nonzero().tolist() == [
        [0, 6], [0, 7], [0, 8], [1, 4], [1, 5], [1, 6], [2, 2], [2, 3], [2, 4], [3, 0], [3, 1], [3, 2],
    ]  # fmt: skip


def test_the_map_shows_each_windows_and_periods_accuracy_at_one_length() -> None:
    cells = [("–", 0, 1.0), ("–", 3, 2.0), ("1", 0, 3.0), ("1", 3, 100.0)]
    rows_ = [(task, w, t, 60, x / k) for k, task in ((1, "Addition"), (2, "Parity")) for w, t, x in cells]
    rows_ += [(task, w, t, 6, 50.0) for task in ("Addition", "Parity") for w, t, _ in cells]
    frame = pd.DataFrame(rows_, columns=["task", "w", "T", "length", "ours"])
    for panel, factor in zip(maps.grid_map(frame, length=60).axes[:2], (1, 2), strict=True):
        shown = [label.get_text() for label in panel.get_yticklabels()], [x.get_text() for x in panel.get_xticklabels()]
        values = np.asarray(panel.collections[0].get_array()).reshape(2, 2)
        found = {(w, int(t)): values[i, j] for i, w in enumerate(shown[0]) for j, t in enumerate(shown[1])}
        assert found == {(w, t): x / factor for w, t, x in cells}


def test_a_line_is_numbered_by_the_column_at_which_it_meets_the_first_row() -> None:
    matrix = np.arange(1.0, 13).reshape(3, 4) / 12
    _, *panels = maps.directions(matrix, (list("abcd"), list("123"))).axes
    sums: dict[str, dict[int, list[float]]] = {"diagonal": {}, "antidiagonal": {}, "vertical": {}}
    for (row, column), value in np.ndenumerate(matrix):
        for title, line in (("diagonal", column - row), ("antidiagonal", column + row), ("vertical", column)):
            sums[title].setdefault(line, []).append(value)
    for panel, (title, lines) in zip(panels, sums.items(), strict=True):
        assert panel.get_title() == title
        bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in panel.patches}  # type: ignore[attr-defined]
        assert bars == pytest.approx({line: np.mean(values) for line, values in lines.items()})


def test_panels_stand_two_in_a_row() -> None:
    for count, rows_ in ((1, 1), (2, 1), (3, 2), (4, 2)):
        figure, panels = pictures.in_pairs(count)
        assert figure.axes == panels and len(panels) == count
        assert figure.get_size_inches().tolist() == pytest.approx([pictures.WIDTH * min(2, count), 2.4 * rows_])


def test_the_map_of_methods_has_a_given_order_and_leaves_empty_what_was_not_tested() -> None:
    tested = [rows("Vanilla", {6: [1.0], 60: [0.0]}), rows("FIRE", {6: [0.5], 60: [0.25], 200: [0.125]})]
    figure = maps.accuracy_map(statistics.over_seeds(pd.concat(tested)), ["FIRE", "Sandwich", "Vanilla"])
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["FIRE", "Sandwich", "Vanilla"]
    assert [text.get_text() for text in panel.texts] == ["50", "25", "12", "100", "0"]
    assert panel.get_title() == "Addition (one seed)"


def test_a_saved_figure_is_a_picture_that_a_notebook_keeps(figures: Path) -> None:
    shown = plots.save(plots.length_curves(rows("Vanilla", {1: [1.0]}), longest=1), "figure-z", "quick")
    assert shown.data == (figures / "figure-z.png").read_bytes()
    data, facts = shown._repr_mimebundle_()
    assert set(data) == {"image/png"}
    assert 300 < facts["image/png"]["width"] < 400, "as wide as the figure is, 3.4 inches"


def test_markdown_tables_have_as_many_columns_in_every_row(figures: Path) -> None:
    tables.save(pd.DataFrame({"a": ["1 | 2", "3"], "b": [1.5, 2.5]}), "table-x", "quick")
    lines = (figures / "table-x.md").read_text().splitlines()
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"1 \| 2" in lines[2]


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


def test_drawing_and_saving_leave_matplotlibs_settings_alone(figures: Path) -> None:
    chosen = {"font.size": 17.0, "axes.grid": True, "savefig.bbox": None, "figure.dpi": 50, "axes.facecolor": "0.2"}
    with matplotlib.rc_context(chosen):
        before = dict(matplotlib.rcParams)
        drawn = figures_of_every_family()
        while (figure := next(drawn, None)) is not None:
            assert dict(matplotlib.rcParams) == before, figure.axes[0].get_title()
        pictures.save(maps.bias_matrices([{"window": np.eye(3)}]), "figure-x", "quick")
        assert dict(matplotlib.rcParams) == before


def test_a_figure_looks_the_same_whatever_the_settings_are(figures: Path) -> None:
    frame = rows("Vanilla", {1: [1.0], 6: [0.5]})
    plain = pictures.save(plots.length_curves(frame, longest=6), "figure-x", "quick").data
    with matplotlib.rc_context({"font.size": 17.0, "axes.facecolor": "0.2", "xtick.labelsize": 20.0}):
        assert pictures.save(plots.length_curves(frame, longest=6), "figure-x", "quick").data == plain
