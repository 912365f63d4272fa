"""Figures: what is drawn, against hand-made frames; and the frames of the first notebooks."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import rows

from abc_nb.analysis import dataset
from abc_nb.bias.lines import Line, Lines
from abc_nb.problems.tasks import Task
from abc_nb.show import maps, pictures
from audit import frames, plots


def test_curves_are_the_median_over_seeds_with_a_band_from_the_worst_to_the_best() -> None:
    frame = pd.concat([rows("ABC", {1: [1.0], 60: [0.99]}), rows("Vanilla", {1: [1.0, 0.2, 0.8], 20: [0.0]})])
    first, second = plots.by_length(frame).axes
    assert [panel.get_title() for panel in (first, second)] == ["ABC", "Vanilla"]
    assert first.lines[0].get_xydata().tolist() == [[1, 100], [60, 99]]  # type: ignore[union-attr]
    assert second.lines[0].get_xydata().tolist() == [[1, 80], [20, 0]]  # type: ignore[union-attr]
    (band,) = (drawn.get_paths()[0].vertices for drawn in second.collections)
    assert {20.0, 100.0} <= {y for x, y in np.asarray(band).tolist() if x == 1}
    assert [label.get_text() for label in second.get_xticklabels()] == ["1", "6", "20", "60"]


def test_a_map_has_the_median_by_window_and_period_and_leaves_empty_what_was_not_tested() -> None:
    places = [("–", 0, 10.0), ("–", 3, 20.0), ("1", 0, 30.0), ("1", 3, 99.7), ("1", 4, 100.0)]
    frame = pd.DataFrame(places, columns=["w", "T", "ours"]).assign(task="Addition", seeds=1)
    (panel,) = plots.grid(frame).axes
    assert panel.get_title() == "Addition (one seed)"
    assert [label.get_text() for label in panel.get_yticklabels()] == ["–", "1"]
    assert [text.get_text() for text in panel.texts] == ["10", "20", "30", "99.7", "100"]


def test_a_line_is_numbered_by_the_column_at_which_it_meets_the_first_row() -> None:
    matrix = np.arange(1.0, 13).reshape(3, 4) / 12
    _, *panels = plots.directions(matrix, (list("abcd"), list("123"))).axes
    sums: dict[str, dict[int, list[float]]] = {"diagonal": {}, "antidiagonal": {}, "vertical": {}}
    for (row, column), value in np.ndenumerate(matrix):
        for title, line in (("diagonal", column - row), ("antidiagonal", column + row), ("vertical", column)):
            sums[title].setdefault(line, []).append(value)
    for panel, (title, lines) in zip(panels, sums.items(), strict=True):
        assert panel.get_title() == title
        bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in panel.patches}  # type: ignore[attr-defined]
        assert bars == pytest.approx({line: np.mean(values) for line, values in lines.items()})


def test_heads_that_see_the_same_share_a_panel_and_panels_at_the_edges_have_tokens() -> None:
    task = Task("addition")
    batch = dataset.on_paper(task, "31415926+27182818", "natural")
    directions = {"+": "vertical", "&": "vertical", "operand 1": "antidiagonal", "$": "vertical"}
    followed = ["+", "&", "operand 1", "$", "&"]
    lines = [Line("cross", 0, head, directions[span], span, 0, 0.0) for head, span in enumerate(followed)]  # type: ignore[arg-type]
    panels = maps.biases(Lines(5, tuple(lines)), 0, task, batch).axes
    assert [panel.get_title() for panel in panels] == ["head 1: +", "heads 2, 5: &", "head 3: digits of a", "head 4: $"]
    drawn = np.asarray(panels[0].collections[0].get_array()).reshape(batch.layout.target_length, -1)
    assert drawn.tolist() == [[token == "+" for token in task.text(batch.source[0].tolist())]] * len(drawn)
    assert [panel.xaxis.get_tick_params()["labelbottom"] for panel in panels] == [False, True, True, True]
    assert [panel.yaxis.get_tick_params()["labelleft"] for panel in panels] == [True, False, False, True]


def test_drawing_and_saving_use_one_style_and_leave_matplotlibs_settings_alone(
    figures: Path,
) -> None:
    table = frames.reach(rows("Vanilla", {1: [1.0], 6: [0.5]}), "Addition")
    written = []
    for chosen in ({}, {"font.size": 17.0, "axes.grid": True, "savefig.bbox": None, "axes.facecolor": "0.2"}):
        with matplotlib.rc_context(chosen):
            before = dict(matplotlib.rcParams)
            image = pictures.save(plots.reach(table), "figure-x", "quick")
            assert dict(matplotlib.rcParams) == before
        assert image.data == (figures / "figure-x.png").read_bytes()
        written.append((image.data, (figures / "figure-x.svg").read_bytes()))
    assert written[0] == written[1], "the same figure gives the same bytes"


def test_examples_have_the_right_answers_and_tokens() -> None:
    shown = dataset.task_examples().set_index("problem")
    assert shown.answer[["999", "123+456", "123*4"]].to_list() == ["1000", "579", "492"]
    assert list(shown.answer.loc["3 9 4"])[:3] == [str((3 + 9 + 4) % 10), "9", "3"]
    tokens = dataset.tokens_of(Task("addition"), "123+748")
    assert tokens["source, natural"] == " ".join("$0123+0748&")
    assert tokens["target"] == " ".join("$1780&")


def test_a_small_matrix_is_text_with_tokens_and_dots_where_it_is_closed() -> None:
    lines = dataset.with_tokens(torch.tensor([[0.0, -torch.inf], [1.5, 2.0]]), "ab", "+&").splitlines()
    assert [line.split() for line in lines] == [["+", "&"], ["a", "0", "·"], ["b", "1.5", "2"]]


def test_what_a_sum_and_a_product_are_made_from_is_that_of_paper() -> None:
    one, panel = maps.dependencies({"": ("successor", "1399"), " ": ("addition", "327+845")}).axes
    tokens = {text.get_position()[0]: text.get_text() for text in panel.texts if text.get_position()[1] == 0}
    needed = [tokens[line.get_xdata()[0]] for line in panel.lines]  # type: ignore[index]
    assert [sorted(needed[2 * place : 2 * place + 2]) for place in range(3)] == [["5", "7"], ["2", "4"], ["3", "8"]]
    said = [text.get_text() for text in panel.texts if text.get_text().startswith("carry")]
    assert said == ["carry 1", "carry 0", "carry 1"], "7 + 5, 2 + 4 + 1, 3 + 8"
    said = [text.get_text() for text in one.texts if text.get_text().startswith("carry")]
    assert said == ["carry 1", "carry 1", "carry 1", "carry 0", "carry 0"] and len(one.lines) == 5
    (table,) = maps.trace("8437*596").axes
    last = {
        -int(x): text.get_text() for text in table.texts for x, y in [text.get_position()] if (y, x <= 0) == (-2, True)
    }
    upper = int("".join(last[column] for column in sorted(last, reverse=True)))
    assert upper == 8437 * 596 // 100, "the last row is the product's upper digits"
