"""Figures: the arrays that are drawn, against hand-made frames; and the frames of the first notebook."""

from __future__ import annotations

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
from abc_nb.analysis.attention import HeadMap
from abc_nb.problems.tasks import Task
from abc_nb.show import maps, pictures, plots, tables


def curves(frame: pd.DataFrame) -> Figure:
    figure, (panel,) = pictures.new_figure()
    with matplotlib.rc_context(pictures.STYLE):
        plots.curves(panel, frame)
    return figure


def test_curves_are_the_median_over_seeds_and_named_where_they_end() -> None:
    ends = {"ABC": {1: [1.0], 60: [1.0]}, "ABS": {1: [1.0], 60: [0.99]}, "Vanilla": {1: [1.0, 0.2, 0.8], 20: [0.0]}}
    (panel,) = curves(pd.concat([rows(model, accuracy) for model, accuracy in ends.items()])).axes
    lines = {len(line.get_xdata()) and tuple(line.get_ydata()) for line in panel.lines}
    assert {(100, 100), (100, 99), (80, 0)} <= lines
    at = {text.get_text(): text.xy for text in panel.texts if isinstance(text, Annotation)}
    assert set(at) == set(ends) and at["Vanilla"] == (20, 0) and at["ABS"] == (60, 99)
    assert at["ABC"][1] >= at["ABS"][1] + plots.GAP, "names do not lie on each other"
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "6", "10", "60"]


def test_reach_is_drawn_from_the_training_length_to_the_longest_that_holds() -> None:
    table = tables.reach(rows("ABC", {60: [1.0], 10_000: [1.0]}), "Addition")
    (panel,) = plots.reach(table).axes
    assert [list(line.get_xdata()) for line in panel.lines] == table[["trained", "tested"]].to_numpy().tolist()
    assert "10,000" in [text.get_text() for text in panel.texts]


def test_a_map_has_the_median_by_two_columns_and_leaves_empty_what_was_not_tested() -> None:
    tested = [rows("FIRE", {6: [0.5], 60: [0.25], 200: [0.125]}), rows("Vanilla", {6: [1.0], 60: [0.0]})]
    (panel,) = maps.accuracy_map(statistics.over_seeds(pd.concat(tested))).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["FIRE", "Vanilla"]
    assert [text.get_text() for text in panel.texts] == ["50", "25", "12", "100", "0"]
    assert panel.get_title() == "Addition (one seed)"
    places = [("–", 0, 10.0), ("–", 3, 20.0), ("1", 0, 30.0), ("1", 3, 99.7)]
    frame = pd.DataFrame(places, columns=["w", "T", "ours"]).assign(task="Addition", seeds=5)
    (panel,) = maps.accuracy_map(frame, "w", "T").axes
    assert [text.get_text() for text in panel.texts] == ["10", "20", "30", "99.7"]


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


def figures_of_every_family() -> Iterator[Figure]:
    """One small figure of each function that draws."""
    frame = rows("Vanilla", {1: [1.0], 6: [0.5]}).assign(step=[1, 2], mass=0.5, base=10)
    matrix = np.arange(12.0).reshape(3, 4) / 12
    yield curves(frame)
    yield plots.by_length(frame, ["Addition"])
    yield plots.reach(tables.reach(frame, "Addition"))
    yield plots.mass_and_accuracy(frame, "Addition")
    yield plots.offsets(pd.DataFrame({"offset": [0, 1], "RPE": [0.5, 1], "ABC": [1, 0]}))
    head = HeadMap("head 1", matrix, list("abcd"), list("123"), [True, True, False], matrix > 0.5)
    yield maps.attention_maps([head, head])
    yield maps.bias_matrices([("window", matrix > 0.5)], across=1)
    yield maps.dependencies({"a": dataset.needs_of("successor", "19"), "b": dataset.needs_of("addition", "12+39")})
    yield maps.trace(dataset.trace_of_product("12*34"))
    yield maps.accuracy_map(statistics.over_seeds(frame))
    yield maps.heads([matrix, matrix], ["head 1", "head 2"], [matrix > 0.5])
    yield maps.directions(matrix, (list("abcd"), list("123")))
    yield maps.index_matrices({"RPE": matrix - 0.5})


def test_drawing_and_saving_use_one_style_and_leave_matplotlibs_settings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    frame = rows("Vanilla", {1: [1.0], 6: [0.5]})
    plain = pictures.save(plots.reach(tables.reach(frame, "Addition")), "figure-x", "quick")
    svg = (tmp_path / "figure-x.svg").read_bytes()
    chosen = {"font.size": 17.0, "axes.grid": True, "savefig.bbox": None, "figure.dpi": 50, "axes.facecolor": "0.2"}
    with matplotlib.rc_context(chosen):
        before = dict(matplotlib.rcParams)
        for figure in figures_of_every_family():
            assert dict(matplotlib.rcParams) == before, figure.axes[0].get_title()
        again = pictures.save(plots.reach(tables.reach(frame, "Addition")), "figure-x", "quick")
        assert dict(matplotlib.rcParams) == before
    assert again.data == plain.data == (tmp_path / "figure-x.png").read_bytes()
    assert (tmp_path / "figure-x.svg").read_bytes() == svg, "the same figure gives the same bytes"


# ---- frames of the first notebooks ------------------------------------------------------------------


def test_examples_have_the_right_answers_and_tokens() -> None:
    shown = dataset.task_examples().set_index("problem")
    assert shown.answer[["999", "123+456", "123*4"]].to_list() == ["1000", "579", "492"]
    assert list(shown.answer.loc["3 9 4"])[:3] == [str((3 + 9 + 4) % 10), "9", "3"]
    tokens = dataset.example_tokens(Task("addition"), [123, 748], width=4)
    assert tokens["source, natural"] == " ".join("$0123+0748&")
    assert tokens["target"] == " ".join("$1780&")


def test_shares_of_training_lengths_add_up() -> None:
    lengths = dataset.training_lengths(seed=0)
    np.testing.assert_allclose(lengths[["training", "validation"]].sum(), 1)
    assert lengths.set_index("digits").training[7] == pytest.approx((2**20 + 1 - 10**6) / (2**20 + 1), abs=0.002)


def test_a_small_matrix_is_text_with_tokens_and_dots_where_it_is_closed() -> None:
    lines = dataset.with_tokens(torch.tensor([[0.0, -torch.inf], [1.5, 2.0]]), "ab", "+&").splitlines()
    assert [line.split() for line in lines] == [["+", "&"], ["a", "0", "·"], ["b", "1.5", "2"]]
    opened = dataset.window("addition", "12+34", w=1).isfinite()
    assert [row.nonzero().flatten().tolist() for row in opened] == [[6, 7, 8], [4, 5, 6], [2, 3, 4], [0, 1, 2]]


def test_what_a_sum_and_a_product_are_made_from_is_that_of_paper() -> None:
    needs = dataset.needs_of("addition", "327+845")
    tokens, digits = np.array(needs.source), [set(np.flatnonzero(row)) for row in needs.cells]
    assert [sorted(tokens[list(columns)]) for columns in digits[:3]] == [["5", "7"], ["2", "4"], ["3", "8"]]
    assert "".join(needs.target) == "2711" and needs.carries == [0, 2], "7 + 5 and 3 + 8"
    one = dataset.needs_of("successor", "01399")
    assert "".join(one.target).startswith("0041") and one.carries == [0, 1] and (one.cells.sum(1)[:5] == 1).all()
    trace = dataset.trace_of_product("8437*596")
    assert [sum(int(d) * 10**i for i, d in enumerate(digits)) for digits in (trace.first, trace.second)] == [8437, 596]
    last = sum(int(digit) * 10**i for i, digit in enumerate(trace.digits[-1])) * 100
    assert last // 1000 == 8437 * 596 // 1000, "the last row is the product's upper digits"
