"""Checkpoints: weights, optimiser state and progress in one file."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from abc_nb.common.files import write_bytes
from abc_nb.training.progress import Progress

if TYPE_CHECKING:
    from abc_nb.training.trainer import Trainer


def save_checkpoint(path: Path, trainer: Trainer) -> None:
    """Weights, optimiser state and progress in one file, which replaces the one before when it is whole."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for i, optimizer in enumerate(trainer.optimizers):
        for p, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{p}.{name}": tensor for name, tensor in state.items()}
    tensors |= {f"missed.{i}": torch.from_numpy(digits).contiguous() for i, digits in enumerate(trainer.missed)}
    progress = json.dumps(vars(trainer.progress))
    write_bytes(path, save(tensors, {"progress": progress, "checksum": checksum(tensors, progress)}))


def checksum(tensors: dict[str, Tensor], progress: str) -> str:
    """SHA-256 of all that a checkpoint holds: safetensors itself does not notice a flipped bit."""
    found = hashlib.sha256(progress.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {[*tensor.shape]} ".encode())
        found.update(tensor.cpu().numpy().tobytes())
    return found.hexdigest()


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Restore what `save_checkpoint` wrote; a damaged file is set aside and training starts anew."""
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata()
            progress = Progress(**json.loads(facts["progress"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if checksum(tensors, facts["progress"]) != facts["checksum"]:
            raise ValueError("this is not what was written")
        model = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
        shapes = {name: tensor.shape for name, tensor in trainer.model.state_dict().items()}
        if {name: tensor.shape for name, tensor in model.items()} != shapes:
            raise ValueError("the tensors are those of another model")  # before any of them is copied
        trainer.model.load_state_dict(model)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        aside = path.with_suffix(".damaged")
        os.replace(path, aside)
        sentence = f"the checkpoint {path} is damaged; it is kept as {aside.name}, and training starts anew"
        warnings.warn(sentence, stacklevel=2)
        return
    for i, optimizer in enumerate(trainer.optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, *where = name.split(".")
            if kind == "optimizer" and int(where[0]) == i:
                state.setdefault(int(where[1]), {})[where[2]] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    trainer.missed = [tensors[name].numpy() for name in sorted(tensors) if name.startswith("missed.")]
    trainer.progress = progress
