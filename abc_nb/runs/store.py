"""The store: finished runs, those made here in a folder each, those shipped in the pack.

A folder is finished or absent: it is written aside and moved into place in one step.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.runs import pack
from abc_nb.runs.run import TABLES, weights_in
from abc_nb.runs.run import Run as Run
from abc_nb.specs.spec import Spec, spec

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
RECORD, WEIGHTS = "run.json", "weights.safetensors"  # the files of a run's folder


def find(experiment: Spec, seed: int, origins: Sequence[str] = ANYWHERE) -> Run | None:
    """The finished run, made here or else shipped, as far as `origins` has these."""
    folder = paths.runs() / experiment.key(seed)
    if "runs" in origins and folder.exists():
        return read_run(experiment, seed, folder)
    return pack.open_pack(paths.SHIPPED).run(experiment, seed) if "shipped" in origins else None


def with_weights(experiment: Spec, seed: int) -> Run | None:
    """The same if it has weights, which training can go on from and which can be looked at."""
    run = find(experiment, seed)
    return run if run is not None and run.weights is not None else None


def read_run(experiment: Spec, seed: int, folder: Path) -> Run:
    """The run in a folder; InputError if that is not what was written there."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        same = record["experiment"] == experiment.data and record["seed"] == seed
        tables = {name: frame(record["tables"][name], columns) for name, columns in TABLES.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        same = False
    if not same:
        raise InputError(f"{folder} does not hold the run that its name says: move it away, and train the run again")
    return Run(experiment, seed, record["facts"], tables.__getitem__, partial(weights_in, folder / WEIGHTS), folder)


def frame(rows: list[Any], columns: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame({name: np.array([row.get(name) for row in rows], kind) for name, kind in columns.items()})


def write_run(
    experiment: Spec, seed: int, folder: Path, facts: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]
) -> None:
    """Write the record of a run; `tables` by the names in `TABLES`, those that are not given are empty."""
    rows = {name: tables[name].to_dict("records") if name in tables else [] for name in TABLES}
    record = {"experiment": experiment.data, "seed": seed, "facts": facts, "tables": rows}
    write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")


def nothing_shipped() -> str:
    """What to do where not all results are at hand, as the end of a sentence; empty where they are."""
    if (paths.SHIPPED / pack.RUNS).exists() and paths.SHIPPED != paths.MODELS:
        return ""
    some = "only the story's models" if paths.SHIPPED == paths.MODELS else "no shipped results"
    return f", or set ABC_NB_RESULTS to the folder results of a checkout, for {paths.SHIPPED} holds {some}"


def seeds() -> dict[str, list[int]]:
    """Which seeds have a run, made here or shipped, by `name-profile` of the experiment."""
    known = defaultdict[str, set[int]](set)
    made = [path.parent.name.rpartition("-")[0] for path in paths.runs().glob(f"*/{RECORD}")]
    for run in (*pack.open_pack(paths.SHIPPED).rows, *made):
        name, _, seed = run.rpartition("-seed")
        known[name].add(int(seed))
    return {name: sorted(numbers) for name, numbers in known.items()}


def lock(key: str) -> FileLock:
    """Held by one process at a time."""
    folder = paths.runs() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{key}.lock")


def ship(run: Run, weights: bool) -> Path:
    """Add a run to the pack of shipped results, with its weights only if asked; gives the folder of the pack."""
    with lock("pack"):
        pack.add(paths.SHIPPED, [run], weights)
    return paths.SHIPPED


def pack_models(folder: Path = paths.MODELS) -> None:
    """Write the pack that an installed package has: ABS and ABC of four tasks, seed 0, as they are shipped."""
    names = [f"{task}-{model}" for task in ("successor", "addition", "n-by-1", "parity") for model in ("abs", "abc")]
    pack.add(folder, [run for name in names if (run := find(spec(name), 0, ("shipped",)))], weights=True)
