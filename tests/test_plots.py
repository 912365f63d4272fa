"""Figures: what is drawn, against hand-made frames; and the frames of the first notebooks."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import rows
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, PathPatch

from abc_nb.analysis import dataset
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.problems.tasks import Task
from abc_nb.show import board, cells, pictures
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


def lit(panel: Axes) -> list[str]:
    """The tokens of the cells that are lit, from left to right and from the top."""
    boxes = [box.get_bbox() for box in panel.patches if isinstance(box, FancyBboxPatch)]
    looks = [to_hex(box.get_facecolor()) for box in panel.patches if isinstance(box, FancyBboxPatch)]
    inside = [box for box, look in zip(boxes, looks, strict=True) if look == board.CELL_LOOKS["lit"][0]]
    places = sorted((round(-box.y0 - 0.43, 2), round(box.x0 + 0.43, 2)) for box in inside)
    tokens = {tuple(np.round(text.get_position(), 2)): text.get_text() for text in panel.texts}
    return [tokens[x, -y] for y, x in places]


def test_heads_that_see_the_same_share_a_line_and_what_they_see_is_lit() -> None:
    task = Task("addition")
    batch = dataset.on_paper(task, "31415926+27182818", "natural")
    directions = {"+": "vertical", "&": "vertical", "operand 1": "antidiagonal", "$": "vertical"}
    followed = ["+", "&", "operand 1", "$", "&"]
    lines = [Line("cross", 0, head, directions[span], span, 0, 0.0) for head, span in enumerate(followed)]  # type: ignore[arg-type]
    figure = cells.heads(Lines(5, tuple(lines)), 0, task, batch, (1, 6))
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["head 1: +", "heads 2, 5: &", "head 3: digits of a", "head 4: $"]
    assert [lit(panel) for panel in figure.axes] == [["$", "2", "+", "&"], ["$", "1", "+", "&"]]
    assert [sum(isinstance(patch, PathPatch) for patch in panel.patches) for panel in figure.axes] == [4, 4]


def test_a_window_lights_digits_of_its_places_and_the_last_two_tokens() -> None:
    named = {"alone": Window(1, "none"), "right": Window(1), "both": Window(1, "both")}
    panels = cells.windows(named, [("successor", "314159"), ("addition", "314159+271828")], 3).axes
    assert [panel.get_title() for panel in panels] == [*named, "", "", ""]
    assert [lit(panel) for panel in panels[:3]] == [["4", "1", "6"], ["4", "1", "1", "6"], ["1", "4", "1", "1", "6"]]
    seen = [["4", "1", "9", "8"], ["4", "1", "1", "9", "8"], ["4", "1", "7", "1", "9", "8"]]
    assert [lit(panel) for panel in panels[3:]] == seen, "314,159 + 271,828 = 585,987"


def test_a_cone_of_two_layers_holds_what_both_layers_reach() -> None:
    task = Task("addition")
    layout = task.layout(5)
    shallow = Lines.one_key_per_head(layout, 4, 1)
    deep = Lines.one_key_per_head(layout, 4, 2)
    first, second = cells.cones({"one": shallow, "two": deep}, "1234+8642", 2).axes
    # One key a head: both digits of the place and of the place below, and the digit that was written last.
    assert lit(first)[:4] == ["2", "3", "6", "4"]
    assert lit(second)[:6] == ["2", "3", "4", "6", "4", "2"], "the second layer looks at the step before, too"


def test_a_sentence_has_a_line_for_heads_that_see_the_same_and_lights_all_that_is_seen() -> None:
    opened = np.zeros((3, 6), bool)
    opened[[0, 1, 2], [1, 1, 3]] = opened[:, 5] = True
    figure = cells.sentence("12+34=", opened)
    assert lit(figure.axes[0]) == ["2", "3", "="]
    assert sum(isinstance(patch, PathPatch) for patch in figure.axes[0].patches) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["heads 1, 2", "head 3"]


def test_drawing_and_saving_use_one_style_and_leave_matplotlibs_settings_alone(
    figures: Path,
) -> None:
    table = frames.reach(rows("Vanilla", {1: [1.0], 6: [0.5]}), "Addition")
    written = []
    for chosen in ({}, {"font.size": 17.0, "axes.grid": True, "savefig.bbox": None, "axes.facecolor": "0.2"}):
        with matplotlib.rc_context(chosen):
            before = dict(matplotlib.rcParams)
            image = pictures.save_figure(plots.reach(table), "figure-x", "quick")
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
    problems = {"": ("successor", "1399"), " ": ("addition", "327+845")}
    needed = [[lit(panel) for panel in cells.dependencies(problems, step).axes] for step in range(3)]
    assert needed == [[["9"], ["7", "5"]], [["9"], ["2", "4"]], [["3"], ["3", "8"]]]
    one, panel = cells.dependencies(problems, 1).axes
    carries = [
        [text.get_text() for text in each.texts if text.get_position()[1] > top]
        for each, top in ((one, 3.2), (panel, 4.2))
    ]
    assert carries == [["1", "1", "1", "0", "0"], ["1", "0", "1"]], "7 + 5, 2 + 4 + 1, 3 + 8"
    (table,) = cells.trace("8437*596").axes
    last = {
        -int(x): text.get_text()
        for text in table.texts
        for x, y in [text.get_position()]
        if (y, x <= 0) == (-2.6, True)
    }
    upper = int("".join(last[column] for column in sorted(last, reverse=True)))
    assert upper == 8437 * 596 // 100, "the last row is the product's upper digits"
