"""What the explorers show, by plain functions without widgets: against Python integers, plain loops and dense masks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import rows

from abc_nb.analysis.attention import AttentionStudy
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import cells_of
from abc_nb.bias.window import Sides, Window
from abc_nb.calibration.of_model import calibrate_model
from abc_nb.calibration.settings import PAPER, Calibration
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Sinusoidal
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs import runner, store
from abc_nb.show import pictures
from abc_nb.show.explorers import attention as explore
from abc_nb.show.explorers import calibration as calibrating
from abc_nb.show.explorers import contexts, window
from abc_nb.specs.spec import calibrated, spec
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
        yield AttentionStudy(runner.ensure(spec("addition-vanilla", "smoke"), 0), samples=20)


@pytest.fixture(scope="module")
def bench(study: AttentionStudy) -> calibrating.Bench:
    return calibrating.Bench(study.run, calibrated("addition-vanilla", "smoke"))


# ---- a problem --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["123+989", "0+0", " 999999 + 1 ", "123456789012+987654321098"])
def test_the_answer_is_what_compute_gives_and_the_right_one_what_python_gives(study: AttentionStudy, text: str) -> None:
    asked = explore.ask(study, text)
    right = str(sum(int(part) for part in text.split("+")))
    assert asked.answer == next(answers(study.model, study.run.spec.sampler, [text]))
    assert asked.expected == right
    wrong = sum(a != b for a, b in zip(asked.decoded.outputs, asked.decoded.expected, strict=True))
    assert f"✗ wrong in {wrong} of {len(asked.decoded.outputs)} tokens; right is {right}" in explore.verdict(asked)


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


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_sentence_of_a_step_names_the_largest_weights_and_the_needed_ones(
    study: AttentionStudy, name: Attention
) -> None:
    decoded = explore.ask(study, "123456+989").decoded
    chosen = decoded.head(name, 0, 1)
    for step, weights in enumerate(chosen.weights.tolist(), 1):
        sentence = explore.step_sentence(decoded, chosen, step)
        assert sentence.startswith(f"Step {step} writes {decoded.outputs[step - 1]} ")
        largest = max(range(len(weights)), key=lambda column: weights[column])
        assert f"looks at {chosen.keys[largest]} in column {largest + 1} {weights[largest]:.0%}" in sentence
        needed = [weight for weight, cell in zip(weights, chosen.needed[step - 1], strict=True) if cell]
        assert (f"{sum(needed):.0%} is on the needed cells" if needed else "no cell is needed here") in sentence


@pytest.mark.parametrize("step", [1, 4, 8])
def test_text_and_map_hide_later_steps_and_mark_wrong_tokens(study: AttentionStudy, step: int) -> None:
    asked = explore.ask(study, "123+989")
    shown = explore.view(asked, "cross", 1, 2, step)
    table = explore.digits_table(asked.decoded, step)
    assert table in shown.text and explore.verdict(asked) in shown.text
    assert table.count("✗") == asked.decoded.right[:step].count(False)
    assert table.count("·") == len(asked.decoded.outputs) - step
    axes = shown.figure.axes[0]
    cells = np.ma.getdata(axes.images[0].get_array())
    np.testing.assert_array_equal(cells[:step], asked.decoded.weights["cross", 0][1][:step])
    assert np.isnan(cells[step:]).all()
    assert [label.get_text() for label in axes.get_xticklabels()] == asked.decoded.source
    for label, said, right in zip(
        axes.get_yticklabels(), asked.decoded.outputs[:step], asked.decoded.right, strict=False
    ):
        assert label.get_text() == ("" if right else "✗ ") + said
        assert (label.get_fontweight() == "bold") == (not right)


def test_a_picture_keeps_its_size_and_leaves_settings_alone(study: AttentionStudy) -> None:
    asked = explore.ask(study, "123+989")
    with matplotlib.rc_context({"savefig.bbox": "tight", "figure.dpi": 50, "axes.grid": True}):
        before = dict(matplotlib.rcParams)
        content = pictures.png(explore.view(asked, "self", 1, 1, 3).figure)
        assert dict(matplotlib.rcParams) == before
    assert struct.unpack(">II", content[16:24]) == explore.SIZE


def test_a_mosaic_puts_every_tile_where_it_says() -> None:
    tiles = [np.full((2, 3), value) for value in (0.1, 0.2, 0.3)]
    whole, corners = pictures.mosaic(tiles, 2, (1, 2))
    assert whole.shape == (6, 8) and corners == [(1, 0), (1, 5), (4, 0)]
    for (row, column), tile in zip(corners, tiles, strict=True):
        np.testing.assert_array_equal(whole[row : row + 2, column : column + 3], tile)
    assert (whole > 1).sum() == whole.size - 3 * 6


# ---- a window ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize("task", ["addition", "parity"])
@pytest.mark.parametrize("w", [None, 0, 1, 3])
def test_open_keys_are_those_of_the_dense_mask(task: str, w: int | None, sides: Sides) -> None:
    layout = Task(task).layout(4, "aligned")
    masks = {name: window.mask(layout, name, w, sides) for name in ATTENTIONS}
    counted = window.open_keys(masks).set_index("attention")
    for name, cells in masks.items():
        if w is not None:
            dense = Window(w, sides).dense(layout, name, 0, 1)
            assert dense is not None
            np.testing.assert_array_equal(cells, dense[0].isfinite())
        else:
            expected = np.ones(cells.shape, bool)
            np.testing.assert_array_equal(cells, np.tril(expected) if name == "self" else expected)
        assert counted.loc[name, ["open", "cells"]].to_list() == [cells.sum(), cells.size]
        assert counted["most a query"][name] == max(sum(row) for row in cells.tolist())


@pytest.mark.parametrize("sides", ["one", "both"])
def test_what_was_trained_has_the_window_and_the_period_that_are_shown(sides: Sides) -> None:
    layout = Task("addition").layout(5, "aligned")
    for (w, t), name in window.TRAINED[sides].items():
        model = spec(f"addition-{name}").model
        assert isinstance(model.position, Sinusoidal) and model.position.period == t
        for attention in ATTENTIONS:
            opened = model.bias.opened(layout, attention, 0)[0].numpy()
            np.testing.assert_array_equal(opened, window.mask(layout, attention, w, sides))


def test_measured_accuracy_is_shown_and_what_is_missing_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finished:
        def evaluation(self) -> pd.DataFrame:
            return rows("", {6: [1.0], 60: [0.25]})

    monkeypatch.setattr(store, "find", lambda wanted, seed: Finished() if wanted == spec("addition-window") else None)
    found = window.measured("addition")
    assert found[["w", "T", "length", "accuracy"]].values.tolist() == [["1", "none", 6, 100], ["1", "none", 60, 25]]

    def said(w: str, t: str, sides: Sides = "one", seed: int = 0) -> str:
        return window.sentence("addition", found, w, t, sides, seed)

    assert said("1", "none") == "Exact match on 1000 problems: 100.0% at 6, 25.0% at 60 digits."
    assert said("1", "3", seed=3).endswith("not trained yet: run `abc-nb train addition-window-cyclic --seed 3`")
    assert said("none", "5", "both") == "w=none, T=5 is not trained yet: run `abc-nb train addition-grid-wx-t5`"
    assert said("1", "2").startswith("w=1, T=2 is no experiment")
    shown = window.view(found, "addition", "one", "1", "none", length=6, tested=60)
    assert said("1", "none") in shown.text
    assert [text.get_text() for text in shown.figure.axes[-1].texts] == ["25"]


# ---- a calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_bench_reads_the_lines_that_calibration_reads(bench: calibrating.Bench, settings: Calibration) -> None:
    batch = bench.parent.spec.sampler.calibration_batch(0)
    assert bench.calibrate(settings) == calibrate_model(bench.parent.model(), batch, settings).bias


def test_the_bench_averages_over_what_the_retraining_will(
    bench: calibrating.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here as if problems were padded: the paper's way takes every step of them, ours the first ones."""
    every = bench.parent.spec.sampler.calibration_batch(0)

    def cut(sampler: Sampler, seed: int, size: int = 1000, padding: bool = False) -> Batch:
        return every if padding else every.first(4)

    monkeypatch.setattr(Sampler, "calibration_batch", cut)
    padded, settings = calibrating.Bench(bench.parent, bench.abc), Calibration(anchor="whole", share=0.1)
    assert padded.calibrate(settings) == calibrate_model(bench.parent.model(), every, settings).bias
    ours = calibrate_model(bench.parent.model(), every.first(4), SETTINGS[0]).bias
    assert padded.calibrate(SETTINGS[0]) == ours


def test_kept_lines_are_drawn_over_the_averaged_attention_and_closed_cells_of_the_bias_are_grey(
    bench: calibrating.Bench,
) -> None:
    """Each line from its first cell to its last one, on its own head's map."""
    curves = {"Vanilla": rows("", {6: [1.0], 60: [0.5], 200: [0.0]}), "share 0.2": rows("", {6: [0.75]})}
    bias = bench.calibrate(SETTINGS[0])
    shown = calibrating.view(bench, SETTINGS[0], curves, "cross", 1, 12)
    averaged, extended, panel = shown.figure.axes
    whole = np.ma.getdata(averaged.images[0].get_array())
    black, white = (drawn.get_segments() for drawn in averaged.collections)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(black, white)
    assert len(black) == len(bias.of("cross", 0)) > 0
    for line, ((left, top), (right, bottom)) in zip(bias.of("cross", 0), black, strict=True):
        steps, columns = cells_of(line, bench.layout)
        assert (right - left, bottom - top) == (columns[-1] - columns[0], steps[-1] - steps[0])
        row, column = int(top - steps[0]), int(left - columns[0])
        weights = bench.averages["cross", 0][line.head].numpy()
        tile = whole[row : row + weights.shape[0], column : column + weights.shape[1]]
        np.testing.assert_allclose(tile, (weights - weights.min()) / (weights.max() - weights.min()), rtol=1e-5)
    dense = bias.dense(bench.parent.spec.sampler.layout(12), "cross", 0, bias.heads)
    assert np.isnan(np.ma.getdata(extended.images[0].get_array())).sum() == (~dense.isfinite()).sum()
    assert f"{len(bias.lines)} lines, {len(black)} of them in this map" in shown.text
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in panel.get_lines()}
    assert drawn == {"Vanilla": [[6, 100], [60, 50]], "share 0.2": [[6, 75]]}


def test_the_retraining_has_the_settings_and_a_name_for_its_curve(bench: calibrating.Bench) -> None:
    assert bench.child(PAPER) == replace(spec("addition-abc", "smoke"), calibration=PAPER)
    assert calibrating.label(PAPER) == "kappa 4.5, 0.87, last layer, whole matrix, empty heads open"
    one = Calibration(share=0.25, directions=("vertical",))
    assert calibrating.label(one) == "share 0.25, each layer, operands, vertical"


# ---- contexts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "second"), [("addition", 2), ("successor", 1), ("n-by-1", 1)])
@pytest.mark.parametrize("residue", [0, 1, 2])
def test_a_chosen_context_stands_in_the_problem(task: str, second: int, residue: int) -> None:
    """The digits are at the step, and the digits below the place below carry into it what was asked for."""
    sampler, factor = Sampler(Task(task), "natural"), 7 if task == "n-by-1" else 0
    choice = contexts.Choice((3, 8)[:second], (9, 4)[:second], factor, 1, residue)
    step, batch = contexts.problem(sampler, sampler.task.automaton(), choice, 4, 3)
    assert step % 3 == residue
    operands = [digits[0] for digits in batch.operands(torch.tensor([0]), sampler.task)]
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
