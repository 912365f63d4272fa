"""The store: finished runs in folders named after all that determines them.

A folder is finished or absent: it is written aside and moved into place in one step. Reading checks
every file against the manifest; what is damaged or foreign is set aside and named, never deleted.
"""

from __future__ import annotations

import math
import re
import shutil
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file

from abc_nb.bias.lines import Line, Lines
from abc_nb.common import paths
from abc_nb.common.config import from_data
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment, train_command
from abc_nb.model.transformer import Transformer
from abc_nb.runs.manifest import (
    BIAS,
    CONFIG,
    EVALUATION,
    FACTS,
    HISTORY,
    MANIFEST,
    SHARES,
    WEIGHTS,
    DamagedRun,
    read_json,
    read_manifest,
    write_manifest,
)
from abc_nb.training.progress import Progress

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
LARGEST_BIAS = 2**24  # bytes; a line takes about 170


@dataclass(frozen=True)
class Run:
    """The result of an experiment for one seed, on disk and checked."""

    experiment: Experiment
    seed: int
    folder: Path
    manifest: dict[str, Any]

    def evaluation(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / EVALUATION)

    def history(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / HISTORY)

    @property
    def validation(self) -> float:
        """Accuracy (a fraction) at the last validation; 0 if there was none."""
        history = self.history()
        return float(history.accuracy.iloc[-1]) if len(history) else 0.0

    def problems(self, steps: int | None = None) -> int:
        """How many problems so many steps went through (all of them, by default); the same on any machine."""
        config, steps = self.experiment.training, int(self.manifest["steps"]) if steps is None else steps
        history: list[Any] = self.history().to_dict("records")
        held = min(steps, Progress(history=history).fall(config)[0])
        return held * config.held_batch + (steps - held) * config.batch

    def reached(self, accuracy: float) -> dict[str, float]:
        """The first validation that was so good: step, seconds, problems up to it; all infinite if none was."""
        history = self.history()
        there = history[history.accuracy >= accuracy]
        if there.empty:
            return dict.fromkeys(("step", "seconds", "problems"), math.inf)
        step, seconds = there[["step", "seconds"]].iloc[0]
        return {"step": step, "seconds": seconds, "problems": float(self.problems(int(step)))}

    @property
    def has_weights(self) -> bool:
        return WEIGHTS in self.manifest["files"]

    def bias(self) -> Lines | None:
        """The calibrated bias, or None for a run that has none."""
        return read_bias(self.folder / BIAS, self.experiment.model.heads) if BIAS in self.manifest["files"] else None

    def shares(self) -> pd.DataFrame | None:
        """The thresholds that calibration tried: share, lines, skill under them; None for a run without calibration."""
        return pd.read_csv(self.folder / SHARES) if SHARES in self.manifest["files"] else None

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        if not self.has_weights:
            name, profile = self.experiment.name, self.experiment.profile
            command = train_command(name, self.seed, profile)
            raise InputError(f"{name} was shipped without its weights: run `{command}` first")
        model = self.experiment.build(self.seed, self.bias())
        self.restore(model)
        return model.eval()

    def restore(self, model: Transformer) -> None:
        """Give a model the trained weights; InputError if they are not those of such a model."""
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        try:
            tensors = load_file(self.folder / WEIGHTS)
        except SafetensorError:
            tensors = {}
        if {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} != wanted:
            raise InputError(f"{self.folder / WEIGHTS} does not hold the weights of this model")
        model.load_state_dict(tensors)


def read_bias(path: Path, heads: int) -> Lines:
    """A calibrated bias for so many heads; InputError for anything else: the file may come from elsewhere."""
    try:
        bias = from_data(read_json(path) if path.stat().st_size <= LARGEST_BIAS else None, (Lines, Line))
    except (InputError, RecursionError):  # nested too deeply for either reader
        bias = None
    if not isinstance(bias, Lines) or bias.heads != heads:
        raise InputError(f"{path} does not hold a calibrated bias of {heads} heads")
    return bias


def find(experiment: Experiment, seed: int, origins: Sequence[str] = ANYWHERE) -> Run | None:
    """The finished run, from the first of `origins` that has it; a damaged one is set aside with a warning."""
    for origin in origins:
        folder = (paths.SHIPPED if origin == "shipped" else paths.runs()) / experiment.key(seed)
        if not folder.exists():
            continue
        try:
            return read_run(experiment, seed, folder)
        except DamagedRun as error:
            where = set_aside(folder) if origin == "runs" else folder
            warnings.warn(f"{error}; it is kept in {where}", stacklevel=2)
    return None


def seeds() -> dict[str, list[int]]:
    """Which seeds have a folder, made here or shipped, by `name-profile` of the experiment."""
    found = defaultdict[str, set[int]](set)
    for folder in (*paths.SHIPPED.glob("*-seed*"), *paths.runs().glob("*-seed*")):
        if parts := re.fullmatch(r"(.+)-seed(\d+)-[0-9a-f]+", folder.name):
            found[parts[1]].add(int(parts[2]))
    return {name: sorted(numbers) for name, numbers in found.items()}


def read_run(experiment: Experiment, seed: int, folder: Path) -> Run:
    """A finished run; DamagedRun if the folder is not whole, or not this experiment's."""
    manifest = read_manifest(folder)
    needed = {CONFIG, EVALUATION, HISTORY} | ({BIAS, SHARES} if experiment.calibration else set())
    if not (manifest.keys() >= FACTS and manifest["files"].keys() >= needed):
        raise DamagedRun(f"the run in {folder.name} is damaged: {MANIFEST} does not say all that it should")
    if read_json(folder / CONFIG) != experiment.data | {"seed": seed}:
        raise DamagedRun(f"the folder {folder.name} holds another experiment")
    return Run(experiment, seed, folder, manifest)


def set_aside(folder: Path, names: Sequence[str] = ()) -> Path:
    """Move a folder, or only some files of it, out of the way and say where to."""
    target = paths.runs() / ".set-aside" / f"{folder.name}-{time.time_ns()}"
    if not names:
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process was faster
            folder.rename(target)
        return target
    target.mkdir(parents=True)
    for path in (folder / name for name in names if (folder / name).exists()):
        path.rename(target / path.name)
    return target


@contextmanager
def lock(key: str) -> Iterator[None]:
    folder = paths.runs() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield


def ship(run: Run, weights: bool) -> Path:
    """Copy a run into the shipped results, labelled as such, with its weights only if asked."""
    target = paths.SHIPPED / run.folder.name
    temporary, old = (target.with_name(f".{target.name}.{kind}") for kind in ("tmp", "old"))
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name in run.manifest["files"]:
        if weights or name != WEIGHTS:
            shutil.copy2(run.folder / name, temporary)
    write_manifest(temporary, run.manifest | {"shipped": True})
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return target
