"""The store: finished runs in folders named after all that determines them.

A folder is finished or absent: it is written aside and moved into place in one step. Reading checks
every file against the manifest; what is damaged or foreign is set aside and named, never deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from abc_nb import lora, paths
from abc_nb.config import from_data, to_data
from abc_nb.diagnosis import calibrate_model
from abc_nb.errors import InputError
from abc_nb.evaluation import evaluate
from abc_nb.experiments import Experiment
from abc_nb.files import write_text
from abc_nb.lines import Line, Lines
from abc_nb.model import Transformer
from abc_nb.training import Progress, Trainer

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
THREADS = 1  # fixed, so that a run can be repeated bit for bit; two runs at once use two cores
MANIFEST, CONFIG, WEIGHTS = "manifest.json", "config.json", "weights.safetensors"
HISTORY, EVALUATION, CHECKPOINT = "history.csv", "evaluation.csv", "checkpoint.safetensors"
BIAS, SHARES = "bias.json", "shares.csv"  # of a calibrated run: its lines, and the thresholds that were tried


class DamagedRun(Exception):
    """A run folder that does not hold what its manifest says."""


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

    def problems(self) -> int:
        """How many problems the training went through; unlike seconds, the same on any machine."""
        config, steps = self.experiment.training, int(self.manifest["steps"])
        history: list[Any] = self.history().to_dict("records")
        held = min(steps, Progress(history=history).fall(config)[0])
        return held * config.held_batch + (steps - held) * config.batch

    @property
    def has_weights(self) -> bool:
        return WEIGHTS in self.manifest["files"]

    def bias(self) -> Lines | None:
        """The calibrated bias, or None for a run that has none."""
        path = self.folder / BIAS
        return read_bias(path) if path.exists() else None

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        if not self.has_weights:
            name, seed = self.experiment.name, f" --seed {self.seed}" if self.seed else ""
            raise InputError(f"{name} was shipped without its weights: run `abc-nb train {name}{seed}` first")
        model = build_model(self.experiment, self.seed, self.bias())
        try:
            model.load_state_dict(load_file(self.folder / WEIGHTS))
        except (SafetensorError, RuntimeError) as error:
            raise InputError(f"{self.folder / WEIGHTS} does not hold the weights of this model") from error
        return model.eval()


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
    return f"CPU ({model}, {os.cpu_count()} cores)"


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
    parent = find(experiment.parent, seed)
    if parent is None or not parent.has_weights:
        parent = ensure(experiment.parent, seed)
    start = time.perf_counter()
    model = build_model(experiment, seed, calibrated_bias(experiment, parent, partial))
    if experiment.warm:
        model.load_state_dict(load_file(parent.folder / WEIGHTS))
    if experiment.rank:
        lora.adapt(model, experiment.rank, seed)
    facts = {"run": parent.folder.name, "weights": parent.manifest["files"][WEIGHTS]}
    facts["seconds"] = parent.manifest["seconds"]["training"]
    return model, {"parent": facts, "calibration_seconds": round(time.perf_counter() - start, 3)}


def calibrated_bias(experiment: Experiment, parent: Run, partial: Path) -> Lines | None:
    """The bias read out of the parent's attention, kept in `partial` so that a resumed run goes on with it."""
    if experiment.calibration is None:
        return None
    path = partial / BIAS
    with suppress(OSError, ValueError, TypeError, InputError):  # not there yet, or damaged: read anew
        return read_bias(path)
    batch = parent.experiment.sampler.calibration_batch(parent.seed)
    found = calibrate_model(parent.model().to(device()), batch, experiment.calibration)
    write_text(partial / SHARES, found.tried.to_csv(index=False))
    write_text(path, json.dumps(to_data(found.bias), indent=1) + "\n")
    return found.bias


def read_bias(path: Path) -> Lines:
    bias: Lines = from_data(json.loads(path.read_text()), (Lines, Line))
    return bias


def find(experiment: Experiment, seed: int, origins: Sequence[str] = ANYWHERE) -> Run | None:
    """The finished run, from the first of `origins` that has it; a damaged one is set aside with a warning."""
    for origin in origins:
        folder = (paths.SHIPPED if origin == "shipped" else paths.runs()) / experiment.key(seed)
        if not folder.exists():
            continue
        try:
            return Run(experiment, seed, folder, read_manifest(folder, experiment, seed))
        except DamagedRun as error:
            where = set_aside(folder) if origin == "runs" else folder
            warnings.warn(f"{error}; it is kept in {where}", stacklevel=2)
    return None


def read_manifest(folder: Path, experiment: Experiment, seed: int) -> dict[str, Any]:
    """The manifest, once every file it names has been checked against it."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        config = json.loads((folder / CONFIG).read_text())
        files = dict(manifest["files"])
        if manifest["checksum"] != fingerprint(manifest):
            raise ValueError(f"{MANIFEST} is not what was written")
        wrong = [name for name, checksum in files.items() if sha256(folder / name) != checksum]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedRun(f"the run in {folder.name} is damaged ({error})") from error
    if wrong:
        raise DamagedRun(f"the run in {folder.name} is damaged: {wrong[0]} is not what was written")
    if config != experiment.data | {"seed": seed}:
        raise DamagedRun(f"the folder {folder.name} holds another experiment")
    return manifest


def set_aside(folder: Path) -> Path:
    """Move a folder out of the way and say where to."""
    target = paths.runs() / ".set-aside" / f"{folder.name}-{time.time_ns()}"
    target.parent.mkdir(parents=True, exist_ok=True)
    return folder.rename(target)


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
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, partial / WEIGHTS)
    pd.DataFrame(progress.history).to_csv(partial / HISTORY, index=False)
    rows.to_csv(partial / EVALUATION, index=False)
    write_json(partial / CONFIG, experiment.data | {"seed": seed})
    for leftover in (*partial.glob("checkpoint.*"), *partial.glob(".*.tmp")):
        leftover.unlink()
    write_manifest(partial, {"steps": progress.step, "seconds": seconds} | origin | environment())
    final = paths.runs() / key
    partial.rename(final)
    return Run(experiment, seed, final, read_manifest(final, experiment, seed))


def environment() -> dict[str, Any]:
    """What a result should be read with: device, versions, date."""
    packages = {name: version(name) for name in ("torch", "numpy", "pandas", "safetensors")}
    return {
        "device": device_name(),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), **packages},
        "date": datetime.now(UTC).date().isoformat(),
        "shipped": False,
    }


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write the manifest, with the checksum of every other file of the folder."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    facts = {name: value for name, value in facts.items() if name not in ("files", "checksum")} | {"files": files}
    write_json(folder / MANIFEST, facts | {"checksum": fingerprint(facts)})


def fingerprint(manifest: dict[str, Any]) -> str:
    """The checksum of a manifest: of everything in it but the checksum itself."""
    facts = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ship(run: Run, weights: bool) -> Path:
    """Copy a run into the shipped results, labelled as such, with its weights only if asked."""
    target = paths.SHIPPED / run.folder.name
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(run.folder, temporary, ignore=None if weights else shutil.ignore_patterns(WEIGHTS))
    write_manifest(temporary, run.manifest | {"shipped": True})
    shutil.rmtree(target, ignore_errors=True)
    return temporary.rename(target)
