"""The pack: the runs that come with the project, as a few tables that are read when they are needed.

runs.csv               a row per run: what it is, how it came about, and the checksum of its weights
experiments.json.gz    all that a run depends on, by digest; the column `experiment` names one
evaluation.csv.gz, ... `run.TABLES`, the rows of all runs one after the other; the column `run` says whose they are
weights/NAME.safetensors   the weights of an experiment's runs, tensors named seed0/..., seed1/...
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_file, save

from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes
from abc_nb.model.eight_bits import packed
from abc_nb.runs.run import TABLES, Run, weights_in
from abc_nb.specs.spec import Spec

RUNS, EXPERIMENTS = "runs.csv", "experiments.json.gz"


def typed(kind: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, kind)


WHOLE = "Int64"  # pandas' whole numbers among which some may be missing
# A run's facts as columns of runs.csv, those inside another one after a dot.
FACTS = typed(WHOLE, "steps") | typed(float, "seconds.training", "seconds.evaluation", "calibration_seconds")
FACTS |= typed(str, "parent.run", "parent.weights") | typed(float, "parent.seconds")
FACTS |= typed(WHOLE, "practice.rounds", "practice.contexts", "practice.wrong_before", "practice.wrong_after")
FACTS |= typed(WHOLE, "practice.alone") | typed(str, "practice.refused", "device") | typed(WHOLE, "threads")
FACTS |= typed(str, "versions.python", "versions.torch", "versions.numpy", "versions.pandas", "versions.safetensors")
FACTS |= typed(str, "date") | typed(WHOLE, "bias.heads") | typed(float, "bias.floor") | typed(str, "bias.empty")
FACTS |= typed(str, "weights")
# Before them whose a row is, after them the file of the weights, empty where only the numbers are shipped.
COLUMNS = typed(str, "run", "experiment", "task", "model") | typed(WHOLE, "base") | typed(str, "profile")
COLUMNS |= typed(WHOLE, "seed") | FACTS | typed(str, "file")
ORDER = ("task", "profile", "base", "model", "seed")  # in which runs stand
Row = dict[str, Any]  # of runs.csv, without empty cells


def read(path: Path, columns: dict[str, Any]) -> pd.DataFrame:
    """A table as it was written, to the last bit of its numbers; empty where there is none."""
    if not path.exists():
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in columns.items()})
    gaps: dict[Any, list[str]] = {name: [""] for name, kind in columns.items() if kind is not str}
    try:
        return pd.read_csv(path, dtype=columns, keep_default_na=False, na_values=gaps)[[*columns]]
    except (ValueError, KeyError, gzip.BadGzipFile) as error:
        raise InputError(f"the shipped results are damaged: copy {path} anew from where it came from") from error


@dataclass(frozen=True)
class Pack:
    """The shipped runs in a folder."""

    folder: Path

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The rows of runs.csv by the run's name: the cells that are not empty, each of its column's type."""
        every = read(self.folder / RUNS, COLUMNS).to_dict("records")
        rows = ({str(name): cell for name, cell in row.items() if pd.notna(cell) and cell != ""} for row in every)
        return {row["run"]: row for row in rows}

    def whole(self, table: str) -> pd.DataFrame:
        """The rows of all runs in a table."""
        return read(self.folder / f"{table}.csv.gz", {"run": str} | TABLES[table])

    @cached_property
    def tables(self) -> dict[str, tuple[pd.DataFrame, dict[Any, Any]]]:
        """Every table, and which of its rows are a run's."""
        every = {name: self.whole(name) for name in TABLES}
        return {name: (part[[*TABLES[name]]], part.groupby("run").indices) for name, part in every.items()}

    def table(self, run: str, name: str) -> pd.DataFrame:
        """The rows that a table has of one run."""
        frame, rows = self.tables[name]
        return frame.iloc[rows.get(run, [])].reset_index(drop=True)

    def run(self, experiment: Spec, seed: int) -> Run | None:
        row = self.rows.get(experiment.run_name(seed))
        if row is None or row["experiment"] != experiment.digest:
            return None
        weights = partial(weights_in, self.folder / row["file"], f"seed{seed}/") if "file" in row else None
        return Run(experiment, seed, facts_of(row), partial(self.table, row["run"]), weights, self.folder)


def facts_of(row: Row) -> dict[str, Any]:
    """The facts of a run, as its own record has them."""
    facts: dict[str, Any] = {}
    for name in (name for name in FACTS if name in row):  # in their order, which tables show
        *outer, own = name.split(".")
        (facts.setdefault(outer[0], {}) if outer else facts)[own] = row[name]
    return facts | {"shipped": True}


def open_pack(folder: Path) -> Pack:
    """The pack in a folder, which may be empty; read once as long as its list of runs stays the same."""
    path = folder / RUNS
    return kept(folder, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=4)
def kept(folder: Path, _: int) -> Pack:
    return Pack(folder)


def add(folder: Path, runs: Sequence[Run], weights: bool) -> None:
    """Add runs, with weights or without, in place of those of the same name; nothing else may write meanwhile."""
    pack, new = Pack(folder), {run.spec.run_name(run.seed): row_of(run, weights) for run in runs}
    rows = pack.rows | new
    order = {name: i for i, name in enumerate(sorted(rows, key=lambda name: [rows[name][part] for part in ORDER]))}
    for table, columns in TABLES.items():
        old = pack.whole(table)
        parts = [run.table(table).assign(run=run.spec.run_name(run.seed)) for run in runs]
        whole = pd.concat([old[~old.run.isin(new)], *(part for part in parts if len(part))])[["run", *columns]]
        whole = whole.sort_values("run", key=lambda run: run.map(order), kind="stable")
        write_bytes(folder / f"{table}.csv.gz", gzip.compress(whole.to_csv(index=False).encode(), mtime=0))
    for run in runs if weights else ():
        write_weights(folder, run)
    path = folder / EXPERIMENTS
    known = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    known |= {run.spec.digest: run.spec.data for run in runs}
    digests = sorted({row["experiment"] for row in rows.values()})
    lines = [f'"{digest}": {json.dumps(known[digest])}' for digest in digests]
    write_bytes(path, gzip.compress(("{\n" + ",\n".join(lines) + "\n}\n").encode(), mtime=0))
    text = pd.DataFrame([rows[name] for name in order], columns=[*COLUMNS], dtype=object).to_csv(index=False)
    write_bytes(folder / RUNS, text.encode())


def row_of(run: Run, weights: bool) -> Row:
    """The run as a row of runs.csv."""
    experiment, identity = run.spec, run.spec.identity
    row: Row = {"run": experiment.run_name(run.seed), "experiment": experiment.digest, "task": identity.task}
    row |= {"model": identity.model, "base": identity.base, "profile": experiment.profile, "seed": run.seed}
    for name in FACTS:
        outer, _, inner = name.partition(".")
        value = run.manifest.get(outer)
        row[name] = value.get(inner) if inner and value is not None else value
    row["file"] = weights_file(run.spec) if weights else None
    return {name: value for name, value in row.items() if value is not None}


def weights_file(experiment: Spec) -> str:
    """Where the weights of an experiment's runs are in the pack."""
    profile = "" if experiment.profile == "quick" else f"-{experiment.profile}"
    return f"weights/{experiment.name}{profile}.safetensors"


def write_weights(folder: Path, run: Run) -> None:
    """Put the weights of a run into the file of its experiment."""
    assert run.weights is not None
    path, prefix = folder / weights_file(run.spec), f"seed{run.seed}/"
    kept = load_file(path) if path.exists() else {}
    tensors = {name: tensor for name, tensor in kept.items() if not name.startswith(prefix)}
    tensors |= {prefix + name: tensor for name, tensor in packed(run.weights()).items()}
    write_bytes(path, save(tensors))
