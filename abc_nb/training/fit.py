"""The one loop of every training: resumable, and on a CPU bit for bit the same from (seed, step).

A training is given the loss of a step as a function. What is drawn for it has to follow from the step's number; random
numbers of PyTorch, as those of dropout, do. `problems`, `language.training`, `hf.training` and `certificates.practice`
have such losses.
"""

import hashlib
import io
import pickle
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from abc_nb.common.devices import tensor_cores
from abc_nb.common.files import replacement
from abc_nb.training.recipe import Recipe, Validation


@dataclass
class Progress:
    """Where a training stands, or several that follow each other, as the rounds of practice do."""

    step: int = 0
    seconds: float = 0.0  # over all resumptions
    history: list[Validation] = field(default_factory=list)  # one row a validation
    end: int = 0  # steps in all, as far as is known
    round: int = 0  # of practice
    tried: int = 0  # contexts, of so many, while all of them are tried
    contexts: int = 0


LossOfStep = Callable[[int, int], Iterable[Tensor]]  # of (step, rows): parts that add up to the step's loss
Report = Callable[[Progress], object]


class Training:
    """One training. Parts of a loss are differentiated one after the other, each before the next is computed.

    `validate` gives what a validation adds to the history, as the accuracy. `missed` is what a loss keeps of one step
    for later ones, such as problems that were answered wrong; a checkpoint holds it. `progress` is that of trainings
    before, which this one goes on counting; its recipe starts anew.
    """

    checkpoint_seconds = 5.0  # from one checkpoint to the next

    def __init__(
        self,
        model: nn.Module,
        loss_of_step: LossOfStep,
        recipe: Recipe,
        seed: int = 0,
        validate: Callable[[], Validation] = dict,
        missed: list[np.ndarray] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.model, self.loss_of_step, self.recipe, self.seed = model, loss_of_step, recipe, seed
        self.validate, self.missed = validate, [] if missed is None else missed
        self.progress = progress or Progress()
        self.first_step, self.parameters = self.progress.step, list(model.parameters())
        self.device = self.parameters[0].device
        self.optimizers = recipe.optimizers(model)

    @property
    def history(self) -> list[Validation]:
        """The validations of this training alone, with its own steps."""
        rows, first = self.progress.history, self.first_step
        return [row | {"step": row["step"] - first} for row in rows if row["step"] > first]

    def run(self, checkpoint: Path | None = None, report: Report | None = None) -> Progress:
        """Resume from `checkpoint` if it is there, and train to the end; save to it every few seconds and at the end.

        PyTorch's random numbers go on afterwards as if there had been no training.
        """
        if checkpoint is not None and checkpoint.exists():
            self.resume(checkpoint)
        start, saved = time.perf_counter() - self.progress.seconds, time.monotonic()
        self.model.train()
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            while self.progress.step < self.first_step + self.recipe.end(self.history):
                loss = self.step()
                self.progress.seconds = time.perf_counter() - start
                if (self.progress.step - self.first_step) % self.recipe.validate_every == 0:
                    self.add_row(loss)
                if checkpoint is not None and time.monotonic() - saved > self.checkpoint_seconds:
                    self.save(checkpoint)
                    saved = time.monotonic()
                if report is not None:
                    report(self.progress)
        if checkpoint is not None:
            self.save(checkpoint)
        self.model.eval()
        return self.progress

    def step(self) -> Tensor:
        """One optimiser step, which gives its loss; it counts only when it is complete."""
        step, history = self.progress.step, self.history
        recipe_step = step - self.first_step
        generator = torch.default_generator if self.device.type == "cpu" else torch  # all devices: half a millisecond
        generator.manual_seed(stream(self.seed, step))
        self.model.zero_grad()
        losses = list[Tensor]()
        with tensor_cores(self.device):
            for loss in self.loss_of_step(step, self.recipe.rows(recipe_step, history)):
                loss.backward()
                losses.append(loss.detach())
            nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip)
            self.recipe.set_rates(self.optimizers, recipe_step, history)
            for optimizer in self.optimizers:
                optimizer.step()
        self.progress.step, self.progress.end = step + 1, self.first_step + self.recipe.end(history)
        return torch.stack(losses).sum()

    def add_row(self, loss: Tensor) -> None:
        """Validate, and add a row to the history, beside a training step's loss."""
        seconds, rounded = round(self.progress.seconds, 2), float(f"{loss.item():.5g}")  # more digits say nothing
        row = {"step": self.progress.step, "seconds": seconds, "loss": rounded}
        self.progress.history.append(row | self.validate())

    def save(self, path: Path) -> None:
        """Write all that a killed training needs to go on; the checkpoint replaces the last one when it is whole."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "missed": [torch.from_numpy(array) for array in self.missed],
            "progress": vars(self.progress),
        }
        with replacement(path) as temporary:
            torch.save(state, temporary)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint; with a warning, a damaged one changes nothing."""
        state = read_checkpoint(path)
        if state is None:
            warnings.warn(f"the checkpoint {path} is damaged: its training starts anew", stacklevel=2)
            return
        self.model.load_state_dict(state["model"])
        for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        self.missed[:] = [tensor.numpy() for tensor in state["missed"]]
        self.progress = Progress(**state["progress"])


def fit(
    model: nn.Module,
    loss_of_step: LossOfStep,
    recipe: Recipe,
    seed: int = 0,
    validate: Callable[[], Validation] = dict,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Progress:
    """Train a model to the end, without a checkpoint: see `Training`."""
    return Training(model, loss_of_step, recipe, seed, validate, progress=progress).run(report=report)


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is damaged. PyTorch writes an archive whose entries have checksums."""
    content = io.BytesIO(path.read_bytes())  # in which a damaged address is a ValueError; in a file it is an OSError
    try:
        damaged = zipfile.ZipFile(content).testzip() is not None
        return None if damaged else torch.load(path, "cpu", weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, RuntimeError, EOFError):
        return None


def stream(seed: int, step: int) -> int:
    """The seed of torch's random numbers in one training step, of which a CPU takes the lowest 32 bits.

    Two seeds below 4,096 never share one before step 2^20, since 20 bits are left to the step. Larger seeds are hashed
    to 63 bits; bit 19 is set, so that they share none with a smaller seed's first 524,288 steps.
    """
    if seed < 2**12:
        return seed << 20 | step
    hashed = hashlib.sha256(f"{seed} {step}".encode()).digest()
    return int.from_bytes(hashed[:8]) >> 1 | 1 << 19
