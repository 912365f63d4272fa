"""Running notebooks with papermill."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import replacement, write_bytes

# Names of errors that are one sentence already, as those of disks and files.
SENTENCES = ("InputError", "OSError", *(kind.__name__ for kind in OSError.__subclasses__()))
TIMEOUT = 1800  # seconds a cell may take
KEPT_OUT = "metadata.papermill cell.metadata.papermill metadata.language_info.version"


def in_reading_order(folder: Path | None = None) -> list[Path]:
    """The notebooks of a folder by name: by default the course in its order, and what stands on its own."""
    return sorted((folder or paths.NOTEBOOKS).glob("*.ipynb"))


def execute(notebook: Path, output: Path, parameters: Mapping[str, Any], bar: bool = True) -> None:
    """Run `notebook` with those of the parameters that it takes; the copy goes to `output`, even if a cell fails.

    The kernel is reached by files, not by ports, which another program could take. InputError for bad parameters.
    """
    import papermill
    from traitlets.config import Config

    accepted = papermill.inspect_notebook(str(notebook))
    accepted_values = {name: value for name, value in parameters.items() if name in accepted}
    options: dict[str, Any] = {"kernel_name": "python3", "cwd": str(notebook.parent), "progress_bar": bar}
    options["execution_timeout"] = TIMEOUT
    options["extra_arguments"] = ["--log-level=50"]  # a kernel that is shut down says that it was interrupted
    failure = None
    with tempfile.TemporaryDirectory() as folder, replacement(output) as temporary:
        options["config"] = Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"})
        try:
            papermill.execute_notebook(str(notebook), str(temporary), accepted_values, **options)
        except papermill.PapermillExecutionError as error:
            failure = error
    if failure is not None:
        if failure.ename in SENTENCES:
            raise InputError(f"{notebook.stem}: {failure.evalue}") from failure
        raise failure


def refresh(names: Sequence[str], folder: Path | None = None) -> None:
    """Re-run a folder's notebooks in place, all or some, with their default parameters; normalise them for git."""
    books = {path.stem: path for path in in_reading_order(folder)}
    if unknown := [name for name in names if name not in books]:
        raise InputError(f"unknown notebook {unknown[0]!r}: choose one of {', '.join(books)}")
    for notebook in [books[name] for name in names or books]:
        output = paths.BUILD / "notebooks" / notebook.name
        execute(notebook, output, {})
        command = [sys.executable, "-m", "nbstripout", "--keep-output", "--keep-count", "--extra-keys", KEPT_OUT]
        normalised = subprocess.run(command, input=output.read_bytes(), stdout=subprocess.PIPE, check=True)
        write_bytes(notebook, normalised.stdout)
