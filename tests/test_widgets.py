"""The explorers' wiring: a control is set, and what the user sees has changed."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Folders
from safetensors.torch import save_file

import abc_nb
from abc_nb import cli
from abc_nb.certificates import files
from abc_nb.common import paths
from abc_nb.experiments.experiment import experiment
from abc_nb.runs import runner, store
from abc_nb.runs.run import Run
from abc_nb.show.explorers import attention as explore
from abc_nb.show.explorers import retraining
from abc_nb.show.explorers.attention_widget import AttentionExplorer
from abc_nb.show.explorers.calibration_widget import CalibrationBench
from abc_nb.show.explorers.contexts_widget import ContextExplorer
from abc_nb.show.explorers.parts import Explorer, Sorry
from abc_nb.show.explorers.window_widget import WindowBench
from abc_nb.training import trainer as training
from abc_nb.training.answers import answers
from abc_nb.training.progress import Progress

VANILLA = experiment("addition-vanilla", "smoke")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with two small models, to be copied."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("widgets")))
        runner.ensure(experiment("addition-nope", "smoke"), 0)
        return runner.ensure(VANILLA, 0).folder.parent


@pytest.fixture
def runs(trained: Path, folders: Folders) -> Path:
    shutil.copytree(trained, folders.runs)
    return folders.runs


@pytest.fixture
def attention(runs: Path) -> AttentionExplorer:
    made = abc_nb.explore_attention("addition-vanilla", "123+989", profile="smoke")
    assert isinstance(made, AttentionExplorer)
    return made


@pytest.fixture
def bench(runs: Path) -> CalibrationBench:
    made = abc_nb.explore_calibration("addition-vanilla", profile="smoke")
    assert isinstance(made, CalibrationBench)
    return made


def press(bench: CalibrationBench, seconds: float = 60) -> None:
    """Press `retrain` and wait until it has ended."""
    bench.retrain.click()
    assert bench.training is not None
    bench.training.wait(seconds)


# ---- all of them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: abc_nb.explore_attention("additoin-vanilla"), "unknown experiment"),
        (
            lambda: abc_nb.explore_attention("addition-abc", profile="smoke"),
            "run `abc-nb train addition-abc --profile smoke` first",
        ),
        (lambda: abc_nb.explore_window("division"), "choose one of successor, addition, n-by-1, parity"),
        (lambda: abc_nb.explore_calibration("addition-abc"), "name a plain model such as addition-vanilla"),
        (lambda: abc_nb.explore_calibration("addition-vanilla", seed=9, profile="smoke"), "is not trained yet"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(folders: Folders, call: Callable[[], Explorer], sentence: str) -> None:
    shown = call()
    assert isinstance(shown, Sorry)
    assert sentence in shown.message.value


def test_a_page_without_widgets_shows_a_picture_and_a_short_text(attention: AttentionExplorer) -> None:
    bundle = attention._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == attention.map.value
    assert bundle["text/plain"] == "AttentionExplorer: run this cell in JupyterLab to use it"


# ---- attention --------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["5+5", "123456789+987654321"])
def test_a_typed_problem_is_answered_by_the_model(attention: AttentionExplorer, problem: str) -> None:
    before = attention.map.value
    attention.problem.value = problem
    answer = next(answers(attention.study.model, VANILLA.sampler, [problem]))
    assert f"{problem} = {answer} " in attention.answer.value
    assert attention.step.value == attention.step.max == len(attention.asked.digits)
    assert attention.map.value != before


def test_a_bad_problem_shows_its_sentence_until_a_good_one_comes(attention: AttentionExplorer) -> None:
    before = attention.answer.value
    attention.problem.value = "<script>+1"
    assert "⚠ cannot read" in attention.message.value and "<script>" not in attention.message.value
    assert attention.answer.value == before
    attention.problem.value = "1+1"
    assert "⚠" not in attention.message.value


def test_the_step_slider_goes_through_the_decoding(attention: AttentionExplorer) -> None:
    before = attention.map.value
    attention.step.value = 2
    assert attention.digits.value == explore.digits_table(attention.asked, 1)
    assert "Step 2 writes" in attention.facts.value
    assert attention.map.value != before


def test_another_head_layer_or_attention_draws_another_map(attention: AttentionExplorer) -> None:
    attention.head.value = 1
    seen = {attention.map.value}
    attention.head.value = 2
    seen.add(attention.map.value)
    attention.attention.value = "self"
    assert (attention.layer.value - 1, attention.head.value - 1) == attention.study.ranked_heads("self")[0]
    seen.add(attention.map.value)
    attention.mark.value = False
    assert len(seen | {attention.map.value}) == 4


def test_another_model_answers_the_same_problem(attention: AttentionExplorer) -> None:
    assert set(attention.model.options) == {"addition-vanilla", "addition-nope"}
    attention.model.value = "addition-nope"
    run = abc_nb.load("addition-nope", profile="smoke")
    answer = next(answers(run.model(), run.experiment.sampler, ["123+989"]))
    assert f"123+989 = {answer} " in attention.answer.value


def test_a_model_that_has_gone_is_a_sentence(attention: AttentionExplorer, runs: Path) -> None:
    shutil.rmtree(runs / experiment("addition-nope", "smoke").key(0))
    attention.model.value = "addition-nope"
    assert "addition-nope is not here any more" in attention.message.value


# ---- window -----------------------------------------------------------------------------------------


def test_window_period_and_length_change_the_mask_and_its_keys(folders: Folders) -> None:
    bench = abc_nb.explore_window("addition")
    assert isinstance(bench, WindowBench)
    assert "run `abc-nb train addition-window-cyclic`" in bench.accuracy.value
    mask, opened = bench.mask.value, bench.opened.value
    bench.sides.value = "both"
    assert bench.mask.value != mask and bench.opened.value != opened
    assert "run `abc-nb train addition-grid-w1-t3`" in bench.accuracy.value
    mask, opened = bench.mask.value, bench.opened.value
    bench.window.value = "0"
    assert bench.mask.value != mask and bench.opened.value != opened
    mask, opened = bench.mask.value, bench.opened.value
    bench.period.value = "none"
    assert bench.mask.value != mask and bench.opened.value == opened
    assert "run `abc-nb train addition-grid-w0-tx`" in bench.accuracy.value
    bench.length.value = 9
    assert bench.opened.value != opened
    bench.task.value = "parity"
    assert "run `abc-nb train parity-grid-w0-tx`" in bench.accuracy.value


# ---- calibration ------------------------------------------------------------------------------------


def test_a_threshold_changes_lines_table_and_pictures(bench: CalibrationBench) -> None:
    bench.share.value = 0.06
    many, pictures = bench.count.value, (bench.averaged.value, bench.extended.value)
    bench.share.value = 0.6
    assert bench.count.value != many
    assert bench.averaged.value != pictures[0] and bench.extended.value != pictures[1]


def test_the_threshold_in_use_is_the_one_that_can_be_moved(bench: CalibrationBench) -> None:
    assert bench.kappa[0].disabled and bench.kappa[1].disabled and not bench.share.disabled
    bench.threshold.value = "kappa"
    assert not bench.kappa[0].disabled and not bench.kappa[1].disabled and bench.share.disabled
    assert bench.settings().kappa == (4.5, 0.87) and bench.settings().share is None


def test_the_length_changes_the_extended_bias_alone(bench: CalibrationBench) -> None:
    averaged, extended = bench.averaged.value, bench.extended.value
    bench.length.value = 30
    assert bench.averaged.value == averaged and bench.extended.value != extended


def test_impossible_directions_are_a_sentence_and_train_nothing(bench: CalibrationBench) -> None:
    for box in bench.directions:
        box.value = False
    assert "choose from diagonal, antidiagonal, vertical" in bench.message.value
    bench.retrain.click()
    assert bench.training is None and not bench.retrain.disabled
    bench.directions[0].value = True
    assert "no line of the directions diagonal extends in cross-attention" in bench.message.value


def test_a_retraining_adds_its_curve_and_is_found_the_next_time(bench: CalibrationBench) -> None:
    drawn = bench.curves_map.value
    press(bench)
    child = bench.bench.child(bench.settings())
    found = store.find(child, 0, ("runs",))
    assert found is not None and found.experiment.calibration == bench.settings()
    assert [*bench.curves] == ["Vanilla", "share 0.2, each layer, operands"]
    assert bench.curves_map.value != drawn
    assert bench.status.value == "Done: share 0.2, each layer, operands."
    assert not bench.retrain.disabled and bench.stop.disabled
    made = found.folder.stat().st_mtime_ns
    press(bench)
    assert found.folder.stat().st_mtime_ns == made


def test_a_stopped_retraining_leaves_a_checkpoint_and_goes_on(
    bench: CalibrationBench, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    steps: list[int] = []
    check = retraining.Retraining.check

    def stop_at_seven(self: retraining.Retraining, progress: Progress) -> None:
        steps.append(progress.step)
        if progress.step == 7:
            self.stop()
        check(self, progress)

    monkeypatch.setattr(retraining.Retraining, "check", stop_at_seven)
    key = bench.bench.child(bench.settings()).key(0)
    press(bench)
    assert "Stopped" in bench.status.value and steps[-1] == 7
    assert (runs / ".partial" / key / runner.CHECKPOINT).exists() and not (runs / key).exists()
    assert [*bench.curves] == ["Vanilla"] and not bench.retrain.disabled
    press(bench)
    assert steps[7] == 8, "the second training began where the first one stopped"
    assert (runs / key).exists() and not (runs / ".partial" / key).exists()
    assert len(bench.curves) == 2


def test_there_is_one_retraining_at_a_time(bench: CalibrationBench) -> None:
    with retraining.RUNNING:
        bench.retrain.click()
    assert "⚠ a retraining is running" in bench.message.value
    assert bench.training is None and not bench.retrain.disabled


def test_a_retraining_that_fails_says_why(bench: CalibrationBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(runner, "ensure", fail)
    press(bench)
    assert bench.status.value == "The retraining failed: no space left"
    assert not bench.retrain.disabled and not retraining.RUNNING.locked()


# ---- contexts ---------------------------------------------------------------------------------------


def test_a_wrong_context_is_shown_first_and_a_choice_replaces_it() -> None:
    explorer = abc_nb.explore_contexts("successor-window-cyclic", 0)
    assert isinstance(explorer, ContextExplorer)
    first = explorer.map.value
    assert explorer.wrong.value == 1 and "✗" in explorer.answer.value
    explorer.residue.value = 1
    assert explorer.wrong.value == 0 and "✓" in explorer.answer.value
    assert explorer.map.value != first
    explorer.wrong.value = 1
    assert explorer.map.value == first


def test_another_model_brings_its_own_controls() -> None:
    explorer = abc_nb.explore_contexts("successor-window-cyclic", 0)
    assert isinstance(explorer, ContextExplorer)
    assert explorer.residue.max == 2
    explorer.model.value = ("successor-abc", 0)
    assert explorer.residue.max == 0 and explorer.wrong.value == 0
    assert "✓" in explorer.answer.value


def test_a_model_without_certificate_is_a_sentence() -> None:
    shown = abc_nb.explore_contexts("addition-vanilla", 0)
    assert isinstance(shown, Sorry) and "has no certificate of the weights" in shown.message.value
    shown = abc_nb.explore_contexts("addition-nope", 0)
    assert isinstance(shown, Sorry) and "run `abc-nb train addition-nope` first" in shown.message.value


NAME = "successor-window-cyclic"


@pytest.fixture
def retrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with the name and the seed of a shipped one, and other weights."""
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path))
    shipped, find = abc_nb.load(NAME), store.find
    tensors = {name: weights + 0.01 * (weights.ndim > 1) for name, weights in shipped.model().state_dict().items()}
    save_file(tensors, tmp_path / "weights.safetensors")
    kept = {"weights_path": lambda: tmp_path / "weights.safetensors", "bias": lambda heads: None}
    run = replace(shipped, source=SimpleNamespace(has_weights=True, **kept))
    monkeypatch.setattr(
        store, "find", lambda own, seed, *origins: run if own.name == NAME else find(own, seed, *origins)
    )
    return run


@pytest.mark.slow
def test_a_model_made_here_is_not_given_the_certificate_of_the_shipped_one(retrained: Run) -> None:
    other = abc_nb.explore_contexts("successor-abc", 0)
    assert isinstance(other, ContextExplorer)
    assert (NAME, 0) not in [value for _, value in other.model.options]
    shown = abc_nb.explore_contexts(NAME, 0)
    assert isinstance(shown, Sorry)
    says = unescape(shown.message.value)
    assert f"{NAME}, seed 0, has no certificate of the weights that are here" in says
    command = says.split("`")[1]
    cli.main(command.split()[1:])
    explorer = abc_nb.explore_contexts(NAME, 0)
    assert isinstance(explorer, ContextExplorer)
    own, shipped = (
        files.read(path) for path in (Path(command.split()[-1]), paths.certificates() / f"{NAME}-quick-seed0.json")
    )
    assert explorer.contexts.wrong == [(each["problem"], each["token"]) for each in own["counterexamples"]]
    assert own["weights"] != shipped["weights"]
