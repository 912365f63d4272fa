"""Running notebooks: with papermill, one after another, parameters checked first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abc_nb import paths
from abc_nb.errors import InputError
from abc_nb.files import write_bytes

TIMEOUT = 1800  # seconds a cell may take
KEPT_OUT = "metadata.papermill cell.metadata.papermill metadata.language_info.version"


def sequence() -> list[Path]:
    """The notebooks in the order of the story."""
    return sorted(paths.NOTEBOOKS.glob("[0-9]*.ipynb"))


def find(name: str) -> Path:
    known = {path.stem: path for path in sequence()}
    if name not in known:
        raise InputError(f"unknown notebook {name!r}: choose one of {', '.join(known)}")
    return known[name]


def check_parameters(notebook: Path, parameters: Mapping[str, Any]) -> None:
    """papermill only warns about a parameter that a notebook does not have; here it is an error."""
    import papermill

    accepted = papermill.inspect_notebook(str(notebook))
    for name in parameters:
        if name not in accepted:
            raise InputError(f"{notebook.stem} has no parameter {name!r}: it takes {', '.join(accepted)}")


def execute(notebook: Path, output: Path, parameters: Mapping[str, Any]) -> None:
    """Run `notebook` with these parameters; its executed copy goes to `output`."""
    import papermill

    check_parameters(notebook, parameters)
    output.parent.mkdir(parents=True, exist_ok=True)
    options = {"kernel_name": "python3", "cwd": str(paths.NOTEBOOKS), "execution_timeout": TIMEOUT}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            papermill.execute_notebook(str(notebook), str(output), dict(parameters), **options)
    except papermill.PapermillExecutionError as error:
        if error.ename == InputError.__name__:
            raise InputError(f"{notebook.stem}: {error.evalue}") from error
        raise


def refresh(names: Sequence[str], parameters: Mapping[str, str]) -> None:
    """Re-run notebooks in place with their default parameters and normalise them for the repository.

    With parameters the executed copy and its figures go to the build folder: what is committed shows the defaults.
    """
    if parameters:
        os.environ["ABC_NB_FIGURES"] = str(paths.BUILD / "figures")  # for the notebook's kernel
    values = {name: json_or_text(value) for name, value in parameters.items()}
    for notebook in [find(name) for name in names] or sequence():
        output = paths.BUILD / "notebooks" / notebook.name
        execute(notebook, output, values)
        if values:
            print(output)
            continue
        command = [sys.executable, "-m", "nbstripout", "--keep-output", "--keep-count", "--extra-keys", KEPT_OUT]
        subprocess.run([*command, str(output)], check=True)
        write_bytes(notebook, output.read_bytes())


def json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
