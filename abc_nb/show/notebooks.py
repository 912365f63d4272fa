"""Running notebooks: with papermill, one after another, parameters checked first."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import replacement, write_bytes

TIMEOUT = 1800  # seconds a cell may take
STARTS = 3  # of a kernel: its ports are free when they are chosen, and may be taken when it opens them
KEPT_OUT = "metadata.papermill cell.metadata.papermill metadata.language_info.version"


def sequence() -> list[Path]:
    """The notebooks in the order of the story, appendices last."""
    return [*sorted(paths.NOTEBOOKS.glob("[0-9]*.ipynb")), *sorted(paths.NOTEBOOKS.glob("a[0-9]*.ipynb"))]


def title(notebook: Path) -> str:
    """The heading of a notebook."""
    first = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    return first.splitlines()[0].lstrip("# ")


def path_of(name: str) -> Path:
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
    """Run `notebook` with these parameters; its executed copy goes to `output`, whole, even if a cell fails."""
    import papermill

    check_parameters(notebook, parameters)
    options = {"kernel_name": "python3", "cwd": str(paths.NOTEBOOKS), "execution_timeout": TIMEOUT}
    failure = None
    with replacement(output) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with_a_kernel(
                lambda: papermill.execute_notebook(str(notebook), str(temporary), dict(parameters), **options)
            )
        except papermill.PapermillExecutionError as error:
            failure = error
    if failure is not None and says_enough(failure.ename):
        raise InputError(f"{notebook.stem}: {failure.evalue}") from failure
    if failure is not None:
        raise failure


def says_enough(name: str) -> bool:
    """Whether an error of this name is one sentence already: InputError, and what disks and files raise."""
    kind = getattr(builtins, name, None)
    return name == InputError.__name__ or (isinstance(kind, type) and issubclass(kind, OSError))


def with_a_kernel(run: Callable[[], object]) -> None:
    """Run a notebook; its kernel is started anew where another program was faster to take its port."""
    for left in reversed(range(STARTS)):
        try:
            run()
            return
        except RuntimeError as error:
            if not left or "Kernel died before replying" not in str(error):
                raise


def refresh(names: Sequence[str], parameters: Mapping[str, str]) -> None:
    """Re-run notebooks in place with their default parameters and normalise them for the repository.

    With parameters the executed copy and its figures go to the build folder: what is committed shows the defaults.
    """
    if parameters:
        os.environ.setdefault("ABC_NB_FIGURES", str(paths.BUILD / "figures"))  # for the notebook's kernel
    values = {name: json_or_text(value) for name, value in parameters.items()}
    for notebook in [path_of(name) for name in names] or sequence():
        output = paths.BUILD / "notebooks" / notebook.name
        execute(notebook, output, values)
        if values:
            print(output)
            continue
        command = [sys.executable, "-m", "nbstripout", "--keep-output", "--keep-count", "--extra-keys", KEPT_OUT]
        done = subprocess.run(command, input=output.read_bytes(), stdout=subprocess.PIPE, check=True)
        write_bytes(notebook, done.stdout)


def json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
