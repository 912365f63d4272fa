"""Training: one recipe, resumable, on a CPU bit for bit: what is drawn in a step follows from (seed, step)."""

import hashlib
import pickle
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.common.devices import tensor_cores
from abc_nb.common.files import replacement
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.sampling import AGAIN, PHASE, Batch, Sampler, generator
from abc_nb.training.evaluation import exact_match
from abc_nb.training.optimizers import build_optimizers
from abc_nb.training.progress import Progress, TrainingConfig, schedule

CHECKPOINT_SECONDS = 5.0
PART = 2**20  # embedded numbers of a batch (tokens times width) that go through the model at once
Report = Callable[[Progress], None]


class Batches:
    """Fresh problems, `config.again` of them replaced by some that were wrong lately: what is rare is met again."""

    def __init__(self, sampler: Sampler, config: TrainingConfig, seed: int) -> None:
        self.sampler, self.config, self.seed = sampler, config, seed
        self.missed: list[Digits] = []  # operands, (problems, places) each; a checkpoint keeps them

    def batch(self, step: int, size: int) -> Batch:
        """The problems of one step."""
        return self.sampler.training_batch(self.seed, step, size, self.again(step, size))

    def again(self, step: int, size: int) -> list[Digits]:
        """Problems to practise again, drawn from those missed lately; at most a quarter of the batch."""
        if not self.missed or not self.config.again:
            return []
        count = min(self.config.again, size // 4, len(self.missed[0]))
        rows = generator(self.seed, AGAIN, step).choice(len(self.missed[0]), count, replace=False)
        return [digits[rows] for digits in self.missed]

    def remember(self, batch: Batch, wrong: Tensor) -> None:
        """Keep the last problems that were answered wrong, as many as a batch holds; `wrong` is (batch,)."""
        if not self.sampler.pads or not wrong.any():
            return
        new = [digits[:, : self.sampler.widths[0]] for digits in batch.operands(wrong, self.sampler.task)]
        old = self.missed or [digits[:0] for digits in new]
        self.missed = [np.concatenate(pair)[-self.config.batch :] for pair in zip(old, new, strict=True)]


class Trainer:
    """Trains one model; `batches` are other problems than the sampler's fresh ones and those missed lately."""

    def __init__(
        self, model: Transformer, sampler: Sampler, config: TrainingConfig, seed: int, batches: Batches | None = None
    ) -> None:
        self.model, self.sampler, self.config, self.seed = model, sampler, config, seed
        self.batches = batches or Batches(sampler, config, seed)
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.optimizers = build_optimizers(model, config)
        self.rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.progress = Progress()

    def run(self, checkpoint: Path | None = None, report: Report | None = None) -> Progress:
        """Resume from `checkpoint` if it is there, and train to the end; save to it every few seconds."""
        if checkpoint is not None and checkpoint.exists():
            self.resume(checkpoint)
        validation = self.sampler.validation_batches(self.seed, self.config.validation)
        start, saved = time.perf_counter() - self.progress.seconds, time.monotonic()
        self.model.train()
        while self.progress.step < schedule(self.progress.history, self.config).end:
            with tensor_cores(self.device):
                loss = self.step()
            self.progress.seconds = time.perf_counter() - start
            if self.progress.step % self.config.validate_every == 0:
                self.validate(validation, loss)
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                self.save(checkpoint)
                saved = time.monotonic()
            if report is not None:
                report(self.progress)
        self.model.eval()
        return self.progress

    def save(self, path: Path) -> None:
        """A checkpoint, which replaces the one before when it is whole: all that a killed training needs to go on."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "missed": [torch.from_numpy(digits) for digits in self.batches.missed],
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
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        self.batches.missed = [digits.numpy() for digits in state["missed"]]
        self.progress = Progress(**state["progress"])

    def step(self) -> Tensor:
        """One optimiser step, which gives the mean loss; it counts only when it is complete."""
        step, config = self.progress.step, self.config
        plan = schedule(self.progress.history, config)
        seed = torch.default_generator if self.device.type == "cpu" else torch  # for all devices: half a millisecond
        seed.manual_seed(stream(self.seed, step))
        size = config.held_batch if step < plan.fall else config.batch
        batch = self.batches.batch(step, size).to(self.device)
        loss, wrong = self.gradients(batch, self.phases(step, size))
        nn.utils.clip_grad_norm_(self.parameters, config.clip)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * plan.rate(step, config.warmup)
            optimizer.step()
        self.batches.remember(batch, wrong)
        self.progress.step += 1
        return loss

    def gradients(self, batch: Batch, phase: Tensor | int) -> tuple[Tensor, Tensor]:
        """The mean loss, whose gradients are left in the parameters, and which problems have a wrong token.

        On a CPU a large batch goes through the model in parts: what a part needs stays in the cache.
        """
        self.model.zero_grad()
        tokens = batch.layout.source_length + batch.layout.target_length
        rows = len(batch.source) if batch.source.is_cuda else max(1, PART // (tokens * self.model.config.width))
        losses, wrong = [], []
        for i, part in enumerate(batch.split(rows)):
            own = phase if isinstance(phase, int) else phase[i * rows : (i + 1) * rows]
            loss, bad = loss_of(self.model, part, own)
            loss = loss * (len(part.source) / len(batch.source))
            loss.backward()
            losses.append(loss.detach())
            wrong.append(bad)
        return torch.stack(losses).sum(), torch.cat(wrong)

    def phases(self, step: int, size: int) -> Tensor | int:
        """Where positions start to count, for each sample: (batch, 1), or 0 if they all start at zero.

        Six-digit numbers fill a cyclic index of period three only twice. Starting anywhere in it shows every residue
        next to every neighbour; otherwise some would meet only beyond the training length.
        """
        count = self.model.config.position.phases()
        if count == 1:
            return 0
        drawn = generator(self.seed, PHASE, step).integers(count, size=(size, 1))
        return torch.from_numpy(drawn).to(self.device)

    def validate(self, batches: list[Batch], loss: Tensor) -> None:
        """Add a row to the history: the share of problems answered right, beside a training step's loss."""
        right = torch.cat([exact_match(self.model, batch) for batch in batches])
        seconds, shown = round(self.progress.seconds, 2), float(f"{loss.item():.5g}")  # more digits say nothing
        row = {"step": self.progress.step, "seconds": seconds, "loss": shown}
        self.progress.history.append(row | {"accuracy": right.float().mean().item()})


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is damaged. PyTorch writes an archive whose entries have checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return torch.load(path, "cpu", weights_only=True) if archive.testzip() is None else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, RuntimeError, EOFError):
        return None


def loss_of(model: Transformer, batch: Batch, phase: Tensor | int = 0) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of the output tokens, teacher-forced, and which problems have a wrong one (batch,)."""
    logits, wanted = model(batch.source, batch.target[:, :-1], batch.layout, phase=phase), batch.target[:, 1:]
    wrong = (logits.argmax(-1) != wanted).any(1)
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten()), wrong


def stream(seed: int, step: int) -> int:
    """The seed of torch's random numbers in one training step, of which a CPU takes the lowest 32 bits.

    Seeds below 4,096 leave 20 bits to the step. From there on both are hashed to 63 bits; bit 19 is set, so that they
    share the random numbers of no smaller seed's first 524,288 steps.
    """
    if seed < 2**12:
        return seed << 20 | step
    hashed = hashlib.sha256(f"{seed} {step}".encode()).digest()
    return int.from_bytes(hashed[:8]) >> 1 | 1 << 19
