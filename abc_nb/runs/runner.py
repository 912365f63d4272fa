"""Making a run: from its parent or anew, trained or resumed, evaluated, and moved into the store in one step."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save

from abc_nb.model import lora
from abc_nb.common import paths
from abc_nb.common.config import to_data
from abc_nb.common.devices import device, device_name, one_thread
from abc_nb.training.evaluation import evaluate
from abc_nb.experiments.experiment import Experiment
from abc_nb.common.files import write_bytes, write_text
from abc_nb.runs.manifest import BIAS, CONFIG, EVALUATION, FILES, HISTORY, MANIFEST, SHARES, WEIGHTS, DamagedRun, environment, read_manifest, write_json, write_manifest
from abc_nb.model.transformer import Transformer
from abc_nb.calibration.of_model import calibrate_model
from abc_nb.runs.store import Run, find, lock, read_bias, read_run, set_aside
from abc_nb.training.progress import Progress
from abc_nb.training.trainer import Trainer

CHECKPOINT = "checkpoint.safetensors"
ORIGIN = "origin.json"  # of an unfinished run: which weights it began with, and the manifest of its bias


def ensure(experiment: Experiment, seed: int, report: Callable[[Progress], None] | None = None) -> Run:
    """The finished run, trained now if it is not there; two processes do not train it twice."""
    run = find(experiment, seed, ("runs",))
    if run is not None:
        return run
    with lock(experiment.key(seed)):
        return find(experiment, seed, ("runs",)) or train(experiment, seed, report)


def train(experiment: Experiment, seed: int, report: Callable[[Progress], None] | None = None) -> Run:
    """Fill a folder, unless an earlier process did it and ended then, and move it into place."""
    key = experiment.key(seed)
    partial = paths.runs() / ".partial" / key
    partial.mkdir(parents=True, exist_ok=True)
    if not is_whole(experiment, seed, partial):
        fill(experiment, seed, partial, report)
    clear(partial)
    return read_run(experiment, seed, partial.rename(paths.runs() / key))


@one_thread()
def fill(experiment: Experiment, seed: int, partial: Path, report: Callable[[Progress], None] | None) -> None:
    """Train, or go on from the last checkpoint, evaluate, and write all that a run consists of."""
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


def is_whole(experiment: Experiment, seed: int, partial: Path) -> bool:
    """Whether nothing is left to be made."""
    try:
        return read_run(experiment, seed, partial).has_weights
    except DamagedRun:
        return False


def prepare(experiment: Experiment, seed: int, partial: Path) -> tuple[Transformer, dict[str, Any]]:
    """The model to train, and facts about where it comes from: a new one, or what its parent has learned."""
    if experiment.parent is None:
        return experiment.build(seed), {}
    parent = with_weights(experiment.parent, seed) or ensure(experiment.parent, seed)
    origin = kept_origin(parent, partial) or begin(experiment, parent, partial)
    bias = read_bias(partial / BIAS, experiment.model.heads) if experiment.calibration else None
    model = experiment.build(seed, bias)
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


def clear(partial: Path) -> None:
    """Leave only a run's files, once they are all there; a damaged checkpoint is kept elsewhere."""
    for path in partial.iterdir():
        if path.suffix == ".damaged":
            set_aside(partial, [path.name])
        elif path.name not in (MANIFEST, *FILES):
            path.unlink()


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
