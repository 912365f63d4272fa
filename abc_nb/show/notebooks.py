"""Running notebooks with papermill."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import replacement, write_bytes
from abc_nb.runs.sweep import workers

# Names of errors that are one sentence already, as those of disks and files.
SENTENCES = ("InputError", "OSError", *(kind.__name__ for kind in OSError.__subclasses__()))
TIMEOUT = 1800  # seconds a cell may take
KEPT_OUT = "metadata.papermill cell.metadata.papermill metadata.language_info.version"


def sequence(folder: Path | None = None) -> list[Path]:
    """The notebooks of a folder by name: by default the course in its order, and what stands on its own."""
    return sorted((folder or paths.NOTEBOOKS).glob("*.ipynb"))


def path_of(name: str, folder: Path | None = None) -> Path:
    known = {path.stem: path for path in sequence(folder)}
    if name not in known:
        raise InputError(f"unknown notebook {name!r}: choose one of {', '.join(known)}")
    return known[name]


def execute(notebook: Path, output: Path, parameters: Mapping[str, Any], bar: bool = True) -> None:
    """Run `notebook` with those of the parameters that it takes; the copy goes to `output`, even if a cell fails.

    The kernel is reached by files, not by ports, which another program could take. InputError for bad parameters.
    """
    import papermill
    from traitlets.config import Config

    accepted = papermill.inspect_notebook(str(notebook))
    own = {name: value for name, value in parameters.items() if name in accepted}
    options: dict[str, Any] = {"kernel_name": "python3", "cwd": str(notebook.parent), "progress_bar": bar}
    options["execution_timeout"] = TIMEOUT
    options["extra_arguments"] = ["--log-level=50"]  # a kernel that is shut down says that it was interrupted
    failure = None
    with tempfile.TemporaryDirectory() as folder, replacement(output) as temporary:
        options["config"] = Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"})
        try:
            papermill.execute_notebook(str(notebook), str(temporary), own, **options)
        except papermill.PapermillExecutionError as error:
            failure = error
    if failure is not None:
        if failure.ename in SENTENCES:
            raise InputError(f"{notebook.stem}: {failure.evalue}") from failure
        raise failure


def execute_all(books: Sequence[Path], folder: Path, parameters: Mapping[str, Any]) -> None:
    """Run notebooks, as many at the same time as there are cores; the copies go into `folder`."""
    # For the kernels: two that train on two threads each, with two cores, take ten times as long as on one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def timed(notebook: Path) -> str:
        start = time.perf_counter()
        execute(notebook, folder / notebook.name, parameters, bar=False)
        return f"{notebook.stem}, {time.perf_counter() - start:.0f} s"

    parallel = joblib.Parallel(workers(), backend="threading", return_as="generator_unordered")
    # The longest is the last: begun first, it leaves no core without work in the end.
    for number, text in enumerate(parallel(joblib.delayed(timed)(notebook) for notebook in reversed(books)), 1):
        print(f"notebook {number} of {len(books)}: {text}", flush=True)


def refresh(names: Sequence[str], folder: Path | None = None) -> None:
    """Re-run a folder's notebooks in place, all or some, with their default parameters; normalise them for git."""
    for notebook in [path_of(name, folder) for name in names] or sequence(folder):
        output = paths.BUILD / "notebooks" / notebook.name
        execute(notebook, output, {})
        command = [sys.executable, "-m", "nbstripout", "--keep-output", "--keep-count", "--extra-keys", KEPT_OUT]
        done = subprocess.run(command, input=output.read_bytes(), stdout=subprocess.PIPE, check=True)
        write_bytes(notebook, done.stdout)
