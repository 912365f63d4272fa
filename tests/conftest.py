"""What several test files need: one thread, hypothesis without deadlines, temporary folders, tiny experiments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from abc_nb import paths
from abc_nb.experiments import Experiment, experiment
from abc_nb.model import ModelConfig
from abc_nb.training import TrainingConfig

torch.set_num_threads(1)  # what the store trains with; bit-for-bit comparisons need a fixed count
settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")


@dataclass(frozen=True)
class Folders:
    """Where this test's runs and shipped results are."""

    runs: Path
    shipped: Path


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Empty folders in place of the project's runs/ and results/."""
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "SHIPPED", tmp_path / "shipped")
    return Folders(tmp_path / "runs", tmp_path / "shipped")


@pytest.fixture(scope="session")
def tiny() -> Experiment:
    """An experiment that trains in a fraction of a second."""
    return replace(
        experiment("successor-vanilla", "smoke"),
        model=ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=1),
        training=TrainingConfig(steps=4, batch=8, warmup=2, validate_every=2, validation=8),
        tests=((1, 5), (3, 5)),
    )
