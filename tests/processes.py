"""Processes, and notebooks' kernels, forked from one that has imported libraries, which takes each alone seconds."""

import io
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partialmethod
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import pandas
import pytest

LIBRARIES = ["ipykernel.kernelapp", "ipywidgets", "torch._dynamo", "seaborn", "pytest"]
BACKEND = "module://matplotlib_inline.backend_inline"  # which a kernel sets before matplotlib is imported
SERVER = multiprocessing.get_context("forkserver")


def serve() -> None:
    """Start the process that all others come from, unless it is there."""
    SERVER.set_forkserver_preload(LIBRARIES)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MPLBACKEND", BACKEND)
        ensure_running()


def execute(code: str, folder: Path, environment: Mapping[str, str], output: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.modules.pop("ipykernel.zmqshell", None)  # by which tqdm knows a notebook
    with output.open("w") as file, redirect_stdout(file), redirect_stderr(io.StringIO()) as errors:
        try:
            exec(code, {"__name__": "__main__"})
        except Exception:
            print(errors.getvalue(), traceback.format_exc())
            raise SystemExit(1) from None


def python(code: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What `python -c` prints in a folder, whose modules come first; libraries are imported, this package is not."""
    serve()
    output = folder / "printed.txt"
    process = SERVER.Process(target=execute, args=(code, folder, environment, output))
    process.start()
    process.join()
    assert process.exitcode == 0, output.read_text()
    return output.read_text()


RUN = """
import contextlib, io, json
from abc_nb.cli import main
said = []
for command in {commands}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        code = main(command)
    said.append((code, out.getvalue() + error.getvalue()))
print(json.dumps(said))
"""


def commands(words: list[list[str]], folder: Path, environment: Mapping[str, str]) -> list[tuple[int, str]]:
    """The status of each `abc-nb` command, and what it says."""
    return [(code, text) for code, text in json.loads(python(RUN.format(commands=words), folder, environment))]


def kernel(command: list[str], environment: Mapping[str, str], folder: str | None, apart: Any) -> None:
    """What `python -m ipykernel_launcher -f FILE` does, in a session of its own."""
    from ipykernel.kernelapp import IPKernelApp
    from tqdm.notebook import tqdm_notebook

    os.setsid()
    apart.set()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder or ".")
    pandas.set_option("display.max_columns", 20)  # as in a kernel: the server was taken for a terminal
    # A bar that a slow machine shows, and that the cell then removes, would count as its output.
    tqdm_notebook.__init__ = partialmethod(tqdm_notebook.__init__, disable=True)  # type: ignore[method-assign]
    IPKernelApp.launch_instance(command[command.index("-f") :])


class Forked:
    """A kernel's process, with what jupyter_client asks of a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: str | None = None, **_: Any) -> None:
        serve()
        apart = SERVER.Event()
        self.process = SERVER.Process(target=kernel, args=(command, env, cwd, apart))
        self.process.start()
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate
        assert apart.wait(60), "no kernel has started"

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode


@contextmanager
def forked_kernels() -> Iterator[None]:
    """All kernels that are started meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", Forked)
        yield
