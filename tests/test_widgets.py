"""The explorers' wiring: a control is set, and what the user sees has changed."""

from __future__ import annotations

import base64
import shutil
import time
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
from conftest import Folders

import abc_nb
from abc_nb.bias.lines import DIRECTIONS
from abc_nb.runs import runner
from abc_nb.show.explorers import calibration
from abc_nb.show.explorers.calibration import Retraining
from abc_nb.show.explorers.frame import Explorer
from abc_nb.specs.spec import spec
from abc_nb.training import trainer as training
from abc_nb.training.answers import answers
from abc_nb.training.progress import Progress

VANILLA = spec("addition-vanilla", "smoke")
ABS = "successor-window-cyclic"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with two small models, to be copied."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("widgets")))
        runner.ensure(spec("addition-nope", "smoke"), 0)
        return runner.ensure(VANILLA, 0).folder.parent


@pytest.fixture
def runs(trained: Path, folders: Folders) -> Path:
    shutil.copytree(trained, folders.runs)
    return folders.runs


def built(shown: ipywidgets.Widget) -> Explorer:
    assert isinstance(shown, Explorer), shown.value
    return shown


@pytest.fixture
def attention(runs: Path) -> Explorer:
    return built(abc_nb.explore_attention("addition-vanilla", "123+989", profile="smoke"))


@pytest.fixture
def bench(runs: Path) -> Explorer:
    return built(abc_nb.explore_calibration("addition-vanilla", profile="smoke"))


def changed(explorer: Explorer, **values: Any) -> tuple[bool, bool]:
    """Whether text and picture are others after controls were set."""
    before = (explorer.text.value, explorer.picture.value)
    for name, value in values.items():
        explorer.controls[name].value = value
    return explorer.text.value != before[0], explorer.picture.value != before[1]


# ---- the frame --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("explore", "name", "sentence"),
    [
        ("attention", "additoin-vanilla", "unknown experiment"),
        ("attention", "addition-abc", "run `abc-nb train addition-abc --profile smoke` first"),
        ("calibration", "addition-abc", "is not trained yet"),
        ("calibration", "addition-nope", "name a plain model such as addition"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(runs: Path, explore: str, name: str, sentence: str) -> None:
    shown = getattr(abc_nb, f"explore_{explore}")(name, profile="smoke")
    assert isinstance(shown, ipywidgets.HTML) and sentence in unescape(shown.value)


def test_an_unknown_task_or_a_model_without_weights_is_a_sentence() -> None:
    assert "choose one of successor, addition, n-by-1, parity" in unescape(abc_nb.explore_window("division").value)
    assert "run `abc-nb train addition-nope` first" in unescape(abc_nb.explore_contexts("addition-nope", 0).value)


def test_a_page_without_widgets_shows_a_picture_and_a_short_text(attention: Explorer) -> None:
    bundle = attention._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == attention.picture.value
    assert bundle["text/plain"] == "Explorer: run this cell in JupyterLab to use it"


def test_what_takes_long_counts_its_seconds() -> None:
    explorer = Explorer([], lambda figure: "", (10, 10), 10)
    explorer.look = lambda figure: time.sleep(1.5) or "done"
    said: list[str] = []
    explorer.message.observe(lambda change: said.append(change["new"]), "value")
    explorer.update()
    assert ["computing for 1 s" in sentence for sentence in said] == [True, False]
    assert explorer.text.value == "done" and explorer.message.value == said[-1]


# ---- attention --------------------------------------------------------------------------------------


def test_a_bad_problem_shows_its_sentence_until_a_good_one_comes(attention: Explorer) -> None:
    assert changed(attention, problem="<script>+1") == (False, False)
    assert changed(attention, head=2) == (False, False)
    assert "⚠ cannot read" in attention.message.value and "<script>" not in attention.message.value
    assert changed(attention, problem="1+1") == (True, True)
    assert "⚠" not in attention.message.value


def test_step_head_attention_and_model_show_another_map(attention: Explorer, runs: Path) -> None:
    assert changed(attention, step=2) == (True, True) and "Step 2 writes" in attention.text.value
    assert changed(attention, head=3 - attention.controls["head"].value) == (True, True)
    assert changed(attention, mark=False) == (False, True)
    assert changed(attention, attention="self") == (True, True)
    assert set(attention.controls["model"].options) == {"addition-vanilla", "addition-nope"}
    attention.controls["model"].value = "addition-nope"
    run = abc_nb.load("addition-nope", profile="smoke")
    assert f"123+989 = {next(answers(run.model(), run.spec.sampler, ['123+989']))} " in attention.text.value


# ---- window -----------------------------------------------------------------------------------------


def test_window_period_and_length_change_the_mask_and_its_keys(folders: Folders) -> None:
    bench = built(abc_nb.explore_window("addition"))
    assert "run `abc-nb train addition-window-cyclic`" in bench.text.value
    for values in ({"sides": "both"}, {"w": "0"}, {"t": "none"}, {"length": 9}, {"task": "parity"}):
        assert changed(bench, **values) == (True, True)
    assert "run `abc-nb train parity-grid-w0-tx`" in bench.text.value


# ---- calibration ------------------------------------------------------------------------------------


def retraining_of(bench: Explorer) -> Retraining:
    return next(child for child in bench.children if isinstance(child, Retraining))


def press(bench: Explorer, seconds: float = 60) -> Retraining:
    """Press `retrain` and wait until it has ended."""
    pressed = retraining_of(bench)
    pressed.start.click()
    if pressed.thread.ident is not None:
        pressed.thread.join(seconds)
    return pressed


def test_a_threshold_changes_lines_and_the_one_in_use_can_be_moved(bench: Explorer) -> None:
    bench.controls["share"].value = 0.06
    assert changed(bench, share=0.6) == (True, True)
    assert changed(bench, length=30) == (False, True)
    kappas = (bench.controls["kappa_cross"], bench.controls["kappa_self"])
    assert all(kappa.disabled for kappa in kappas) and not bench.controls["share"].disabled
    bench.controls["threshold"].value = "kappa"
    assert not any(kappa.disabled for kappa in kappas) and bench.controls["share"].disabled


def test_impossible_directions_are_a_sentence_and_train_nothing(bench: Explorer) -> None:
    for name in DIRECTIONS:
        bench.controls[name].value = False
    assert "give some of diagonal, antidiagonal, vertical" in bench.message.value
    pressed = press(bench)
    assert "some of diagonal" in pressed.status.value and not pressed.start.disabled
    bench.controls["diagonal"].value = True
    assert "no line of the directions diagonal extends in cross-attention" in bench.message.value


def test_a_retraining_adds_its_curve_and_is_found_the_next_time(bench: Explorer, runs: Path) -> None:
    drawn, before = bench.picture.value, set(runs.iterdir())
    pressed = press(bench)
    assert pressed.status.value == "Done: share 0.2, each layer, operands."
    assert bench.picture.value != drawn
    assert not pressed.start.disabled and pressed.stop.disabled
    (made,) = {*runs.iterdir()} - before - {runs / ".partial"}
    when = made.stat().st_mtime_ns
    assert press(bench).status.value.startswith("Done") and made.stat().st_mtime_ns == when


def test_a_stopped_retraining_leaves_a_checkpoint_and_goes_on(
    bench: Explorer, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    steps: list[int] = []
    check = Retraining.check

    def stop_at_seven(self: Retraining, progress: Progress, experiment: Any) -> None:
        steps.append(progress.step)
        if progress.step == 7:
            self.stop.click()
        check(self, progress, experiment)

    monkeypatch.setattr(Retraining, "check", stop_at_seven)
    before = {*runs.iterdir()}
    assert "Stopped" in press(bench).status.value and steps[-1] == 7
    assert {*runs.iterdir()} - before <= {runs / ".partial"}
    pressed = press(bench)
    assert steps[7] == 8, "the second training began where the first one stopped"
    assert "Done" in pressed.status.value and not pressed.start.disabled


def test_one_that_cannot_start_or_fails_says_why(bench: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    with calibration.RUNNING:
        pressed = press(bench)
    assert "⚠ a retraining is running" in pressed.status.value and not pressed.start.disabled

    def fail(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(runner, "ensure", fail)
    assert press(bench).status.value == "The retraining failed: no space left"
    assert not pressed.start.disabled and not calibration.RUNNING.locked()


# ---- contexts ---------------------------------------------------------------------------------------


def test_a_wrong_context_is_shown_first_and_a_typed_problem_or_another_model_replaces_it() -> None:
    explorer = built(abc_nb.explore_contexts(ABS, 0))
    first, wrong, step = explorer.picture.value, explorer.controls["wrong"], explorer.controls["step"]
    assert wrong.index == 1 and "✗" in explorer.text.value
    problem = explorer.controls["problem"].value
    assert wrong.value == (problem, step.value) and step.max == 8
    assert changed(explorer, step=1) == (True, True)
    assert wrong.index == 0 and "Output 1 " in explorer.text.value and "✓" in explorer.text.value
    wrong.index = 1
    assert explorer.picture.value == first
    assert changed(explorer, problem="1x") == (False, False) and "⚠" in explorer.message.value
    explorer.controls["model"].value = ("successor-abc", 0)
    assert "⚠" in explorer.message.value, "the problem stays"
    assert changed(explorer, problem=problem) == (True, True) and wrong.index == 0 and "✓" in explorer.text.value


# ---- a text -----------------------------------------------------------------------------------------


def test_a_text_is_answered_and_its_tokens_layers_and_models_show_other_maps() -> None:
    explorer = built(abc_nb.explore_text("language-abs", "it is 12+34= here"))

    def said() -> str:
        return unescape(explorer.text.value)

    assert "right by Python's integers: 1 of 1" in said() and "Token 12 of 20, '=' of the answer to 12+34" in said()
    assert changed(explorer, token=13) == (True, True) and "Likeliest next is '4'" in said()
    assert changed(explorer, layer=2)[1] and changed(explorer, model="language-abc")[1]
    assert changed(explorer, seed=4) == (False, False)
    assert "run `abc-nb train language-abc --seed 4`" in explorer.message.value
    assert changed(explorer, seed=0, text="1+2+3=") == (False, False) and "⚠ cannot read" in explorer.message.value
    assert changed(explorer, text="407*8=") == (True, True) and explorer.controls["token"].value == 6
    assert "choose one of language-abs, language-abc" in abc_nb.explore_text("language-text").value
