"""A checkpoint: all that a killed training needs to go on, in one file."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from abc_nb.common.files import write_bytes
from abc_nb.training.progress import Progress

if TYPE_CHECKING:
    from abc_nb.training.trainer import Trainer


def save_checkpoint(path: Path, trainer: Trainer) -> None:
    """Weights, the optimisers' state, problems answered wrong and progress; replaces the file before when whole."""
    content = io.BytesIO()
    state = {
        "model": trainer.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "missed": [torch.from_numpy(digits) for digits in trainer.batches.missed],
        "progress": vars(trainer.progress),
    }
    torch.save(state, content)
    write_bytes(path, content.getvalue())


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Go on from what `save_checkpoint` wrote; with a warning, a damaged file changes nothing."""
    state = read_checkpoint(path)
    if state is None:
        warnings.warn(f"the checkpoint {path} is damaged: its training starts anew", stacklevel=2)
        return
    trainer.model.load_state_dict(state["model"])
    for optimizer, own in zip(trainer.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(own)
    trainer.batches.missed = [digits.numpy() for digits in state["missed"]]
    trainer.progress = Progress(**state["progress"])


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is damaged. PyTorch writes an archive whose entries have checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return torch.load(path, "cpu", weights_only=True) if archive.testzip() is None else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, RuntimeError, EOFError):
        return None
