"""Writing the pack of shipped runs: tables whole and in a fixed order, so that one more run is a few more lines.

Changed files are written beside their places first; then the manifest is replaced, in one step; then they are moved.
Whoever is killed before that step leaves the old pack, and after it the new one: a reader looks in both places.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.common.config import digest, to_data
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes
from abc_nb.experiments.experiment import SEEDS
from abc_nb.experiments.studies import ARITHMETIC
from abc_nb.runs.manifest import MANIFEST, fingerprint, sha256, write_json
from abc_nb.runs.pack import (
    COLUMNS,
    EXPERIMENTS,
    FACTS,
    NEXT,
    RUNS,
    TABLES,
    Pack,
    Row,
    open_pack,
    short,
    table_file,
    weights_file,
)
from abc_nb.runs.run import Outcome, Run

ROWS: dict[str, Callable[[Run], pd.DataFrame | None]] = {  # what a run gives to each table
    "evaluation": lambda run: pd.DataFrame(run.source.tests(), columns=Outcome._fields),
    "history": Run.history,
    "thresholds": Run.thresholds,
    "lines": lambda run: lines_of(run),
    "shortest": lambda run: shortest_of(run),
}


def add(folder: Path, runs: Sequence[Run], with_weights: Collection[str]) -> None:
    """Add runs to the pack in a folder, which is made if it is not there.

    They take the place of those of the same name, profile and seed. `with_weights` are the keys of the runs whose
    weights are shipped too. Nothing else may write to the folder meanwhile.
    """
    old = open_pack(folder) or Pack(folder, {})
    finish(old)
    new = {identity(row): row for row in map(row_of, runs)}
    before = {identity(row): row for row in old.runs.values()} if old.files else {}
    rows = sorted((before | new).values(), key=order)
    check_names(rows)
    tables = {table_file(table): table_text(old, runs, rows, table) for table in TABLES}
    texts = {RUNS: runs_text(rows), EXPERIMENTS: experiments_text(old, runs, rows)}
    texts |= {name: text for name, text in tables.items() if text}
    weights = {weights_file(run.key): run.source.weights_path() for run in runs if run.key in with_weights}
    touched = {weights_file(row["key"]) for each in new for row in (new[each], before.get(each, new[each]))}
    kept = {name: old.files[name] for name in old.files.keys() - texts.keys() - tables.keys() - touched}
    replace_files(old, texts, weights, kept)


def identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("task", "model", "base", "profile", "seed"))


def order(row: Row) -> tuple[Any, ...]:
    """Runs stand by task, and among those of a task by profile, base, model and seed."""
    return tuple(row[name] for name in ("task", "profile", "base", "model", "seed"))


def check_names(rows: Iterable[Row]) -> None:
    """InputError if two runs have the same short name, which is one of four thousand million."""
    names: dict[str, str] = {}
    for row in rows:
        if (other := names.setdefault(row["run"], row["key"])) != row["key"]:
            raise InputError(f"{row['key']} and {other} have the same short name in the pack: ship only one of them")


def row_of(run: Run) -> Row:
    """The run as a row of runs.csv."""
    experiment = run.experiment
    found: Row = {"key": run.key, "run": short(run.key), "experiment": digest(experiment.data)}
    found |= {name: getattr(experiment.identity, name) for name in ("task", "model", "base")}
    found |= {"profile": experiment.profile, "seed": run.seed, "weights": run.checksum}
    for name in FACTS:
        outer, _, inner = name.partition(".")
        value = run.manifest.get(outer)
        found[name] = value.get(inner) if inner and value is not None else value
    if bias := run.bias():
        found |= {"bias.heads": bias.heads, "bias.floor": bias.floor, "bias.empty": bias.empty}
    return {name: value for name, value in found.items() if value is not None}


def lines_of(run: Run) -> pd.DataFrame | None:
    """The lines of a calibrated run, a row each."""
    bias = run.bias()
    return None if bias is None else pd.DataFrame([to_data(line) for line in bias.lines], columns=[*TABLES["lines"]])


def shortest_of(run: Run) -> pd.DataFrame | None:
    """The shortest wrong problem of a model that can have no certificate: of the first seed and the paper's tasks."""
    if run.seed != SEEDS[0] or run.experiment.task.name not in ARITHMETIC:
        return None
    found = run.shortest_wrong()
    return None if found is None else pd.DataFrame([found])


def runs_text(rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def experiments_text(old: Pack, runs: Iterable[Run], rows: Iterable[Row]) -> bytes:
    """What training depends on, a line an experiment, in the order of the digests."""
    known = (old.experiments if old.files else {}) | {digest(run.experiment.data): run.experiment.data for run in runs}
    lines = [
        f'"{name}": {json.dumps(known[name], sort_keys=True)}' for name in sorted({row["experiment"] for row in rows})
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def table_text(old: Pack, runs: Sequence[Run], rows: Iterable[Row], table: str) -> bytes:
    """A table of the runs in `rows`, in that order: those of `runs`, and the old ones."""
    by_name, columns, parts = {short(run.key): run for run in runs}, [*TABLES[table]], []
    for row in rows:
        name = row["run"]
        new = name in by_name
        part = ROWS[table](by_name[name]) if new else pd.DataFrame(old.table(table).of(name))
        if part is not None and len(part):
            parts.append(part.reindex(columns=columns).assign(run=name)[["run", *columns]])
    return pd.concat(parts).to_csv(index=False).encode() if parts else b""


def replace_files(old: Pack, texts: Mapping[str, bytes], weights: Mapping[str, Path], kept: Mapping[str, str]) -> None:
    """Write files, and then a manifest that names them and those that are `kept`; all others of the old pack go."""
    staged = old.folder / NEXT
    for name, text in texts.items():
        write_bytes(staged / name, text)
    for name, path in weights.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, staged / name)
    files = {name: sha256(staged / name) for name in (*texts, *weights)} | {**kept}
    facts = {"files": dict(sorted(files.items()))}
    write_json(old.folder / MANIFEST, facts | {"checksum": fingerprint(facts)})
    finish(Pack(old.folder, files))
    for name in old.files.keys() - files.keys():
        (old.folder / name).unlink(missing_ok=True)


def finish(pack: Pack) -> None:
    """Move what was written into place, as far as the manifest names it."""
    for name in pack.files:
        staged = pack.folder / NEXT / name
        if staged.exists() and sha256(staged) == pack.files[name]:
            (pack.folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, pack.folder / name)
    shutil.rmtree(pack.folder / NEXT, ignore_errors=True)
