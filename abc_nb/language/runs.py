"""Runs of language models: made once for a seed, kept as a record and a file of weights, made here or shipped."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load_file, save

from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.spans import SpanLines
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.common import paths
from abc_nb.common.config import from_data, to_data
from abc_nb.common.devices import device, device_name, one_thread
from abc_nb.common.errors import InputError
from abc_nb.common.files import read_lines, write_bytes, write_lines, write_text
from abc_nb.language.calibration import calibrated
from abc_nb.language.evaluation import evaluate, generated
from abc_nb.language.spec import LanguageSpec
from abc_nb.language.training import LanguageTrainer, practise_language, text_loss
from abc_nb.model.eight_bits import packed, round_weights, unpacked
from abc_nb.model.transformer import Transformer
from abc_nb.problems.spans import Pattern
from abc_nb.problems.tasks import Task
from abc_nb.training.trainer import Report

RECORDS = "language.jsonl"  # of the shipped runs, a line each


@dataclass(frozen=True)
class LanguageRun:
    """A finished run."""

    spec: LanguageSpec
    seed: int
    record: dict[str, Any]  # what was made: the spec, facts, history, results and certificates
    weights: Path

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError if its weights are damaged or were not shipped."""
        if not self.weights.exists():
            train = f"abc-nb train {self.spec.name} --seed {self.seed}"
            raise InputError(f"{self.spec.name}, seed {self.seed}, came without its weights: run `{train}`")
        types = (SpanLines, Pattern, Task, Lines, Line)
        bias = from_data(self.record["bias"], types) if self.record["bias"] else None
        model = self.spec.build(self.seed, bias)
        tensors = unpacked(load_file(self.weights))
        if checksum({name: tensor.numpy() for name, tensor in tensors.items()}) != self.record["weights"]:
            raise InputError(f"the weights in {self.weights} are not those of its run: train it again")
        model.load_state_dict(tensors)
        return model.eval()


def made_here(spec: LanguageSpec, seed: int) -> Path:
    """The record of a run that was made here; its weights' file differs in its ending."""
    return paths.runs() / "language" / f"{spec.key(seed)}.json"


def shipped() -> dict[str, dict[str, Any]]:
    """The records that come with the project, a line each, by the keys of their runs."""
    return {record["key"]: record for record in read_lines(paths.SHIPPED / RECORDS)}


def shipped_weights(key: str) -> Path:
    return paths.SHIPPED / "weights" / f"{key}.safetensors"


def find(spec: LanguageSpec, seed: int) -> LanguageRun | None:
    """The finished run, made here or shipped."""
    path, key = made_here(spec, seed), spec.key(seed)
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        return LanguageRun(spec, seed, record, path.with_suffix(".safetensors"))
    found = shipped().get(key)
    return LanguageRun(spec, seed, found, shipped_weights(key)) if found else None


def load(spec: LanguageSpec, seed: int) -> LanguageRun:
    """The same; InputError if there is none."""
    run = find(spec, seed)
    if run is None:
        raise InputError(f"{spec.name}, seed {seed}, is not trained yet: run `abc-nb train {spec.name} --seed {seed}`")
    return run


def ensure(spec: LanguageSpec, seed: int, report: Report | None = None) -> LanguageRun:
    """The finished run with its weights, trained now if it is not there; a killed training goes on."""
    path = made_here(spec, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        known = find(spec, seed)
        return known if known is not None and known.weights.exists() else make(spec, seed, path, report)


@one_thread()
def make(spec: LanguageSpec, seed: int, path: Path, report: Report | None) -> LanguageRun:
    """Train, round the weights to 8 bits, practise, evaluate, and write the record last."""
    checkpoint, bias = path.with_suffix(".pt"), None
    if spec.parent is not None and spec.calibration is not None:  # ABC, under lines of its parent
        bias = calibrated(ensure(spec.parent, seed).model(), spec.calibration, spec.mixture.longest, seed)
    model = spec.build(seed, bias).to(device())
    trainer = LanguageTrainer(model, spec.mixture, spec.training, seed)
    progress = trainer.run(checkpoint, report)
    trained = {"text": text_loss(model), "steps": progress.step, "seconds": round(progress.seconds, 1)}
    model = model.cpu()  # of which certificates speak
    round_weights(model)
    record: dict[str, Any] = {"key": spec.key(seed), "spec": spec.data, "seed": seed}
    record["bias"] = to_data(model.config.bias) if isinstance(model.config.bias, SpanLines) else None
    record |= {"trained": trained, "history": [*progress.history]}
    if spec.rounds:
        practised = practise_language(model, spec.mixture, spec.practice, seed, spec.rounds, report)
        record["wrong"] = [[each.wrong for each in own] for own in practised.certificates]
        record["certificates"] = [to_data(each) for each in practised.certificates[-1]]
        record["history"] += [row | {"step": progress.step + row["step"]} for row in practised.progress.history]
        record["practised"] = {
            "text": text_loss(model),
            "steps": practised.progress.step,
            "rounds": len(practised.certificates) - 1,
            "seconds": round(practised.progress.seconds, 1),
        }
    model.eval()
    record["text"] = text_loss(model, 256)
    record["evaluation"] = evaluate(model, spec.mixture.patterns)
    record["generated"] = generated(model, spec.mixture.patterns, seed)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    record |= {"weights": checksum(weights_of(model)), "device": device_name(), "versions": versions}
    write_bytes(path.with_suffix(".safetensors"), save(packed(tensors)))
    write_text(path, json.dumps(record) + "\n")
    checkpoint.unlink(missing_ok=True)
    return LanguageRun(spec, seed, record, path.with_suffix(".safetensors"))


def ship(run: LanguageRun) -> Path:
    """Copy a run to the results that come with the project: its record in the file of all, and its weights."""
    key = run.spec.key(run.seed)
    write_bytes(shipped_weights(key), run.weights.read_bytes())
    records = shipped() | {key: run.record}
    return write_lines(paths.SHIPPED / RECORDS, (records[each] for each in sorted(records)))
