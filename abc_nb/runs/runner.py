"""Making a run: from its parent or anew, trained or resumed, evaluated, and moved into the store in one step."""

import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from abc_nb.certificates.certify import contexts_of
from abc_nb.certificates.practice import practise
from abc_nb.common import paths
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
from abc_nb.training.fit import Report
from abc_nb.training.problems import train
from abc_nb.training.recipe import Validation

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
        own = practised(experiment, seed, parent, report)
    else:
        own = train_until_accepted(experiment, seed, parent, partial, report)
    start = time.perf_counter()
    results = evaluate(own.model.to(device()), experiment.sampler, experiment.tests)
    seconds = {"training": round(own.seconds, 2), "evaluation": round(time.perf_counter() - start, 2)}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in own.model.state_dict().items()}
    facts = {"steps": own.steps, "seconds": seconds} | origin(own, parent) | own.facts
    facts |= environment(experiment.model) | {"weights": checksum(tensors)}
    write_bytes(partial / store.WEIGHTS, save(packed(tensors)))
    results["asked"] = [samples for _, samples in experiment.tests]
    tables = {"evaluation": results[[*TABLES["evaluation"]]], "history": pd.DataFrame(own.history)}
    if own.bias is not None:
        tables["lines"] = pd.DataFrame(map(asdict, own.bias.lines))
        tables["thresholds"] = own.tried
    store.write_run(experiment, seed, partial, facts, tables)
    for checkpoint in partial.glob("*attempt-*"):  # and what a killed process has left of one
        checkpoint.unlink()
    folder = partial.rename(paths.runs() / experiment.key(seed))
    return store.read_run(experiment, seed, folder)


@dataclass(frozen=True)
class Trained:
    """A model whose training has ended, and what a run keeps of it."""

    model: Transformer
    bias: Lines | None  # read out of a parent's attention
    steps: int = 0
    seconds: float = 0.0  # of all attempts, as those of their calibrations
    calibration_seconds: float = 0.0
    history: Sequence[Validation] = ()
    tried: pd.DataFrame = field(default_factory=pd.DataFrame)  # thresholds
    facts: dict[str, Any] = field(default_factory=dict)  # of practice


def origin(own: Trained, parent: Run | None) -> dict[str, Any]:
    """The facts about where a model comes from."""
    if parent is None:
        return {}
    seconds = parent.manifest["seconds"]["training"]
    facts: dict[str, Any] = {"parent": {"run": parent.key, "weights": parent.checksum, "seconds": seconds}}
    facts["calibration_seconds"] = round(own.calibration_seconds, 3)
    if (bias := own.bias) is not None:
        facts["bias"] = {"heads": bias.heads, "floor": bias.floor, "empty": bias.empty}
    return facts


def environment(model: ModelConfig) -> dict[str, Any]:
    """What a result should be read with: device, versions, date."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    own = not torch.cuda.is_available() and compiled.kernels(model.head_size) is not None
    where = device_name() + ", compiled attention" * own
    facts = {"device": where, "threads": torch.get_num_threads(), "versions": versions}
    return facts | {"date": datetime.now(UTC).date().isoformat(), "shipped": False}


def train_until_accepted(
    experiment: Spec, seed: int, parent: Run | None, partial: Path, report: Report | None
) -> Trained:
    """Train; while validation is below what is accepted, read more lines and train anew; the best attempt."""
    best, highest, seconds = None, -1.0, 0.0
    validated: dict[int, float] = {}  # by the row of the threshold whose lines were trained
    for number, (bias, thresholds, calibrating) in enumerate(readings(experiment, seed, parent)):
        model = start(experiment, seed, bias, parent)
        checkpoint = partial / f"attempt-{number}.pt"
        progress = train(model, experiment.sampler, experiment.training, seed, checkpoint, report)
        lora.merge(model)
        seconds += progress.seconds
        tried = thresholds.assign(validation=pd.Series(validated, dtype=float))
        own = Trained(model, bias, progress.step, seconds, calibrating, progress.history, tried)
        validation = progress.history[-1]["accuracy"] if progress.history else 0.0
        if validation > highest:
            best, highest = own, validation
        validated[len(thresholds) - 1] = validation
        if validation >= experiment.accept:
            break
    assert best is not None
    return replace(best, seconds=own.seconds, calibration_seconds=own.calibration_seconds)


def readings(experiment: Spec, seed: int, parent: Run | None) -> Iterator[tuple[Lines | None, pd.DataFrame, float]]:
    """The bias of each attempt, all thresholds so far, and the seconds of all calibrations so far.

    Only an experiment that chooses its threshold itself has more lines to read.
    """
    settings = experiment.calibration
    if parent is None or settings is None:
        yield None, pd.DataFrame(), 0.0
        return
    model, batch = parent.model().to(device()), experiment.calibration_batch(seed)
    lines, tried, seconds, more = None, pd.DataFrame(), 0.0, [settings]
    for wanted in more:  # grows once
        start = time.perf_counter()
        found = lines_of(experiment, model, batch, wanted)
        tried, seconds = pd.concat([tried, found.tried], ignore_index=True), seconds + time.perf_counter() - start
        if wanted.share is None and wanted.kappa is None:
            more += [replace(settings, share=share) for share in SHARES if share < found.tried.share.iloc[-1]]
        if {*found.bias.lines} != lines:
            yield found.bias, tried, seconds
            lines = {*found.bias.lines}


def lines_of(experiment: Spec, model: Transformer, batch: Batch, settings: Calibration) -> Calibrated:
    """The lines that the settings ask for; of a bias that has to determine the answer all contexts are asked."""
    if not isinstance(settings, Determining):
        return calibrate_model(model, batch, settings)

    def determines(bias: Lines) -> float:
        return float(contexts_of(experiment.under(bias), experiment.sampler).determined())

    averages = average_attention(model, batch, settings.source)
    return sparsest(averages, batch.layout, settings, determines, (1.0, 0.7, *SHARES))


def start(experiment: Spec, seed: int, bias: Lines | None, parent: Run | None) -> Transformer:
    """The model to train: a new one, or one with the parent's weights."""
    model = experiment.build(seed, bias)
    if experiment.start == "parent" and parent is not None:
        model.load_state_dict(parent.state())
    if experiment.rank:
        lora.adapt(model, experiment.rank, seed)
    return model.to(device())


def practised(experiment: Spec, seed: int, parent: Run, report: Report | None) -> Trained:
    """The parent's model, trained on until its certificate, which is written, holds; as it is if it can have none."""
    bias = parent.bias()
    model = start(experiment, seed, bias, parent)
    config = replace(experiment.training, steps=max(1, experiment.training.steps // experiment.practice))
    try:
        found = practise(model, experiment.sampler, config, seed, experiment.practice, report)
    except InputError as error:
        return Trained(model, bias, facts={"practice": {"rounds": 0, "refused": str(error)}})
    files.write(found.certificates[0], experiment.name, seed, experiment.profile)
    progress, facts = found.progress, {"practice": found.facts}
    return Trained(model, bias, progress.step, progress.seconds, history=progress.history, facts=facts)
