"""Making a run: from its parent or anew, trained or resumed, evaluated, and moved into the store in one step."""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import save

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration, Determining
from abc_nb.calibration.of_model import SHARES, Calibrated, average_attention, calibrate_model, sparsest
from abc_nb.certificates import files
from abc_nb.certificates.certify import contexts_under
from abc_nb.certificates.practice import practise
from abc_nb.common import paths
from abc_nb.common.config import to_data
from abc_nb.common.devices import device, device_name, one_thread
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes
from abc_nb.model import compiled, lora
from abc_nb.model.eight_bits import packed
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.runs.run import TABLES, Run, checksum
from abc_nb.specs.spec import Spec
from abc_nb.training.evaluation import evaluate
from abc_nb.training.progress import Progress
from abc_nb.training.trainer import Trainer

Report = Callable[[Progress], None]
PACKAGES = ("torch", "numpy", "pandas", "safetensors")


def ensure(experiment: Spec, seed: int, report: Report | None = None) -> Run:
    """The finished run, trained now if it is not there. Two processes do not do it twice."""
    run = store.find(experiment, seed, ("runs",))
    if run is not None:
        return run
    with store.lock(experiment.key(seed)):
        return store.find(experiment, seed, ("runs",)) or make(experiment, seed, report)


def untrained(experiment: Spec, seed: int) -> list[Spec]:
    """What is to be made for a run made here, in order: nothing, or the run, after parents that are nowhere."""
    if store.find(experiment, seed, ("runs",)):
        return []
    parent = experiment.parent
    return [*(untrained(parent, seed) if parent and not store.with_weights(parent, seed) else []), experiment]


@one_thread()
def make(experiment: Spec, seed: int, report: Report | None = None) -> Run:
    """Train, or go on from the last checkpoint, evaluate, and move the folder into place once it is whole."""
    partial = paths.runs() / ".partial" / experiment.key(seed)
    partial.mkdir(parents=True, exist_ok=True)
    above = experiment.parent
    parent = (store.with_weights(above, seed) or ensure(above, seed)) if above else None
    if experiment.practice and parent is not None:
        best = practised(experiment, seed, parent, report)
    else:
        best = train_until_accepted(experiment, seed, parent, partial, report)
    start = time.perf_counter()
    results = evaluate(best.model.to(device()), experiment.sampler, experiment.tests)
    seconds = {"training": best.seconds, "evaluation": round(time.perf_counter() - start, 2)}
    asked = [samples for _, samples in experiment.tests]
    tensors = {name: tensor.cpu().contiguous() for name, tensor in best.model.state_dict().items()}
    facts = {"steps": best.steps, "seconds": seconds} | best.facts
    facts |= environment(experiment.model) | {"weights": checksum(tensors)}
    write_bytes(partial / store.WEIGHTS, save(packed(tensors)))
    tables = best.tables | {"evaluation": results.assign(asked=asked)[[*TABLES["evaluation"]]]}
    store.write_run(experiment, seed, partial, facts, tables)
    for checkpoint in partial.glob("attempt-*"):
        checkpoint.unlink()
    folder = partial.rename(paths.runs() / experiment.key(seed))
    return store.read_run(experiment, seed, folder)


def environment(model: ModelConfig) -> dict[str, Any]:
    """What a result should be read with: device, versions, date."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    where = device_name() + compiled.note(model.head_size)
    facts = {"device": where, "threads": torch.get_num_threads(), "versions": versions}
    return facts | {"date": datetime.now(UTC).date().isoformat(), "shipped": False}


@dataclass(frozen=True)
class Attempt:
    """A finished training: the model, and what a run keeps of it."""

    model: Transformer
    validation: float
    steps: int
    seconds: float  # of all attempts so far
    facts: dict[str, Any]
    tables: dict[str, pd.DataFrame]


def train_until_accepted(
    experiment: Spec, seed: int, parent: Run | None, partial: Path, report: Report | None
) -> Attempt:
    """Train; while validation is below what is accepted, read more lines and train anew; the best attempt."""
    best, seconds, validation = None, 0.0, 0.0
    tried = pd.DataFrame()
    for number, reading in enumerate(readings(experiment, seed, parent)):
        if number:
            tried.loc[tried.index[-1], "validation"] = validation
        tried = pd.concat([tried, reading.tried], ignore_index=True)
        model = start(experiment, seed, reading.bias, parent)
        trainer = Trainer(model, experiment.sampler, experiment.training, seed)
        checkpoint = partial / f"attempt-{number}.pt"
        progress = trainer.run(checkpoint, report)
        trainer.save(checkpoint)
        lora.merge(model)
        seconds += progress.seconds
        validation = progress.history[-1]["accuracy"] if progress.history else 0.0
        if best is None or validation > best.validation:
            facts, tables = origin(parent, reading), {"history": pd.DataFrame(progress.history)}
            best = Attempt(model, validation, progress.step, seconds, facts, tables | line_tables(reading, tried))
        if validation >= experiment.accept:
            break
    assert best is not None
    of_all = {"calibration_seconds": reading.seconds} if parent else {}
    return replace(best, seconds=round(seconds, 2), facts=best.facts | of_all)


@dataclass(frozen=True)
class Reading:
    """The bias of an attempt: read out of a parent's attention, that of the model to practise, or none."""

    bias: Lines | None = None
    tried: pd.DataFrame = field(default_factory=pd.DataFrame)  # thresholds
    seconds: float = 0.0  # of all calibrations so far


def readings(experiment: Spec, seed: int, parent: Run | None) -> Iterator[Reading]:
    """The bias of each attempt. Only an experiment that chooses its threshold itself has more lines to read."""
    settings = experiment.calibration
    if parent is None or settings is None:
        yield Reading()
        return
    model, batch = parent.model().to(device()), experiment.calibration_batch(seed)
    lines, tried, seconds, more = None, pd.DataFrame(), 0.0, [settings]
    for wanted in more:  # grows once
        start = time.perf_counter()
        found = lines_of(experiment, model, batch, wanted)
        tried, seconds = pd.concat([tried, found.tried]), seconds + time.perf_counter() - start
        if wanted.share is None and wanted.kappa is None:
            more += [replace(settings, share=share) for share in SHARES if share < found.tried.share.iloc[-1]]
        if {*found.bias.lines} != lines:
            yield Reading(found.bias, tried, round(seconds, 3))
            lines, tried = {*found.bias.lines}, pd.DataFrame()


def lines_of(experiment: Spec, model: Transformer, batch: Batch, settings: Calibration) -> Calibrated:
    """The lines that the settings ask for; of a bias that has to determine the answer all contexts are asked."""
    if not isinstance(settings, Determining):
        return calibrate_model(model, batch, settings)

    def determines(bias: Lines) -> float:
        return float(contexts_under(experiment.under(bias), experiment.sampler).determined())

    averages = average_attention(model, batch, settings.source)
    return sparsest(averages, batch.layout, settings, determines, (1.0, 0.7, *SHARES))


def start(experiment: Spec, seed: int, bias: Lines | None, parent: Run | None) -> Transformer:
    """The model to train: a new one, or one with the parent's weights."""
    model = experiment.build(seed, bias)
    if experiment.start == "parent" and parent is not None:
        parent.restore(model)
    if experiment.rank:
        lora.adapt(model, experiment.rank, seed)
    return model.to(device())


def practised(experiment: Spec, seed: int, parent: Run, report: Report | None) -> Attempt:
    """The parent's model, trained on until its certificate, which is written, holds; as it is if it can have none."""
    reading = Reading(parent.bias())
    model = start(experiment, seed, reading.bias, parent)
    config = replace(experiment.training, steps=max(1, experiment.training.steps // experiment.practice))
    facts, tables = origin(parent, reading), line_tables(reading, reading.tried)
    try:
        found = practise(model, experiment.sampler, config, seed, experiment.practice, report)
    except InputError as error:
        return Attempt(model, 0.0, 0, 0.0, facts | {"practice": {"rounds": 0, "refused": str(error)}}, tables)
    files.write(found.certificates[-1][0], experiment.name, seed, experiment.profile)
    tables["history"] = pd.DataFrame(found.progress.history)
    progress = found.progress
    facts |= {"practice": found.facts}
    return Attempt(model, progress.history[-1]["accuracy"], progress.step, round(progress.seconds, 2), facts, tables)


def origin(parent: Run | None, reading: Reading) -> dict[str, Any]:
    """The facts about where a model comes from."""
    if parent is None:
        return {}
    seconds = parent.manifest["seconds"]["training"]
    facts: dict[str, Any] = {"parent": {"run": parent.key, "weights": parent.checksum, "seconds": seconds}}
    facts["calibration_seconds"] = reading.seconds
    if (bias := reading.bias) is not None:
        facts["bias"] = {"heads": bias.heads, "floor": bias.floor, "empty": bias.empty}
    return facts


def line_tables(reading: Reading, tried: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of a run's lines and, where thresholds were tried for them, of these."""
    if reading.bias is None:
        return {}
    lines = pd.DataFrame([to_data(line) for line in reading.bias.lines]).drop(columns="type", errors="ignore")
    return {"lines": lines} | ({"thresholds": tried.copy()} if "share" in tried else {})
