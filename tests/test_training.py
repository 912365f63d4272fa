"""Training: what is learned, the schedule, and that an interrupted training ends as an uninterrupted one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from abc_nb import training
from abc_nb.biases import Window
from abc_nb.evaluation import evaluate
from abc_nb.model import ModelConfig, Transformer
from abc_nb.positions import Sinusoidal
from abc_nb.sampling import Batch, Sampler
from abc_nb.tasks import Task
from abc_nb.training import Progress, Trainer, TrainingConfig, build_optimizers, loss_of, rate_at

TINY = ModelConfig(width=8, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=1)
SHORT = TrainingConfig(steps=8, batch=8, warmup=2, validate_every=3, validation=12)
SAMPLER = Sampler(Task("addition"), width_count=3)


class Interrupted(Exception):
    pass


def build(config: ModelConfig = TINY, sampler: Sampler = SAMPLER, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config, len(sampler.task.vocabulary))


def trainer(config: TrainingConfig = SHORT, model: ModelConfig = TINY, seed: int = 0) -> Trainer:
    return Trainer(build(model, seed=seed), SAMPLER, config, seed=0)


def without_seconds(progress: Progress) -> list[dict[str, float]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in progress.history]


def assert_same_weights(first: Trainer, second: Trainer) -> None:
    torch.testing.assert_close(first.model.state_dict(), second.model.state_dict(), rtol=0, atol=0)


# ---- learning ---------------------------------------------------------------------------------------


def test_a_small_task_is_learned_at_every_length() -> None:
    """The largest of a list of ternary digits, with a window and cyclic positions, in about a second."""
    sampler = Sampler(Task("listops-max", 3))
    config = ModelConfig(16, 2, 64, decoder_layers=1, position=Sinusoidal(3), bias=Window(1))
    recipe = TrainingConfig(
        steps=300, batch=64, learning_rate=0.01, matrix_learning_rate=0.02, warmup=10, validate_every=30, validation=126
    )
    model = build(config, sampler)
    progress = Trainer(model, sampler, recipe, seed=0).run()
    assert progress.history[-1]["loss"] < 0.1 * progress.history[0]["loss"]
    assert evaluate(model, sampler, [(6, 100), (40, 100)]).accuracy.min() > 0.95


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_loss_falls(optimizer: str) -> None:
    run = trainer(replace(SHORT, steps=60, optimizer=optimizer, learning_rate=0.01))
    losses = [run.step().item() for _ in range(60)]
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_loss_is_the_mean_surprise_at_each_right_token() -> None:
    model, batch = build(), SAMPLER.training_batch(0, 0, 4)
    shares = model(batch.source, batch.target[:, :-1], batch.layout).softmax(-1)
    surprises = [
        -math.log(shares[row, place, batch.target[row, place + 1]].item())
        for row in range(4)
        for place in range(batch.layout.target_length)
    ]
    assert loss_of(model, batch).item() == pytest.approx(sum(surprises) / len(surprises), rel=1e-5)


def test_gradients_are_clipped() -> None:
    run = trainer(replace(SHORT, clip=1e-3))
    run.step()
    norms = [p.grad.norm() for p in run.model.parameters() if p.grad is not None]
    assert torch.stack(norms).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest() -> None:
    model = build()
    adamw, muon = build_optimizers(model, SHORT)
    chosen = {id(p) for group in muon.param_groups for p in group["params"]}
    rest = {id(p) for group in adamw.param_groups for p in group["params"]}
    matrices = {id(p) for name, p in model.named_parameters() if "coder." in name and p.ndim == 2}
    assert chosen == matrices
    assert rest == {id(p) for p in model.parameters()} - matrices


def test_adamw_alone_takes_every_parameter() -> None:
    model = build()
    (adamw,) = build_optimizers(model, replace(SHORT, optimizer="adamw"))
    assert len(adamw.param_groups[0]["params"]) == len([*model.parameters()])


# ---- schedule ---------------------------------------------------------------------------------------

LONG = TrainingConfig(steps=110, warmup=10, decay=40)
RATES = [(0, 0.1), (4, 0.5), (9, 1.0), (10, 1.0), (69, 1.0), (70, 1.0), (71, 0.975), (90, 0.5), (109, 0.025)]


@pytest.mark.parametrize(("step", "rate"), RATES)
def test_rate_warms_up_stays_and_falls_to_zero(step: int, rate: float) -> None:
    assert rate_at(step, 70, LONG) == pytest.approx(rate)


@pytest.mark.parametrize(("step", "rate"), [(0, 0.1), (29, 1.0), (30, 1.0), (31, 0.975), (50, 0.5), (69, 0.025)])
def test_rate_falls_from_where_it_is_told_to(step: int, rate: float) -> None:
    assert rate_at(step, 30, LONG) == pytest.approx(rate)


def test_rate_without_warm_up_starts_at_its_highest() -> None:
    assert rate_at(0, 70, replace(LONG, warmup=0)) == 1.0


def test_rate_of_a_short_training_falls_from_its_first_step_on() -> None:
    short = TrainingConfig(steps=4, warmup=2, decay=500)
    assert short.falling == 4
    assert [rate_at(step, 0, short) for step in range(4)] == [0.5, 0.75, 0.5, 0.25]


def test_each_optimizer_runs_at_its_own_rate_times_the_schedule() -> None:
    run = trainer(replace(SHORT, learning_rate=0.5, matrix_learning_rate=0.25, warmup=4, steps=8, decay=3))
    for relative in (0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 2 / 3, 1 / 3):
        run.step()
        assert rates_of(run) == pytest.approx([0.5 * relative, 0.25 * relative])


def rates_of(run: Trainer) -> list[float]:
    """Of the last step, an optimiser each."""
    return [optimizer.param_groups[0]["lr"] for optimizer in run.optimizers]


# ---- the end of a training --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracies", "start"),
    [
        ({}, 70),
        ({20: 0.9, 40: 0.999}, 70),
        ({20: 1.0}, 20),
        ({20: 0.9, 40: 1.0, 60: 1.0}, 40),
        ({20: 1.0, 40: 0.5}, 20),
        ({60: 0.9, 80: 1.0}, 70),
    ],
)
def test_rate_falls_from_the_first_perfect_validation_or_at_the_end_of_the_budget(
    accuracies: dict[int, float], start: int
) -> None:
    history = [{"step": step, "accuracy": accuracy} for step, accuracy in accuracies.items()]
    assert Progress(history=history).decay_start(LONG) == start
    assert not Progress(step=start + 39, history=history).finished(LONG)
    assert Progress(step=start + 40, history=history).finished(LONG)


def always_right(model: Transformer, batch: Batch) -> Tensor:
    return torch.ones(len(batch.source), dtype=torch.bool)


def always_wrong(model: Transformer, batch: Batch) -> Tensor:
    return ~always_right(model, batch)


def relative_rates(run: Trainer, path: Path | None = None) -> list[float]:
    """Train to the end and give each step's rate, AdamW's as a part of its highest."""
    rates: list[float] = []
    run.run(path, lambda progress: rates.append(rates_of(run)[0] / run.rates[0]))
    return rates


def test_a_perfect_validation_ends_the_training_once_the_rate_has_fallen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "exact_match", always_right)
    run = trainer(replace(SHORT, steps=100, validate_every=5, warmup=2, decay=4))
    assert relative_rates(run) == pytest.approx([0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25])
    assert run.progress.step == 5 + 4


def test_a_perfect_validation_ends_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "exact_match", always_right)
    run = trainer(replace(SHORT, steps=100, validate_every=2, warmup=5, decay=4))
    assert relative_rates(run) == pytest.approx([0.2, 0.4, 0.6, 0.75, 0.5, 0.25])


@pytest.mark.parametrize("accuracy", [always_right, always_wrong])
def test_a_training_never_takes_more_than_its_steps(
    accuracy: Callable[[Transformer, Batch], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation is perfect at step 5 or never; either way the rate falls over the last 7 of 10 steps."""
    monkeypatch.setattr(training, "exact_match", accuracy)
    run = trainer(replace(SHORT, steps=10, validate_every=5, warmup=1, decay=7))
    assert relative_rates(run) == pytest.approx([1.0, 1.0, 1.0, *(left / 7 for left in range(7, 0, -1))])


def test_a_resumed_training_has_the_same_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The perfect validation at step 3 is remembered: without it the rate would stay for 94 steps."""
    monkeypatch.setattr(training, "exact_match", always_right)
    config = replace(SHORT, steps=100, decay=6)
    whole, path = relative_rates(trainer(config)), tmp_path / "checkpoint.safetensors"
    interrupt(trainer(config), path, monkeypatch, saved=4, stopped=5)
    monkeypatch.setattr(training, "exact_match", always_wrong)
    assert len(whole) == 3 + 6
    assert relative_rates(trainer(config), path) == whole[4:]


def test_history_has_a_row_for_each_validation() -> None:
    progress = trainer().run()
    assert [row["step"] for row in progress.history] == [3, 6]
    assert all(set(row) == {"step", "seconds", "loss", "accuracy"} for row in progress.history)
    assert all(0 <= row["accuracy"] <= 1 for row in progress.history)


def test_validation_counts_right_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the four problems at each of the three widths."""
    monkeypatch.setattr(training, "exact_match", lambda model, batch: torch.arange(len(batch.source)) == 0)
    assert [row["accuracy"] for row in trainer().run().history] == [0.25, 0.25]


def test_a_finished_training_ends_in_evaluation_mode_and_does_not_go_on() -> None:
    run = trainer()
    run.run()
    weights = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    assert not run.model.training
    assert run.run().step == SHORT.steps
    torch.testing.assert_close(run.model.state_dict(), weights, rtol=0, atol=0)


def test_a_model_can_be_trained_after_it_was_evaluated() -> None:
    model = build(replace(TINY, bias=Window(1)))
    evaluate(model, SAMPLER, [(1, 4)])
    loss_of(model, SAMPLER.test_batch(1, 4, seed=0)).backward()
    evaluate(build(), SAMPLER, [(33, 4)])  # the causal mask of this length is kept for every model
    loss_of(build(), SAMPLER.test_batch(33, 4, seed=0)).backward()
    assert all(p.grad is not None for p in model.parameters())


# ---- resuming ---------------------------------------------------------------------------------------


def interrupt(run: Trainer, path: Path, monkeypatch: pytest.MonkeyPatch, saved: int = 4, stopped: int = 5) -> None:
    """Train with a checkpoint after each step up to `saved`, and stop after step `stopped`."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)

    def report(progress: Progress) -> None:
        if progress.step == saved:
            monkeypatch.setattr(training, "CHECKPOINT_SECONDS", math.inf)
        if progress.step == stopped:
            raise Interrupted

    with pytest.raises(Interrupted):
        run.run(path, report)
    assert path.exists()


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("stopped", [4, 5])
def test_an_interrupted_training_ends_bit_for_bit_like_an_uninterrupted_one(
    optimizer: str, dropout: float, stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, model = replace(SHORT, optimizer=optimizer), replace(TINY, dropout=dropout)
    whole = trainer(config, model)
    progress = whole.run()
    path = tmp_path / "checkpoint.safetensors"
    interrupt(trainer(config, model), path, monkeypatch, stopped=stopped)
    again = trainer(config, model, seed=99)  # other initial weights: all must come from the checkpoint
    steps: list[int] = []
    resumed = again.run(path, lambda progress: steps.append(progress.step))
    assert steps == [5, 6, 7, 8]
    assert_same_weights(again, whole)
    assert without_seconds(resumed) == without_seconds(progress)


def test_dropout_and_data_follow_from_the_step_whatever_else_drew_random_numbers() -> None:
    model = replace(TINY, dropout=0.1)
    first, second = trainer(model=model), trainer(model=model)
    for run, disturbance in ((first, 0), (second, 7)):
        for _ in range(3):
            torch.rand(disturbance)
            run.step()
    assert_same_weights(first, second)


def test_seconds_add_up_over_resumptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(training.time, "perf_counter", lambda: float(next(clock)))
    path = tmp_path / "checkpoint.safetensors"
    interrupt(trainer(), path, monkeypatch, saved=4, stopped=4)
    assert trainer().run(path).seconds == 8.0


def test_a_checkpoint_written_by_halves_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = tmp_path / "checkpoint.safetensors", trainer()
    whole.run()
    interrupt(trainer(), path, monkeypatch)

    def dies(tensors: dict[str, Tensor], target: Path, metadata: dict[str, str]) -> None:
        target.write_bytes(b"half a check")
        raise Interrupted

    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(training, "save_file", dies)
        trainer().run(path)
    again = trainer(seed=99)
    again.run(path)
    assert_same_weights(again, whole)


# ---- damaged checkpoints ----------------------------------------------------------------------------


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def replaced_by_text(path: Path) -> None:
    path.write_text("this is not a checkpoint\n" * 100)


def one_bit_flipped(path: Path) -> None:
    """In the middle of the file: in a weight or a momentum."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def rewritten(path: Path, change: Callable[[dict[str, Tensor]], object], keep_progress: bool = True) -> None:
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata if keep_progress else None)


def without_progress(path: Path) -> None:
    rewritten(path, lambda tensors: None, keep_progress=False)


def without_a_weight(path: Path) -> None:
    rewritten(path, lambda tensors: tensors.pop("model.head.weight"))


def of_a_wider_model(path: Path) -> None:
    rewritten(path, lambda tensors: tensors.update({"model.head.weight": torch.zeros(15, 999)}))


def without_the_optimizer(path: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("optimizer.")]:
            del tensors[name]

    rewritten(path, change)


DAMAGES = [truncated, emptied, replaced_by_text, one_bit_flipped]
DAMAGES += [without_progress, without_a_weight, of_a_wider_model, without_the_optimizer]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_set_aside_and_training_starts_anew(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "checkpoint.safetensors", trainer()
    whole.run()
    interrupt(trainer(), path, monkeypatch)
    damage(path)
    content = path.read_bytes()
    again = trainer()
    steps: list[int] = []
    again.run(path, lambda progress: steps.append(progress.step))
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert_same_weights(again, whole)
    assert content in [file.read_bytes() for file in tmp_path.iterdir()]


# ---- cyclic positions -------------------------------------------------------------------------------


def test_a_phase_of_a_whole_period_changes_nothing_and_another_one_does() -> None:
    model, batch = build(replace(TINY, position=Sinusoidal(3))), SAMPLER.training_batch(0, 0, 4)
    torch.testing.assert_close(loss_of(model, batch, 3), loss_of(model, batch, 0))
    assert loss_of(model, batch, 1) != loss_of(model, batch, 0)


def test_training_starts_cyclic_positions_anywhere_in_the_period_and_others_at_zero() -> None:
    cyclic = trainer(model=replace(TINY, position=Sinusoidal(3)))
    phases = [cyclic.phases(step) for step in range(10)]
    assert all(isinstance(phase, Tensor) and phase.shape == (cyclic.config.batch, 1) for phase in phases)
    assert set(torch.cat(phases).flatten().tolist()) == {0, 1, 2}
    again = [cyclic.phases(step) for step in range(10)]
    torch.testing.assert_close(phases, again, msg="a resumed training sees the same phases")
    assert trainer().phases(3) == 0


def test_each_sample_has_its_own_phase() -> None:
    model, batch = build(replace(TINY, position=Sinusoidal(3))), SAMPLER.training_batch(0, 0, 4)
    together = model(batch.source, batch.target[:, :-1], batch.layout, phase=torch.tensor([[0], [1], [2], [1]]))
    for sample, phase in enumerate((0, 1, 2, 1)):
        alone = model(
            batch.source[sample : sample + 1], batch.target[sample : sample + 1, :-1], batch.layout, phase=phase
        )
        torch.testing.assert_close(together[sample : sample + 1], alone)
