"""Checkpoints: an interrupted training ends as an uninterrupted one, and damage is noticed."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal

import pytest
from helpers import SHORT, TINY, all_rates, assert_same_weights, interrupt, new_training

from abc_nb.training.fit import read_checkpoint


@pytest.mark.parametrize(("optimizer", "dropout"), [("muon", 0.0), ("muon", 0.1), ("adamw", 0.1)])
@pytest.mark.parametrize("stopped", [4, 5])
def test_an_interrupted_training_ends_bit_for_bit_like_an_uninterrupted_one(
    optimizer: Literal["muon", "adamw"], dropout: float, stopped: int, tmp_path: Path
) -> None:
    config, model = replace(SHORT, optimizer=optimizer), replace(TINY, dropout=dropout)
    whole = new_training(config, model)
    progress = whole.run()
    path = tmp_path / "checkpoint.pt"
    interrupt(new_training(config, model), path, stopped)
    again = new_training(config, model, seed=99)  # other initial weights: all must come from the checkpoint
    steps: list[int] = []
    resumed = again.run(path, lambda progress: steps.append(progress.step))
    assert steps == [5, 6, 7, 8]
    assert_same_weights(again, whole)
    assert [row | {"seconds": 0} for row in resumed.history] == [row | {"seconds": 0} for row in progress.history]
    assert [each.tolist() for each in again.missed] == [each.tolist() for each in whole.missed]


def test_seconds_add_up_over_resumptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = count(), tmp_path / "checkpoint.pt"
    monkeypatch.setattr("abc_nb.training.fit.time.perf_counter", lambda: float(next(clock)))
    interrupt(new_training(), path, stopped=4)
    assert new_training().run(path).seconds == 8.0


@pytest.mark.parametrize(
    "damaged", [b"", b"this is not a checkpoint\n" * 100, None], ids=["emptied", "text", "truncated"]
)
def test_after_damage_a_training_starts_anew_with_a_warning(damaged: bytes | None, tmp_path: Path) -> None:
    path, whole = tmp_path / "checkpoint.pt", all_rates(new_training())
    interrupt(new_training(), path)
    path.write_bytes(path.read_bytes()[:-100] if damaged is None else damaged)
    with pytest.warns(UserWarning, match=r"checkpoint.pt is damaged: its training starts anew"):
        assert all_rates(new_training(), path) == whole


def test_no_altered_byte_changes_what_is_read(tmp_path: Path) -> None:
    """It is noticed, or it was one that says nothing, such as a date."""
    path = tmp_path / "checkpoint.pt"
    interrupt(new_training(), path)
    content, expected = path.read_bytes(), new_training()
    expected.resume(path)
    places, noticed = range(0, len(content), 1009), 0
    for at in places:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        if read_checkpoint(path) is None:
            noticed += 1
        else:
            again = new_training(seed=99)
            again.resume(path)
            assert_same_weights(again, expected)
            assert again.progress == expected.progress
    assert noticed > 0.3 * len(places)
