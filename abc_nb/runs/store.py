"""The store: finished runs, those made here in a folder each, those shipped in the pack.

A folder is finished or absent: it is written aside and moved into place in one step. Reading checks
every file against the manifest; what is damaged or foreign is set aside and named, never deleted.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from filelock import FileLock

from abc_nb.bias.lines import Lines
from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs.manifest import (
    BIAS,
    CONFIG,
    EVALUATION,
    FACTS,
    HISTORY,
    MANIFEST,
    THRESHOLDS,
    WEIGHTS,
    DamagedRun,
    read_json,
    read_manifest,
)
from abc_nb.runs.pack import DamagedPack, open_pack
from abc_nb.runs.packing import add
from abc_nb.runs.run import Outcome, as_lines
from abc_nb.runs.run import Run as Run

ANYWHERE = ("runs", "shipped")  # made here, or come with the project
LARGEST_BIAS = 2**24  # bytes; a line takes about 170


@dataclass(frozen=True)
class Folder:
    """A run in a folder of its own: the source of runs made here."""

    folder: Path
    files: Mapping[str, str]  # checksum of each

    @property
    def checksum(self) -> str | None:
        return self.files.get(WEIGHTS)

    @property
    def has_weights(self) -> bool:
        return WEIGHTS in self.files

    def weights_path(self) -> Path:
        return self.folder / WEIGHTS

    def tests(self) -> list[Outcome]:
        return read_tests(self.folder / EVALUATION)

    def history(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / HISTORY)

    def thresholds(self) -> pd.DataFrame | None:
        return pd.read_csv(self.folder / THRESHOLDS) if THRESHOLDS in self.files else None

    def bias(self, heads: int) -> Lines | None:
        return read_bias(self.folder / BIAS, heads) if BIAS in self.files else None

    def shortest_wrong(self) -> None:
        """None is kept: whoever asks for it searches."""


def read_tests(path: Path) -> list[Outcome]:
    """The tests in a file, in its order."""
    rows = pd.read_csv(path)[list(Outcome._fields)].itertuples(index=False)
    return [Outcome(*map(int, row)) for row in rows]


def write_tests(path: Path, tests: Iterable[Outcome]) -> None:
    write_text(path, pd.DataFrame(tests, columns=Outcome._fields).to_csv(index=False))


def read_bias(path: Path, heads: int) -> Lines:
    """A calibrated bias with this number of heads; InputError for any other content."""
    return as_lines(read_json(path) if path.stat().st_size <= LARGEST_BIAS else None, heads, path)


def find(experiment: Experiment, seed: int, origins: Sequence[str] = ANYWHERE) -> Run | None:
    """The finished run, from the first of `origins` that has it; a damaged one is set aside with a warning."""
    for origin in origins:
        found = shipped(experiment, seed) if origin == "shipped" else made_here(experiment, seed)
        if found is not None:
            return found
    return None


def made_here(experiment: Experiment, seed: int) -> Run | None:
    folder = paths.runs() / experiment.key(seed)
    if not folder.exists():
        return None
    try:
        return read_run(experiment, seed, folder)
    except DamagedRun as error:
        warnings.warn(f"{error}; it is kept in {set_aside(folder)}", stacklevel=3)
        return None


def shipped(experiment: Experiment, seed: int) -> Run | None:
    """The run of the pack; None, with a warning, where the files of the pack that name its runs are damaged."""
    try:
        found = open_pack(paths.SHIPPED)
        return None if found is None else found.run(experiment, seed)
    except DamagedPack as error:
        warnings.warn(str(error), stacklevel=3)
        return None


def nothing_shipped() -> str:
    """What to do where no results are shipped at all, as the end of a sentence; empty where there are some."""
    if (paths.SHIPPED / MANIFEST).exists():
        return ""
    return f", or set ABC_NB_RESULTS to the folder results of a checkout, for {paths.SHIPPED} holds no shipped results"


def seeds() -> dict[str, list[int]]:
    """Which seeds have a run, made here or shipped, by `name-profile` of the experiment."""
    found = defaultdict[str, set[int]](set)
    for key in (*shipped_keys(), *(folder.name for folder in paths.runs().glob("*-seed*"))):
        if parts := re.fullmatch(r"(.+)-seed(\d+)-[0-9a-f]+", key):
            found[parts[1]].add(int(parts[2]))
    return {name: sorted(numbers) for name, numbers in found.items()}


def shipped_keys() -> list[str]:
    try:
        found = open_pack(paths.SHIPPED)
        return [] if found is None else [*found.runs]
    except DamagedPack as error:
        warnings.warn(str(error), stacklevel=3)
        return []


def read_run(experiment: Experiment, seed: int, folder: Path) -> Run:
    """A finished run; DamagedRun if the folder is not whole, or not this experiment's."""
    manifest = read_manifest(folder)
    needed = {CONFIG, EVALUATION, HISTORY} | ({BIAS, THRESHOLDS} if experiment.calibration else set())
    if not (manifest.keys() >= FACTS and manifest["files"].keys() >= needed):
        raise DamagedRun(f"the run in {folder.name} is damaged: {MANIFEST} does not say all that it should")
    if read_json(folder / CONFIG) != experiment.data | {"seed": seed}:
        raise DamagedRun(f"the folder {folder.name} holds another experiment")
    return Run(experiment, seed, Folder(folder, manifest["files"]), manifest)


def set_aside(folder: Path, names: Sequence[str] = ()) -> Path:
    """Move a folder, or only some files of it, out of the way and say where to."""
    target = paths.runs() / ".set-aside" / f"{folder.name}-{time.time_ns()}"
    if not names:
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process was faster
            folder.rename(target)
        return target
    target.mkdir(parents=True)
    for path in (folder / name for name in names if (folder / name).exists()):
        path.rename(target / path.name)
    return target


@contextmanager
def lock(key: str) -> Iterator[None]:
    folder = paths.runs() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield


def ship(run: Run, weights: bool) -> Path:
    """Add a run to the pack of shipped results, with its weights only if asked; gives the folder of the pack."""
    with lock("pack"):
        add(paths.SHIPPED, [run], {run.key} if weights else set())
    return paths.SHIPPED
