"""What the explorers show, without widgets: answers, masks, lines and pictures against plain loops."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import rows

from abc_nb.analysis.attention import AttentionStudy
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines, cells_of
from abc_nb.bias.window import Sides, Window
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.calibration.of_model import calibrate_model
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.catalogue import GRID_NAMES, GRID_W
from abc_nb.experiments.experiment import experiment
from abc_nb.model.positions import Sinusoidal
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs import runner, store
from abc_nb.show import pictures
from abc_nb.show.explorers import attention as explore
from abc_nb.show.explorers import calibration as bench_calibration
from abc_nb.show.explorers import contexts
from abc_nb.show.explorers import window as bench_window
from abc_nb.show.explorers.calibration import Bench
from abc_nb.training.answers import answers

ATTENTIONS: list[Attention] = ["self", "cross"]
SETTINGS = [
    Calibration(share=0.1),
    Calibration(kappa=(0.5, 0.5), layers="last"),
    Calibration(kappa=(1.0, 1.0), anchor="whole", empty="transparent"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttentionStudy]:
    """A small model that has learned next to nothing, so that most of its digits are wrong."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("explore")))
        patched.setattr(paths, "SHIPPED", tmp_path_factory.mktemp("shipped"))
        yield AttentionStudy(runner.ensure(experiment("addition-vanilla", "smoke"), 0), samples=20)


@pytest.fixture(scope="module")
def bench(study: AttentionStudy) -> Bench:
    return Bench("addition-vanilla", profile="smoke")


# ---- a problem --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["123+989", "0+0", " 999999 + 1 ", "123456789012+987654321098"])
def test_the_answer_is_what_compute_gives_and_the_right_one_what_python_gives(study: AttentionStudy, text: str) -> None:
    asked = explore.ask(study, text)
    assert asked.answer == next(answers(study.model, study.run.experiment.sampler, [text]))
    assert asked.expected == str(sum(int(part) for part in text.split("+")))


def test_digits_are_wrong_where_the_two_differ(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123+989")
    wanted = [*reversed("1112".zfill(len(asked.digits) - 1)), "&"]
    assert [digit.wanted for digit in asked.digits] == wanted
    assert [digit.right for digit in asked.digits] == [a == b for a, b in zip(asked.maps.outputs, wanted, strict=True)]
    wrong = sum(not digit.right for digit in asked.digits)
    assert wrong > 0
    assert f"✗ wrong in {wrong} of {len(asked.digits)} tokens; right is 1112" in explore.verdict(asked)


def test_zeros_in_front_make_the_problem_wider(study: AttentionStudy) -> None:
    assert len(explore.ask(study, "000000000012+1").digits) == len(explore.ask(study, "100000000012+1").digits) == 14


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot read ''"),
        ("12*3", "Addition takes a problem in digits 0-9"),
        ("1+" + "9" * 65, "65 digits is too long to be drawn: type at most 64"),
        ("<b>1+1", "cannot read '<b>1\\+1'"),
    ],
)
def test_what_is_no_problem_is_one_sentence(study: AttentionStudy, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        explore.ask(study, text)


def test_models_are_those_whose_weights_are_here(study: AttentionStudy, folders: Folders) -> None:
    assert explore.models("addition-abc", 0, "smoke") == []
    runner.ensure(experiment("addition-vanilla", "smoke"), 0)
    assert explore.models("addition-abc", 0, "smoke") == ["addition-vanilla"]
    assert explore.models("successor-abc", 0, "smoke") == []


@pytest.mark.parametrize("name", ATTENTIONS)
def test_a_head_looks_at_its_largest_weights(study: AttentionStudy, name: Attention) -> None:
    asked = explore.ask(study, "123456+989")
    for step in range(len(asked.digits)):
        weights = asked.maps.weights[name, 0][1][step].tolist()
        found = explore.looked_at(asked, name, 0, 1, step)
        assert [look.weight for look in found] == sorted(weights, reverse=True)[:3]
        assert all(weights[look.column] == look.weight for look in found)
        assert [look.key for look in found] == [asked.maps.keys(name)[look.column] for look in found]


def test_needed_cells_are_the_digits_of_the_place(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123456+654321")
    source = asked.maps.source
    for step in range(6):
        assert [source[column] for column in np.flatnonzero(asked.needed("cross")[step])] == [
            "123456"[5 - step],
            "654321"[5 - step],
        ]


def test_the_sentence_of_a_step_says_where_the_attention_went(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123+989")
    first = explore.looked_at(asked, "cross", 0, 0, 2)[0]
    sentence = explore.step_sentence(asked, "cross", 0, 0, 2)
    assert sentence.startswith(f"Step 3 writes {asked.digits[2].said} ")
    assert f"looks at {first.key} in column {first.column + 1} {first.weight:.0%}" in sentence


@pytest.mark.parametrize("step", [0, 3, 7])
def test_the_table_marks_wrong_digits_and_hides_later_ones(study: AttentionStudy, step: int) -> None:
    asked = explore.ask(study, "123+989")
    table = explore.digits_table(asked, step)
    assert table.count("✗") == sum(not digit.right for digit in asked.digits[: step + 1])
    assert table.count("·") == len(asked.digits) - 1 - step
    assert table.count("outline:2px") == 1


def test_the_map_shows_the_steps_so_far_and_marks_wrong_tokens(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123+989")
    main = explore.attention_figure(asked, "cross", 0, 1, 3).axes[0]
    cells = np.asarray(main.images[0].get_array())
    expected = pictures.colored(asked.maps.weights["cross", 0][1].numpy(), 0, 1)
    np.testing.assert_array_equal(cells[:4], expected[:4])
    assert (cells[4:] == pictures.CLOSED_COLOR).all()
    for i, label in enumerate(main.get_yticklabels()[:4]):
        wrong = not asked.digits[i].right
        assert label.get_text() == ("✗ " if wrong else "") + asked.digits[i].said
        assert (label.get_fontweight() == "bold") == wrong
    assert [label.get_text() for label in main.get_xticklabels()] == asked.maps.source


# ---- a window ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize("task", ["addition", "successor", "parity"])
@pytest.mark.parametrize("w", GRID_W)
def test_open_keys_are_those_of_the_dense_mask(task: str, w: int | None, sides: Sides) -> None:
    layout = bench_window.layout_of(task, 4)
    counted = bench_window.open_keys(layout, w, sides).set_index("attention")
    for name in ATTENTIONS:
        cells = bench_window.mask(layout, name, w, sides)
        assert counted.open[name] == cells.sum() and counted.cells[name] == cells.size
        assert counted["most a query"][name] == max(sum(row) for row in cells.tolist())
        if w is not None:
            assert bench_window.bias_of(w, sides) == Window(w, sides)
            assert counted.open[name] == Window(w, sides).open_keys(layout, name, 0).value.isfinite().sum()


@pytest.mark.parametrize("sides", ["one", "both"])
def test_what_was_trained_has_the_window_and_the_period_that_are_shown(sides: Sides) -> None:
    for (w, t), name in bench_window.TRAINED[sides].items():
        model = experiment(f"addition-{name}").model
        assert model.bias == bench_window.bias_of(w, sides)
        assert isinstance(model.position, Sinusoidal) and model.position.period == t


def test_without_a_window_only_the_future_is_closed() -> None:
    layout = bench_window.layout_of("addition", 4)
    assert bench_window.mask(layout, "cross", None).all()
    own = bench_window.mask(layout, "self", None)
    assert all(own[query, key] == (key <= query) for query, key in np.ndindex(own.shape))


def test_a_cell_of_the_grid_that_is_not_trained_says_what_to_run(folders: Folders) -> None:
    measured = bench_window.measured("addition")
    assert measured.empty
    sentence = bench_window.sentence("addition", measured, None, 5, sides="both")
    assert sentence == "w=none, T=5 is not trained yet: run `abc-nb train addition-grid-wx-t5`"
    assert bench_window.sentence("addition", measured, 1, 3, seed=3).endswith("addition-window-cyclic --seed 3`")
    assert bench_window.sentence("addition", measured, 1, 2).startswith("w=1, T=2 is no experiment")


def test_a_trained_cell_of_the_grid_shows_its_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finished:
        def evaluation(self) -> pd.DataFrame:
            return rows("", {6: [1.0], 60: [0.25]})

    def find(wanted: object, seed: int) -> Finished | None:
        return Finished() if wanted == experiment("addition-window") else None

    monkeypatch.setattr(store, "find", find)
    measured = bench_window.measured("addition")
    assert measured[["w", "T", "length", "accuracy"]].values.tolist() == [["1", "none", 6, 100], ["1", "none", 60, 25]]
    said = bench_window.sentence("addition", measured, 1, None)
    assert said == "Exact match on 1000 problems: 100.0% at 6, 25.0% at 60 digits."
    cells = np.asarray(bench_window.grid_figure(measured, 60, 1, None).axes[0].images[0].get_array())
    known = (cells != pictures.CLOSED_COLOR).any(-1)
    assert np.argwhere(known).tolist() == [[2, 0]]  # the third window of the grid, the first period
    assert len(GRID_NAMES) == known.size


# ---- a calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_bench_reads_the_lines_that_calibration_reads(bench: Bench, settings: Calibration) -> None:
    batch = bench.parent.experiment.sampler.calibration_batch(0)
    assert bench.calibrate(settings) == calibrate_model(bench.parent.model(), batch, settings).bias


def test_the_bench_averages_over_what_the_retraining_will(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as if problems were padded: the paper's way takes every step of them, ours the first ones."""
    every = bench.parent.experiment.sampler.calibration_batch(0)

    def cut(sampler: Sampler, seed: int, size: int = 1000, padding: bool = False) -> Batch:
        return every if padding else every.first(4)

    monkeypatch.setattr(Sampler, "calibration_batch", cut)
    padded, settings = Bench("addition-vanilla", profile="smoke"), Calibration(anchor="whole", share=0.1)
    expected = calibrate_model(bench.parent.model(), every, settings).bias
    assert padded.calibrate(settings) == expected
    ours = calibrate_model(bench.parent.model(), every.first(4), SETTINGS[0]).bias
    assert padded.calibrate(SETTINGS[0]) == ours


@pytest.mark.parametrize("settings", SETTINGS)
def test_cells_and_shares_of_lines_are_those_of_their_dense_bias(bench: Bench, settings: Calibration) -> None:
    bias = bench.calibrate(settings)
    for name in ATTENTIONS:
        weights = bench.averages[name, 0]
        shares = []
        for line in bias.of(name, 0):
            dense = Lines(bench.heads, (line,), empty="closed").dense(bench.layout, name, 0, bench.heads)
            opened = dense[line.head].isfinite()
            found = cells_of(line, bench.layout)
            assert [*zip(*(part.tolist() for part in found), strict=True)] == [*map(tuple, opened.nonzero().tolist())]
            shares.append((weights[line.head] * opened).sum().item() / len(opened))
        table = bench_calibration.line_table(bench, bias, name, 0)
        np.testing.assert_allclose(sorted(table.share), sorted(shares), rtol=1e-5)


def test_kept_lines_are_drawn_over_the_averaged_attention(bench: Bench) -> None:
    """Each from its first cell to its last one, on its own head's map."""
    bias = bench.calibrate(SETTINGS[0])
    axes = bench_calibration.averaged_figure(bench, bias, "cross", 0).axes[0]
    shown = np.asarray(axes.images[0].get_array())
    height, width = bench.averages["cross", 0].shape[1:]
    black, white = (drawn.get_segments() for drawn in axes.collections)
    np.testing.assert_array_equal(black, white)
    lines = bias.of("cross", 0)
    assert len(black) == len(lines) > 0
    for line, segment in zip(lines, black, strict=True):
        steps, columns = cells_of(line, bench.layout)
        (left, top), (right, bottom) = segment
        assert (right - left, bottom - top) == (columns[-1] - columns[0], steps[-1] - steps[0])
        row, column = int(top - steps[0]), int(left - columns[0])
        weights = bench.averages["cross", 0][line.head].numpy()
        tile = pictures.colored(weights, *bench_calibration.limits(weights))
        np.testing.assert_array_equal(shown[row : row + height, column : column + width], tile)


def test_the_extended_bias_closes_what_is_on_no_line(bench: Bench) -> None:
    bias = bench.calibrate(SETTINGS[0])
    axes = bench_calibration.extended_figure(bench, bias, "cross", 0, 12).axes[0]
    cells = np.asarray(axes.images[0].get_array())
    dense = bias.dense(bench.longer(12), "cross", 0, bench.heads)
    assert (cells == pictures.CLOSED_COLOR).all(-1).sum() == (~dense.isfinite()).sum()


def test_the_retraining_has_the_settings_and_a_name_for_its_curve(bench: Bench) -> None:
    child = bench.child(PAPER)
    assert child.parent == bench.parent.experiment
    assert child == replace(experiment("addition-abc", "smoke"), calibration=PAPER)
    said = bench_calibration.label(PAPER)
    assert said == "kappa 4.5, 0.87, last layer, whole matrix, empty heads open"
    assert bench_calibration.label(Calibration(share=0.25, directions=("vertical",))) == (
        "share 0.25, each layer, operands, vertical"
    )


def test_only_a_plain_model_can_be_calibrated() -> None:
    with pytest.raises(InputError, match=r"'addition-abc' cannot be calibrated here: name a plain model"):
        Bench("addition-abc")


def test_curves_are_the_evaluations_in_percent() -> None:
    found = {"Vanilla": rows("", {6: [1.0], 60: [0.5], 200: [0.0]}), "share 0.2": rows("", {6: [0.75]})}
    lines = bench_calibration.curves_figure(found).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["Vanilla", "share 0.2"]
    assert lines[0].get_xydata().tolist() == [[6, 100], [60, 50]]
    assert lines[1].get_xydata().tolist() == [[6, 75]]


# ---- pictures ---------------------------------------------------------------------------------------


def test_a_picture_keeps_its_size_and_leaves_settings_alone(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123+989")
    with matplotlib.rc_context({"savefig.bbox": "tight", "figure.dpi": 50, "axes.grid": True}):
        before = dict(matplotlib.rcParams)
        content = pictures.png(explore.attention_figure(asked, "self", 0, 0, 2))
        assert dict(matplotlib.rcParams) == before
    assert struct.unpack(">II", content[16:24]) == explore.SIZE


def test_a_mosaic_puts_every_tile_where_it_says() -> None:
    tiles = [np.full((2, 3, 3), value) for value in (0.1, 0.2, 0.3)]
    whole, corners = pictures.mosaic(tiles, 2, (1, 2))
    assert whole.shape == (6, 8, 3) and corners == [(1, 0), (1, 5), (4, 0)]
    for (row, column), tile in zip(corners, tiles, strict=True):
        np.testing.assert_array_equal(whole[row : row + 2, column : column + 3], tile)
    assert (whole == 1).sum() == whole.size - 3 * 18


def test_colours_keep_order_and_closed_cells_are_grey() -> None:
    rgb = pictures.colored(np.array([[0.0, 0.5, 1.0, -np.inf, np.nan]]), 0, 1, "cividis")[0]
    brightness = rgb[:3].sum(-1)
    assert brightness[0] < brightness[1] < brightness[2]
    assert (rgb[3:] == pictures.CLOSED_COLOR).all()


# ---- contexts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "second"), [("addition", 2), ("successor", 1), ("n-by-1", 1)])
@pytest.mark.parametrize("residue", [0, 1, 2])
def test_a_chosen_context_stands_in_the_problem(task: str, second: int, residue: int) -> None:
    """The digits are at the step, and the digits below the place below carry into it what was asked for."""
    sampler = Sampler(Task(task), "natural")
    rules = sampler.task.automaton()
    factor = 7 if task == "n-by-1" else 0
    choice = contexts.Choice((3, 8)[:second], (9, 4)[:second], factor, 1, residue)
    step, batch = contexts.problem(sampler, rules, choice, 4, 3)
    assert step % 3 == residue
    operands = [each[0] for each in batch.operands(torch.tensor([0]), sampler.task)]
    numbers = [int("".join(map(str, digits[::-1]))) for digits in operands]
    for digits, here, below in zip(operands, choice.here, choice.below, strict=False):
        assert (digits[step], digits[step - 1]) == (here, below)
    lower = [number % 10 ** (step - 1) for number in numbers[:second]]
    total = lower[0] * factor if task == "n-by-1" else sum(lower) + (task == "successor")
    assert total // 10 ** (step - 1) == choice.carry
    if task == "n-by-1":
        assert numbers[1] == factor


def test_a_carry_that_no_digits_give_is_one_sentence() -> None:
    sampler = Sampler(Task("n-by-1"), "natural")
    with pytest.raises(InputError, match="no lower digits give this carry"):
        contexts.problem(sampler, sampler.task.automaton(), contexts.Choice((1,), (1,), 3, 8, 0), 4, 1)
