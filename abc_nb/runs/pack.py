"""The pack: the runs that come with the project, as a few tables that are read when they are needed.

    manifest.json          the SHA-256 of every file
    runs.csv               a row a run: what it is, and how it came about
    experiments.json       what training depends on, by digest; the column `experiment` names one
    evaluation.csv         tests: length, problems asked for, problems there are, and how many are right
    history.csv            validations along training
    thresholds.csv         the thresholds that calibrations tried
    lines.csv              the lines of calibrated biases
    shortest.csv           the shortest wrong problems that searches found, empty where one found none
    weights/KEY.safetensors

Their column `run` is short for a run's key. `packing` writes them.
"""

from __future__ import annotations

import csv
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from abc_nb.bias.lines import Lines
from abc_nb.certificates.shortest import Shortest
from abc_nb.common.config import digest
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs.manifest import ABSENT, MANIFEST, fingerprint, read_json, sha256
from abc_nb.runs.run import Outcome, Run, as_lines

RUNS, EXPERIMENTS = "runs.csv", "experiments.json"
NEXT = ".tmp-next"  # the folder of files that were written and not yet moved into place
IDENTITY = ("key", "run", "experiment", "task", "model", "base", "profile", "seed")  # columns of runs.csv
FACTS: dict[str, type] = {  # further ones: the facts of a manifest, those inside another one after a dot
    "steps": int,
    "seconds.training": float,
    "seconds.evaluation": float,
    "calibration_seconds": float,
    "parent.run": str,
    "parent.weights": str,
    "parent.seconds": float,
    "repair.rounds": int,
    "repair.wrong_before": int,
    "repair.wrong_after": int,
    "repair.left": int,
    "device": str,
    "threads": int,
    "versions.python": str,
    "versions.torch": str,
    "versions.numpy": str,
    "versions.pandas": str,
    "versions.safetensors": str,
    "date": str,
}
BIAS: dict[str, type] = {"bias.heads": int, "bias.floor": float, "bias.empty": str}  # of a calibrated run
COLUMNS = (*IDENTITY, *FACTS, *BIAS, "weights")  # weights: SHA-256 of the file, also where it is not shipped
TYPES: dict[str, type] = {"base": int, "seed": int} | FACTS | BIAS
TABLES: dict[str, dict[str, type]] = {
    "evaluation": {"length": int, "asked": int, "samples": int, "correct": int},
    "history": {"step": int, "seconds": float, "loss": float, "accuracy": float},
    "thresholds": {"share": float, "lines": int, "skill": float, "validation": float},
    "lines": {
        "attention": str,
        "layer": int,
        "head": int,
        "direction": str,
        "span": str,
        "offset": int,
        "value": float,
    },
    "shortest": {"problem": str, "answer": str, "right": str},
}
Row = dict[str, Any]  # of runs.csv, without empty cells


class DamagedPack(InputError):
    """A file of the pack is not what was written."""


def damaged(path: Path) -> DamagedPack:
    what = "not what was written" if path.exists() else "missing"
    return DamagedPack(f"the shipped results are damaged: {path} is {what}; copy it anew from where they came from")


def table_file(table: str) -> str:
    """The name of the file that holds a table."""
    return f"{table}.csv"


def weights_file(key: str) -> str:
    return f"weights/{key}.safetensors"


def short(key: str) -> str:
    """What a run is called in the tables."""
    return digest(key)[:8]


@dataclass(frozen=True)
class Table:
    """The rows of many runs."""

    columns: Mapping[str, np.ndarray]
    places: Mapping[Hashable, np.ndarray]  # which rows are a run's

    def of(self, run: str) -> dict[str, np.ndarray]:
        """The columns of one run, in the order of its rows."""
        places = self.places.get(run, np.empty(0, np.int64))
        return {name: column[places] for name, column in self.columns.items()}


@dataclass(frozen=True)
class Pack:
    """The files of a folder as its manifest lists them. DamagedPack where one of them is not what was written."""

    folder: Path
    files: Mapping[str, str]  # SHA-256 of each
    tables: dict[str, Table] = field(default_factory=dict, repr=False, compare=False)  # those that were read

    def path(self, name: str) -> Path:
        """A file, checked; where writing was interrupted it may lie beside its place."""
        for path in (self.folder / name, self.folder / NEXT / name):
            if path.is_file() and sha256(path) == self.files.get(name):
                return path
        raise damaged(self.folder / name)

    @cached_property
    def runs(self) -> dict[str, Row]:
        """The rows of runs.csv by key."""
        path = self.path(RUNS)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = [
                    {name: TYPES.get(name, str)(cell) for name, cell in row.items() if cell}
                    for row in csv.DictReader(file)
                ]
            return {row["key"]: row for row in rows}
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            raise damaged(path) from error

    @cached_property
    def experiments(self) -> dict[str, Any]:
        """What training depends on, by digest."""
        path = self.path(EXPERIMENTS)
        found = read_json(path)
        if not isinstance(found, dict):
            raise damaged(path)
        return found

    def table(self, table: str) -> Table:
        """A table's rows; empty where there are none."""
        name = table_file(table)
        if name not in self.tables:
            self.tables[name] = read_table(self.path(name) if name in self.files else None, TABLES[table])
        return self.tables[name]

    def run(self, experiment: Experiment, seed: int) -> Run | None:
        """A run, or None; DamagedPack if what stands under its key is another one."""
        row = self.runs.get(experiment.key(seed))
        if row is None:
            return None
        bias = "bias.heads" in row or experiment.calibration is None
        if not bias or row.get("experiment") not in self.experiments:
            raise damaged(self.folder / RUNS)
        if self.experiments[row["experiment"]] != experiment.data:
            raise DamagedPack(f"{self.folder / EXPERIMENTS} holds another experiment than that of {row['key']}")
        return Run(experiment, seed, Packed(self, row), manifest_of(row))


@dataclass(frozen=True)
class Packed:
    """A run of the pack, the source of its parts."""

    pack: Pack
    row: Row

    @property
    def folder(self) -> Path:
        return self.pack.folder

    @property
    def checksum(self) -> str | None:
        return self.row.get("weights")

    @property
    def has_weights(self) -> bool:
        return weights_file(self.row["key"]) in self.pack.files

    def weights_path(self) -> Path:
        return self.pack.path(weights_file(self.row["key"]))

    def columns(self, table: str) -> dict[str, np.ndarray]:
        return self.pack.table(table).of(self.row["run"])

    def tests(self) -> list[Outcome]:
        columns = self.columns("evaluation").values()
        return [Outcome(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def history(self) -> pd.DataFrame:
        return pd.DataFrame(self.columns("history"))

    def thresholds(self) -> pd.DataFrame | None:
        if "bias.heads" not in self.row:
            return None
        found = pd.DataFrame(self.columns("thresholds"))
        return found.drop(columns="validation") if found.validation.isna().all() else found

    def bias(self, heads: int) -> Lines | None:
        if "bias.heads" not in self.row:
            return None
        data: Row = {"type": "Lines", "heads": self.row["bias.heads"], "floor": self.row.get("bias.floor")}
        lines = [
            {"type": "Line"} | {str(name): cell for name, cell in line.items()}
            for line in pd.DataFrame(self.columns("lines")).to_dict("records")
        ]
        return as_lines(data | {"lines": lines, "empty": self.row.get("bias.empty")}, heads, self.folder / "lines")

    def shortest_wrong(self) -> Shortest | None:
        rows = [Shortest(*row) for row in zip(*self.columns("shortest").values(), strict=True)]
        return rows[0] if rows else None


def manifest_of(row: Row) -> dict[str, Any]:
    """The facts of a run, as its own manifest has them."""
    found: dict[str, Any] = {}
    for name in (name for name in FACTS if name in row):  # in their order, which tables show
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = row[name]
        else:
            found[outer] = row[name]
    return found | {"shipped": True}


def read_table(path: Path | None, columns: dict[str, type]) -> Table:
    """The rows of a file; numbers come back as they were written, to the last bit."""
    if path is None:
        return Table({name: np.empty(0, kind) for name, kind in columns.items()}, {})
    floats: dict[Any, list[str]] = {name: [""] for name, kind in columns.items() if kind is float}
    types: Any = {"run": str} | columns
    try:
        rows = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=floats)
        places: Any = rows.groupby("run").indices
        return Table({name: rows[name].to_numpy() for name in columns}, places)
    except (ValueError, KeyError) as error:
        raise damaged(path) from error


def open_pack(folder: Path) -> Pack | None:
    """The pack in a folder, or None where there is none; read once as long as its manifest stays the same."""
    try:
        state = (folder / MANIFEST).stat()
    except ABSENT as error:
        if (folder / RUNS).exists():
            raise damaged(folder / MANIFEST) from error
        return None
    return read_pack(folder, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=4)
def read_pack(folder: Path, *_state: int) -> Pack:
    manifest = read_json(folder / MANIFEST)
    try:
        if manifest["checksum"] != fingerprint(manifest):
            raise ValueError
        return Pack(folder, dict(manifest["files"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder / MANIFEST) from error
