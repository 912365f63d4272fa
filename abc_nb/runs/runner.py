"""Making a run: trained after its parent or resumed, evaluated, and moved into the store in one step."""

import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pandas as pd
import torch

from abc_nb.common import paths
from abc_nb.common.devices import device, device_name, one_thread
from abc_nb.model import compiled
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.runs.trainings import Trained, train_run
from abc_nb.specs.experiment import BaseSpec
from abc_nb.training.fit import Report

PACKAGES = ("torch", "numpy", "pandas", "safetensors")


def ensure(spec: BaseSpec, seed: int, report: Report | None = None) -> Run:
    """The finished run, trained now if it is not there. Two processes do not do it twice."""
    run = store.find(spec, seed, ("runs",))
    if run is not None:
        return run
    with store.lock(spec.key(seed)):
        return store.find(spec, seed, ("runs",)) or make(spec, seed, report)


def untrained(spec: BaseSpec, seed: int) -> list[BaseSpec]:
    """The trainings that a run made here still needs, in order: none, or its own after those of missing parents."""
    if store.find(spec, seed, ("runs",)):
        return []
    parent_needed = spec.parent and not store.with_weights(spec.parent, seed)
    return [*(untrained(spec.parent, seed) if parent_needed else []), spec]


@one_thread()
def make(spec: BaseSpec, seed: int, report: Report | None = None) -> Run:
    """Train, or go on from the last checkpoint, evaluate, and move the folder into place once it is whole."""
    folder = paths.runs() / ".partial" / spec.key(seed)
    folder.mkdir(parents=True, exist_ok=True)
    parent = (store.with_weights(spec.parent, seed) or ensure(spec.parent, seed)) if spec.parent else None
    trained = train_run(spec, seed, parent, folder, report)
    begin = time.perf_counter()
    tables = {"evaluation": spec.evaluate(trained.model.to(device()), spec.tests)}
    seconds = {"training": round(trained.seconds, 2), "evaluation": round(time.perf_counter() - begin, 2)}
    tables |= {"history": pd.DataFrame(trained.history), "thresholds": trained.thresholds}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in trained.model.state_dict().items()}
    facts: dict[str, Any] = {"steps": trained.steps, "seconds": seconds}
    if parent is not None:
        parent_seconds = parent.facts["seconds"]["training"]
        facts["parent"] = {"run": parent.key, "weights": parent.checksum, "seconds": parent_seconds}
    facts |= dict(trained.facts) | environment(trained) | {"weights": store.tensors_checksum(tensors)}
    certificates = [asdict(certificate) for certificate in trained.certificates]
    store.write_run(store.record_of(spec, seed, facts, tables, trained.bias, certificates), tensors, folder)
    for checkpoint in folder.glob("*attempt-*"):  # and what a killed process has left of one
        checkpoint.unlink()
    return store.read_run(spec, seed, folder.rename(paths.runs() / spec.key(seed)))


def environment(trained: Trained) -> dict[str, Any]:
    """What a result should be read with: device, versions, date."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    by_c = not torch.cuda.is_available() and compiled.kernels(trained.model.config.head_size) is not None
    facts = {"device": device_name() + ", compiled attention" * by_c, "threads": torch.get_num_threads()}
    return facts | {"versions": versions, "date": datetime.now(UTC).date().isoformat()}
