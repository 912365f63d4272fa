"""Making a run: from its parent or anew, trained or resumed, evaluated, and moved into the store in one step."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_file, save

from abc_nb.bias.lines import Lines
from abc_nb.calibration.of_model import SHARES, calibrate_model
from abc_nb.certificates.repair import Repair
from abc_nb.common import paths
from abc_nb.common.config import to_data
from abc_nb.common.devices import device, device_name, one_thread
from abc_nb.common.files import write_bytes, write_text
from abc_nb.experiments.experiment import Experiment
from abc_nb.model import compiled, lora
from abc_nb.model.transformer import Transformer
from abc_nb.runs.manifest import (
    BIAS,
    CONFIG,
    EVALUATION,
    FILES,
    HISTORY,
    MANIFEST,
    THRESHOLDS,
    WEIGHTS,
    DamagedRun,
    environment,
    read_json,
    read_manifest,
    write_json,
    write_manifest,
)
from abc_nb.runs.run import Outcome, Run
from abc_nb.runs.store import find, lock, read_bias, read_run, set_aside, write_tests
from abc_nb.training.evaluation import evaluate
from abc_nb.training.progress import Progress
from abc_nb.training.trainer import Trainer

CHECKPOINT = "checkpoint.pt"
BEST, FACTS_FILE = "best", "facts.json"  # the attempt that is best in validation so far
ORIGIN = "origin.json"  # of an unfinished run: which weights it began with, and the manifest of its bias


def ensure(experiment: Experiment, seed: int, report: Callable[[Progress], None] | None = None) -> Run:
    """The finished run, trained now if it is not there, and tested on what was not tested yet.

    Two processes do not do it twice.
    """
    run = find(experiment, seed, ("runs",))
    if run is not None and not run.untested():
        return run
    with lock(experiment.key(seed)):
        run = find(experiment, seed, ("runs",)) or train(experiment, seed, report)
        return add_tests(run) if run.untested() else run


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
    facts = train_until_accepted(experiment, seed, partial, report)
    model = experiment.build(seed, kept_bias(partial / BEST, experiment))
    model.load_state_dict(load_file(partial / BEST / WEIGHTS))
    rows, facts["seconds"]["evaluation"] = timed_tests(model, experiment, experiment.tests)
    write_tests(partial / EVALUATION, rows)
    take_best(partial)
    write_json(partial / CONFIG, experiment.data | {"seed": seed})
    write_manifest(partial, facts | environment(device_name() + compiled.note()))


def timed_tests(
    model: Transformer, experiment: Experiment, tests: Sequence[tuple[int, int]]
) -> tuple[list[Outcome], float]:
    """The results of tests (length, samples), and the seconds that they took."""
    start = time.perf_counter()
    found = evaluate(model.to(device()), experiment.sampler, tests)
    counts = zip(tests, found["samples"], found["correct"], strict=True)
    rows = [Outcome(length, asked, int(samples), int(correct)) for (length, asked), samples, correct in counts]
    return rows, round(time.perf_counter() - start, 2)


@one_thread()
def add_tests(run: Run) -> Run:
    """The same run with the tests that its experiment asks for by now; nothing is trained.

    The new folder is written whole beside the old one and takes its place. Killed in between, the run is taken up
    where `train` finds it.
    """
    partial = paths.runs() / ".partial" / run.key
    replaced = partial.with_name(f"{run.key}.replaced")
    for leftover in (partial, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    rows, seconds = timed_tests(run.model(), run.experiment, run.untested())
    shutil.copytree(run.folder, partial)
    write_tests(partial / EVALUATION, [*run.source.tests(), *rows])
    spent = run.manifest["seconds"]
    spent = spent | {"evaluation": round(spent["evaluation"] + seconds, 2)}
    write_manifest(partial, run.manifest | {"seconds": spent})
    run.folder.rename(replaced)
    found = read_run(run.experiment, run.seed, partial.rename(run.folder))
    shutil.rmtree(replaced, ignore_errors=True)
    return found


def train_until_accepted(
    experiment: Experiment, seed: int, partial: Path, report: Callable[[Progress], None] | None
) -> dict[str, Any]:
    """Train; while validation is below what the experiment accepts, read more lines and train anew.

    What is best in validation is left in the folder BEST, its weights, history and lines; the facts about it are
    returned. Only an experiment that chooses its threshold itself has more lines to read.
    """
    while True:
        model, origin = prepare(experiment, seed, partial)
        trainer = trainer_of(experiment, model.to(device()), seed)
        progress = trainer.run(partial / CHECKPOINT, report)
        origin |= {"repair": trainer.facts} if isinstance(trainer, Repair) else {}
        lora.merge(model)
        validation = progress.history[-1]["accuracy"] if progress.history else 0.0
        best = keep_if_best(partial, model, progress, origin, validation)
        if validation >= experiment.accept or not read_more_lines(experiment, seed, partial, validation):
            return {name: fact for name, fact in best.items() if name not in ("validation", "attempts")}


def trainer_of(experiment: Experiment, model: Transformer, seed: int) -> Trainer:
    settings = model, experiment.sampler, experiment.training, seed
    return Repair(*settings, experiment.rounds) if experiment.rounds else Trainer(*settings)


def take_best(partial: Path) -> None:
    """Put the best attempt's files among the run's: last of all, since until then the last attempt can be resumed."""
    for name in (WEIGHTS, HISTORY, THRESHOLDS, BIAS):
        if (partial / BEST / name).exists():
            write_bytes(partial / name, (partial / BEST / name).read_bytes())


def keep_if_best(
    partial: Path, model: Transformer, progress: Progress, origin: dict[str, Any], validation: float
) -> dict[str, Any]:
    """Keep an attempt beside the run if no earlier one is as good in validation; the facts about the best are returned.

    Seconds are those of all attempts, each counted once however often it is resumed.
    """
    folder = partial / BEST
    known = (read_json(folder / FACTS_FILE) if (folder / FACTS_FILE).exists() else None) or {}
    number = len(pd.read_csv(partial / THRESHOLDS)) if (partial / THRESHOLDS).exists() else 0  # grows with each attempt
    attempts = known.get("attempts", {}) | {str(number): progress.seconds}
    if not known or validation > known["validation"]:
        tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        write_bytes(folder / WEIGHTS, save(tensors))
        write_text(folder / HISTORY, pd.DataFrame(progress.history).to_csv(index=False))
        for name in (BIAS, THRESHOLDS):
            if (partial / name).exists():
                write_bytes(folder / name, (partial / name).read_bytes())
        known = {"steps": progress.step, "validation": validation} | origin
    if "calibration_seconds" in origin:
        known["calibration_seconds"] = origin["calibration_seconds"]
    known |= {"attempts": attempts, "seconds": {"training": round(sum(attempts.values()), 2)}}
    write_json(folder / FACTS_FILE, known)
    return known


def read_more_lines(experiment: Experiment, seed: int, partial: Path, validation: float) -> bool:
    """Lower the threshold to the next share that gives other lines; False if there is none, or nothing to choose."""
    settings = experiment.calibration
    if settings is None or settings.share is not None or settings.kappa is not None or experiment.parent is None:
        return False
    start, tried = time.perf_counter(), pd.read_csv(partial / THRESHOLDS)
    tried.loc[tried.index[-1], "validation"] = validation
    before = read_bias(partial / BIAS, experiment.model.heads)
    parent, batch = ensure_weights(experiment.parent, seed), experiment.calibration_batch(seed)
    for share in [share for share in SHARES if share < tried.share.iloc[-1]]:
        found = calibrate_model(parent.model().to(device()), batch, replace(settings, share=share))
        tried = pd.concat([tried, found.tried], ignore_index=True)
        if {*found.bias.lines} != {*before.lines}:
            (partial / CHECKPOINT).unlink(missing_ok=True)  # first: the next attempt begins anew
            seconds = read_manifest(partial, ORIGIN)["seconds"] + time.perf_counter() - start
            write_origin(partial, parent, found.bias, tried, seconds)
            return True
    return False


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
    parent = ensure_weights(experiment.parent, seed)
    origin = kept_origin(parent, partial) or begin(experiment, parent, partial)
    model = experiment.build(seed, kept_bias(partial, experiment))
    if experiment.warm:
        parent.restore(model)
    if experiment.rank:
        lora.adapt(model, experiment.rank, seed)
    facts: dict[str, Any] = {"run": parent.key, "weights": parent.checksum}
    facts["seconds"] = parent.manifest["seconds"]["training"]
    return model, {"parent": facts, "calibration_seconds": origin["seconds"]}


def kept_bias(folder: Path, experiment: Experiment) -> Lines | None:
    """The bias that was read out of a parent's attention, or out of that of the model to repair; None if none was."""
    return read_bias(folder / BIAS, experiment.model.heads) if (folder / BIAS).exists() else None


def begin(experiment: Experiment, parent: Run, partial: Path) -> dict[str, Any]:
    """Keep in `partial` what a resumed run goes on with: the parent's weights by name, the bias read out of them."""
    if experiment.calibration is None:
        return write_origin(partial, parent, parent.bias() if experiment.rounds else None, None, 0.0)
    start = time.perf_counter()
    batch = experiment.calibration_batch(parent.seed)
    found = calibrate_model(parent.model().to(device()), batch, experiment.calibration)
    return write_origin(partial, parent, found.bias, found.tried, time.perf_counter() - start)


def write_origin(
    partial: Path, parent: Run, bias: Lines | None, tried: pd.DataFrame | None, seconds: float
) -> dict[str, Any]:
    """The bias of the next attempt, the thresholds tried so far, and the parent's weights by name."""
    if tried is not None:
        write_text(partial / THRESHOLDS, tried.to_csv(index=False))
    if bias is not None:
        write_json(partial / BIAS, to_data(bias))
    origin = {"weights": parent.checksum, "seconds": round(seconds, 3)}
    write_manifest(partial, origin, ORIGIN, (BIAS, THRESHOLDS))
    return origin


def ensure_weights(experiment: Experiment, seed: int) -> Run:
    """A finished run from which training can go on, made now if there is none."""
    return with_weights(experiment, seed) or ensure(experiment, seed)


def kept_origin(parent: Run, partial: Path) -> dict[str, Any] | None:
    """What an interrupted run began with, if it was this parent; what is damaged, or another's, is set aside."""
    tried = (partial / BEST).exists()  # one attempt at least: the checkpoint can be that of a later one
    if not (partial / ORIGIN).exists() and not tried:
        return None
    names = [BIAS, THRESHOLDS, ORIGIN, *([CHECKPOINT] if tried else [])]
    try:
        origin = read_manifest(partial, ORIGIN)
        if origin["weights"] == parent.checksum:
            return origin
        names.append(CHECKPOINT)
        error = f"{parent.experiment.name} was trained anew since {partial.name} began"
    except DamagedRun as damage:
        error = str(damage)
    shutil.rmtree(partial / BEST, ignore_errors=True)
    where = set_aside(partial, names)
    warnings.warn(f"{error}; it is kept in {where}, and begun anew", stacklevel=2)
    return None


def clear(partial: Path) -> None:
    """Leave only a run's files, once they are all there; a damaged checkpoint is kept elsewhere."""
    shutil.rmtree(partial / BEST, ignore_errors=True)
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
    """What is to be made for a run made here, in order: nothing, or the run, after a parent that is nowhere.

    A run that is there and lacks a test is to be made, too, which trains nothing.
    """
    run = find(experiment, seed, ("runs",))
    if run is not None:
        return [experiment] if run.untested() else []
    parent = experiment.parent
    return [parent, experiment] if parent is not None and with_weights(parent, seed) is None else [experiment]
