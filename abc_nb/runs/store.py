"""The store: finished runs, those made here and those that come with the project.

A run is a record and a file of tensors, whatever the kind of its model. The record is one JSON object: `key` and whose
run it is, `spec` (the digest of all that it depends on), `facts`, `tables`, the `bias` that was read out of a parent's
attention, and its `certificates`.

runs/KEY/run.json, weights.safetensors   made here. A folder is finished or absent: it is moved into place in one step
results/runs.jsonl                       shipped, a line a record. Shipping appends, and the last line of a key counts
results/specs.jsonl                      what their digests stand for, a line each
results/weights/                         tensors of runs, whose names begin with seed0/, seed1/
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from abc_nb.bias import Bias, Lines
from abc_nb.bias.lines import Line
from abc_nb.bias.text import SpanLines
from abc_nb.common import paths
from abc_nb.common.config import from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes, write_text
from abc_nb.model.eight_bits import packed, unpacked
from abc_nb.model.transformer import Transformer
from abc_nb.problems.tasks import Task
from abc_nb.problems.text import Pattern
from abc_nb.specs.experiment import BaseSpec
from abc_nb.specs.names import how_to_train
from abc_nb.training.evaluation import with_intervals

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
RECORD, WEIGHTS = "run.json", "weights.safetensors"  # the files of a run's folder
RUNS, SPECS = "runs.jsonl", "specs.jsonl"  # the files of shipped runs
LINE_START = '{"key": "'  # what a line of `RUNS` begins with
TABLES: dict[str, dict[str, Any]] = {  # the columns that tables of that name have; some have more, or lack `asked`
    # A row a test: problems asked for, how many there are (fewer where no more exist), and how many are right.
    "evaluation": dict(length=int, asked=int, samples=int, correct=int),
    "history": dict(step=int, seconds=float, loss=float, accuracy=float),  # a row a validation
    "thresholds": dict(share=float, lines=int, skill=float, validation=float),  # that calibration tried
    "shortest": dict(problem=str, answer=str, right=str),  # wrong problem that a search found
}
Data = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The result of an experiment for one seed, made here or shipped."""

    spec: Any  # a `BaseSpec`: of arithmetic a `Spec`, of language a `LanguageSpec`
    seed: int
    record: Mapping[str, Any] = field(compare=False, repr=False)
    folder: Path  # of its files; of a shipped run, the folder of all shipped results
    weights: Path | None = None  # the file of its tensors; None where only its numbers were shipped
    prefix: str = ""  # what their names begin with there

    @property
    def key(self) -> str:
        return self.spec.key(self.seed)

    @property
    def shipped(self) -> bool:
        return self.folder.name != self.key

    @property
    def facts(self) -> Data:
        """Steps, seconds, device, versions, where the weights come from, and their checksum."""
        return dict(self.record["facts"])

    @property
    def certificates(self) -> list[Data]:
        """What trying every context gave, as plain data: one certificate, or one for each form of a language model."""
        return list(self.record.get("certificates", []))

    @property
    def checksum(self) -> str | None:
        """That of the weights; None where it is unknown."""
        return self.facts.get("weights")

    @property
    def validation(self) -> float:
        """Accuracy (a fraction) at the last validation; 0 if there was none."""
        history = self.table("history")
        return float(history.accuracy.iloc[-1]) if len(history) else 0.0

    def evaluation(self) -> pd.DataFrame:
        """A row for each length that was tested, of a language model for each task too, with its interval."""
        rows = self.table("evaluation").filter(["task", "length", "samples", "correct"])
        return with_intervals(rows).assign(experiment=self.spec.name, seed=self.seed, regime=self.spec.regime)

    def table(self, name: str) -> pd.DataFrame:
        """One of the tables in `TABLES`, which may be empty."""
        frame = pd.DataFrame(self.record["tables"].get(name, {column: [] for column in TABLES[name]}))
        return frame.astype({name: kind for name, kind in TABLES[name].items() if name in frame and kind is not str})

    def bias(self) -> Any:
        """The bias that was read out of a parent's attention, `Lines` or `SpanLines`; None for a run that has none."""
        data = self.record.get("bias")
        return None if data is None else from_data(by_row(data), (SpanLines, Pattern, Task, Lines, Line))

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        model: Transformer = self.spec.build(self.seed, self.bias())
        model.load_state_dict(self.state())
        return model.eval()

    def state(self) -> dict[str, Tensor]:
        """The trained weights; InputError if they are not there, or not those of this run."""
        if self.weights is None:
            raise InputError(f"{self.spec.name} was shipped without its weights: {how_to_train(self.spec, self.seed)}")
        tensors = weights_in(self.weights, self.prefix)
        if tensors_checksum(tensors) != self.checksum:
            raise InputError(f"{self.folder} does not hold the weights of {self.key}: train it again")
        return tensors


# ---- files of tensors, and their checksum


def weights_in(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The weights in a file whose names there begin with `prefix`; InputError for a file that holds none."""
    try:
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
            return unpacked({name.removeprefix(prefix): file.get_tensor(name) for name in names})
    except (SafetensorError, FileNotFoundError) as error:
        raise InputError(f"{path} holds no weights: remove it and train the run again") from error


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of weights, the same in whatever file they are kept."""
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in tensors.items()})).hexdigest()


# ---- records: the lines of a bias are written column by column, and so are tables


def record_of(
    spec: BaseSpec,
    seed: int,
    facts: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    bias: Bias | None = None,
    certificates: Sequence[Mapping[str, Any]] = (),
) -> Data:
    """The record of a run as plain data; tables by the names in `TABLES`, without those that are empty."""
    identity = spec.identity
    record: Data = {"key": spec.key(seed), "task": identity.task, "model": identity.model, "base": identity.base}
    record |= {"profile": spec.profile, "changes": [*spec.changes], "seed": seed, "spec": spec.digest}
    record |= {"facts": dict(facts), "tables": {}}
    for name, frame in tables.items():
        if len(frame):
            record["tables"][name] = frame.astype(object).where(frame.notna(), None).to_dict("list")
    if bias is not None:
        record["bias"] = by_column(to_data(bias))
    if certificates:
        record["certificates"] = [*certificates]
    return record


def by_column(data: Any) -> Any:
    """Plain data in which every list of lines is a table: a list for each field."""
    if isinstance(data, dict):
        return {name: by_column(value) for name, value in data.items()}
    if isinstance(data, list) and data and isinstance(data[0], dict) and data[0].get("type") == "Line":
        return {name: [line[name] for line in data] for name in data[0] if name != "type"}
    return [by_column(item) for item in data] if isinstance(data, list) else data


def by_row(data: Any) -> Any:
    """The inverse of `by_column`."""
    if isinstance(data, dict) and "type" not in data:
        return [{"type": "Line"} | dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    if isinstance(data, dict):
        return {name: by_row(value) for name, value in data.items()}
    return [by_row(item) for item in data] if isinstance(data, list) else data


# ---- finding runs


def find(spec: BaseSpec, seed: int, origins: Sequence[str] = ANYWHERE) -> Run | None:
    """The finished run, made here or else shipped, as far as `origins` has these."""
    folder = paths.runs() / spec.key(seed)
    if "runs" in origins and folder.exists():
        return read_run(spec, seed, folder)
    line = shipped_lines().get(spec.key(seed)) if "shipped" in origins else None
    if line is None:
        return None
    record = json.loads(line)
    if "tensors" not in record:
        return Run(spec, seed, record, paths.SHIPPED)
    file, prefix = record["tensors"]
    return Run(spec, seed, record, paths.SHIPPED, paths.SHIPPED / file, prefix)


def with_weights(spec: BaseSpec, seed: int) -> Run | None:
    """The finished run if it has weights, which training can go on from."""
    run = find(spec, seed)
    return run if run and run.weights else None


def read_run(spec: BaseSpec, seed: int, folder: Path) -> Run:
    """The run in a folder; InputError if that is not what was written there."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        valid = (record["spec"], record["seed"]) == (spec.digest, seed) and {"facts", "tables"} <= record.keys()
    except (OSError, ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise InputError(f"{folder} does not hold the run that its name says: move it away, and train the run again")
    return Run(spec, seed, record, folder, folder / WEIGHTS)


def seeds(spec: BaseSpec) -> list[int]:
    """The seeds for which there is a finished run, made here or shipped."""
    prefix, suffix = spec.key(0).rsplit("0-", 1)
    keys = [*(path.parent.name for path in paths.runs().glob(f"*/{RECORD}")), *shipped_lines()]
    numbers = (key.removeprefix(prefix).removesuffix(f"-{suffix}") for key in keys if key.startswith(prefix))
    return sorted({int(number) for number in numbers if number.isdecimal()})


def records(origin: str, having: str = "") -> list[Data]:
    """All records that were made here, or those that come with the project; a folder that holds none is passed over.

    Of the latter, which are many, only those whose text has `having` in it are read, as `"certificates"`.
    """
    if origin == "shipped":
        return [json.loads(line) for line in shipped_lines().values() if having in line]
    records = list[Data]()
    for path in sorted(paths.runs().glob(f"*/{RECORD}")):
        with suppress(ValueError, OSError):
            records.append(json.loads(path.read_bytes()))
    return records


def shipped_lines() -> dict[str, str]:
    """The lines of the shipped records, by their keys; read once as long as the file stays the same."""
    path = paths.SHIPPED / RUNS
    return record_lines(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=4)
def record_lines(path: Path, modified: int) -> dict[str, str]:
    """The same of a file as it was when it was modified last."""
    lines = read_lines(path)
    if not all(line.startswith(LINE_START) and line.endswith("}") for line in lines):
        raise InputError(f"the shipped results are damaged: copy {path} anew from where it came from")
    return {line[len(LINE_START) : line.index('"', len(LINE_START))]: line for line in lines}


def advice_if_incomplete() -> str:
    """What to do where not all results are at hand, as the end of a sentence; empty where they are."""
    if (paths.SHIPPED / RUNS).exists() and paths.SHIPPED != paths.PACKAGED_MODELS:
        return ""
    content = "only the story's models" if paths.SHIPPED == paths.PACKAGED_MODELS else "no shipped results"
    return f", or set ABC_NB_RESULTS to the folder results of a checkout, for {paths.SHIPPED} holds {content}"


# ---- keeping runs


def lock(key: str) -> FileLock:
    """A lock that one process at a time can hold."""
    folder = paths.runs() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{key}.lock")


def write_run(record: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the files of a run into a folder, which is not in its place yet."""
    write_bytes(folder / WEIGHTS, save(packed(tensors)))
    write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")


def ship(run: Run, weights: bool, folder: Path | None = None) -> Path:
    """Append a run to the shipped results or another folder of such, with or without its weights; gives the folder."""
    folder, record = folder or paths.SHIPPED, {name: part for name, part in run.record.items() if name != "tensors"}
    if weights:
        name = run.key if run.spec.changes else run.key.removesuffix(f"-{run.spec.digest}")
        file, prefix = f"weights/{name}.safetensors", f"seed{run.seed}/"
        write_bytes(folder / file, save({prefix + name: tensor for name, tensor in packed(run.state()).items()}))
        record["tensors"] = [file, prefix]
    with lock("shipped"):
        if run.spec.digest not in {json.loads(line)["digest"] for line in read_lines(folder / SPECS)}:
            append(folder / SPECS, {"digest": run.spec.digest, "spec": run.spec.data})
        append(folder / RUNS, record)
    return folder


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line to a file, whole or not at all."""
    write_text(path, "".join(f"{line}\n" for line in [*read_lines(path), json.dumps(record)]))
