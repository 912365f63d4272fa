"""The store: finished runs in folders named after all that determines them.

A folder is finished or absent: it is written aside and moved into place in one step. Reading checks
every file against the manifest; what is damaged or foreign is set aside and named, never deleted.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from abc_nb import lora, paths
from abc_nb.calibration import calibrate_model
from abc_nb.config import from_data, to_data
from abc_nb.errors import InputError
from abc_nb.evaluation import evaluate
from abc_nb.experiments import Experiment, train_command
from abc_nb.files import write_bytes, write_text
from abc_nb.lines import Line, Lines
from abc_nb.manifest import (
    BIAS,
    CONFIG,
    EVALUATION,
    FACTS,
    FILES,
    HISTORY,
    MANIFEST,
    SHARES,
    WEIGHTS,
    DamagedRun,
    environment,
    read_json,
    read_manifest,
    write_json,
    write_manifest,
)
from abc_nb.model import Transformer
from abc_nb.training import Progress, Trainer

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
THREADS = 1  # fixed, so that a run can be repeated bit for bit; two runs at once use two cores
CHECKPOINT = "checkpoint.safetensors"
ORIGIN = "origin.json"  # of an unfinished run: which weights it began with, and the manifest of its bias
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

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        if not self.has_weights:
            name, profile = self.experiment.name, self.experiment.profile
            command = train_command(name, self.seed, profile)
            raise InputError(f"{name} was shipped without its weights: run `{command}` first")
        model = build_model(self.experiment, self.seed, self.bias())
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


def device() -> str:
    """Where models are trained: a CUDA device if there is one, the CPU otherwise."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """The device in words, for manifests."""
    if device() == "cuda":
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"CPU ({model}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()})"


def build_model(experiment: Experiment, seed: int, bias: Lines | None = None) -> Transformer:
    """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
    config = experiment.model if bias is None else replace(experiment.model, bias=bias)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(config, len(experiment.task.vocabulary))


def prepare(experiment: Experiment, seed: int, partial: Path) -> tuple[Transformer, dict[str, Any]]:
    """The model to train, and facts about where it comes from: a new one, or what its parent has learned."""
    if experiment.parent is None:
        return build_model(experiment, seed), {}
    parent = with_weights(experiment.parent, seed) or ensure(experiment.parent, seed)
    origin = kept_origin(parent, partial) or begin(experiment, parent, partial)
    bias = read_bias(partial / BIAS, experiment.model.heads) if experiment.calibration else None
    model = build_model(experiment, seed, bias)
    if experiment.warm:
        parent.restore(model)
    if experiment.rank:
        lora.adapt(model, experiment.rank, seed)
    facts = {"run": parent.folder.name, "weights": parent.manifest["files"][WEIGHTS]}
    facts["seconds"] = parent.manifest["seconds"]["training"]
    return model, {"parent": facts, "calibration_seconds": origin["seconds"]}


def begin(experiment: Experiment, parent: Run, partial: Path) -> dict[str, Any]:
    """Keep in `partial` what a resumed run goes on with: the parent's weights by name, the bias read out of them."""
    start = time.perf_counter()
    if experiment.calibration is not None:
        batch = experiment.calibration_batch(parent.seed)
        found = calibrate_model(parent.model().to(device()), batch, experiment.calibration)
        write_text(partial / SHARES, found.tried.to_csv(index=False))
        write_json(partial / BIAS, to_data(found.bias))
    seconds = round(time.perf_counter() - start, 3)
    origin = {"weights": parent.manifest["files"][WEIGHTS], "seconds": seconds}
    write_manifest(partial, origin, ORIGIN, (BIAS, SHARES))
    return origin


def kept_origin(parent: Run, partial: Path) -> dict[str, Any] | None:
    """What an interrupted run began with, if it was this parent; what is damaged, or another's, is set aside."""
    if not (partial / ORIGIN).exists():
        return None
    names = [BIAS, SHARES, ORIGIN]
    try:
        origin = read_manifest(partial, ORIGIN)
        if origin["weights"] == parent.manifest["files"][WEIGHTS]:
            return origin
        names.append(CHECKPOINT)
        error = f"{parent.experiment.name} was trained anew since {partial.name} began"
    except DamagedRun as damage:
        error = str(damage)
    where = set_aside(partial, names)
    warnings.warn(f"{error}; it is kept in {where}, and begun anew", stacklevel=2)
    return None


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


def with_weights(experiment: Experiment, seed: int) -> Run | None:
    """The finished run, if there is one from which training can go on."""
    run = find(experiment, seed)
    return run if run is not None and run.has_weights else None


def untrained(experiment: Experiment, seed: int) -> list[Experiment]:
    """What is to be trained for a run made here, in order: nothing, or the run, after a parent that is nowhere."""
    if find(experiment, seed, ("runs",)) is not None:
        return []
    parent = experiment.parent
    return [parent, experiment] if parent is not None and with_weights(parent, seed) is None else [experiment]


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


def ensure(experiment: Experiment, seed: int, report: Callable[[Progress], None] | None = None) -> Run:
    """The finished run, trained now if it is not there; two processes do not train it twice."""
    run = find(experiment, seed, ("runs",))
    if run is not None:
        return run
    with lock(experiment.key(seed)):
        return find(experiment, seed, ("runs",)) or train(experiment, seed, report)


@contextmanager
def lock(key: str) -> Iterator[None]:
    folder = paths.runs() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield


def train(experiment: Experiment, seed: int, report: Callable[[Progress], None] | None = None) -> Run:
    """Train, or go on from the last checkpoint, evaluate, and move the finished folder into place."""
    torch.set_num_threads(THREADS)
    key = experiment.key(seed)
    partial = paths.runs() / ".partial" / key
    partial.mkdir(parents=True, exist_ok=True)
    model, origin = prepare(experiment, seed, partial)
    model = model.to(device())
    progress = Trainer(model, experiment.sampler, experiment.training, seed).run(partial / CHECKPOINT, report)
    lora.merge(model)
    start = time.perf_counter()
    rows = evaluate(model, experiment.sampler, experiment.tests, experiment.name, seed)
    seconds = {"training": round(progress.seconds, 2), "evaluation": round(time.perf_counter() - start, 2)}
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(partial / WEIGHTS, save(tensors))
    write_text(partial / HISTORY, pd.DataFrame(progress.history).to_csv(index=False))
    write_text(partial / EVALUATION, rows.to_csv(index=False))
    write_json(partial / CONFIG, experiment.data | {"seed": seed})
    write_manifest(partial, {"steps": progress.step, "seconds": seconds} | origin | environment(device_name()))
    clear(partial)
    return read_run(experiment, seed, partial.rename(paths.runs() / key))


def clear(partial: Path) -> None:
    """Leave only a run's files, once they are all there; a damaged checkpoint is kept elsewhere."""
    for path in partial.iterdir():
        if path.suffix == ".damaged":
            set_aside(partial, [path.name])
        elif path.name not in (MANIFEST, *FILES):
            path.unlink()


def ship(run: Run, weights: bool) -> Path:
    """Copy a run into the shipped results, labelled as such, with its weights only if asked."""
    target = paths.SHIPPED / run.folder.name
    temporary, old = (target.with_name(f".{target.name}.{kind}") for kind in ("tmp", "old"))
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(run.folder, temporary, ignore=None if weights else shutil.ignore_patterns(WEIGHTS))
    write_manifest(temporary, run.manifest | {"shipped": True})
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return target
