"""Checkpoints: an interrupted training ends as an uninterrupted one, and damage is noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal

import pytest
import torch
from helpers import SHORT, TINY, assert_same_weights, relative_rates, trainer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from abc_nb.training import checkpoints
from abc_nb.training import trainer as training
from abc_nb.training.progress import Progress
from abc_nb.training.trainer import Trainer


class Interrupted(Exception):
    pass


def without_seconds(progress: Progress) -> list[dict[str, float]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in progress.history]


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
    optimizer: Literal["muon", "adamw"], dropout: float, stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    for found, expected in zip(again.missed, whole.missed, strict=True):
        assert found.tolist() == expected.tolist()


def test_a_resumed_training_has_the_same_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The validation at step 3 is remembered: without it the rate would be held, for 100 steps in all."""
    monkeypatch.setattr(training, "exact_match", lambda model, batch: torch.ones(len(batch.source)) > 0)
    config = replace(SHORT, steps=100, hold=90)
    whole, path = relative_rates(trainer(config)), tmp_path / "checkpoint.safetensors"
    interrupt(trainer(config), path, monkeypatch, saved=4, stopped=5)
    monkeypatch.setattr(training, "exact_match", lambda model, batch: torch.zeros(len(batch.source)) > 0)
    assert len(whole) == 30
    assert relative_rates(trainer(config), path) == whole[4:]


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
    monkeypatch.setattr("abc_nb.training.trainer.time.perf_counter", lambda: float(next(clock)))
    path = tmp_path / "checkpoint.safetensors"
    interrupt(trainer(), path, monkeypatch, saved=4, stopped=4)
    assert trainer().run(path).seconds == 8.0


def test_a_checkpoint_written_by_halves_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = tmp_path / "checkpoint.safetensors", trainer()
    whole.run()
    interrupt(trainer(), path, monkeypatch)

    def dies(target: Path, content: bytes) -> None:
        target.write_text("half a check")
        raise Interrupted

    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Path, "write_bytes", dies)
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
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors is damaged; it is kept as checkpoint.damaged"):
        again.run(path, lambda progress: steps.append(progress.step))
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert_same_weights(again, whole)
    assert path.with_suffix(".damaged").read_bytes() == content


def test_the_checksum_is_of_progress_names_types_and_shapes_too() -> None:
    zeros = torch.zeros(2, 3)
    others = [{"b": zeros}, {"a": zeros.int()}, {"a": zeros.T}, {"a": zeros[:1]}, {"a": zeros + 1}, {}]
    found = {checkpoints.checksum(tensors, "{}") for tensors in [{"a": zeros}, *others]}
    assert len(found | {checkpoints.checksum({"a": zeros}, "{ }")}) == len(others) + 2


def test_no_altered_byte_of_a_checkpoint_goes_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its header (names, shapes, progress) every seventh one, and one of each kind of tensor."""
    path = tmp_path / "checkpoint.safetensors"
    interrupt(trainer(), path, monkeypatch)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    again = trainer()
    for at in [*range(0, header, 7), *range(header, len(content), 997)]:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.warns(UserWarning, match="is damaged"):
            checkpoints.load_checkpoint(path, again)
