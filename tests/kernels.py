"""Notebooks' kernels out of one process that has imported libraries already: each alone would take seconds to."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.forkserver import ensure_running
from typing import Any

import pytest

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["ipykernel.kernelapp", "ipywidgets", "torch._dynamo", "seaborn"])
BACKEND = "module://matplotlib_inline.backend_inline"  # which a kernel sets before matplotlib is imported


def kernel(command: list[str], environment: Mapping[str, str], folder: str | None, apart: Any) -> None:
    """What `python -m ipykernel_launcher -f FILE` does, in a session of its own."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    apart.set()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder or ".")
    IPKernelApp.launch_instance(command[command.index("-f") :])


class Forked:
    """A kernel's process, with what jupyter_client asks of a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: str | None = None, **_: Any) -> None:
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
def forked() -> Iterator[None]:
    """All kernels that are started meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MPLBACKEND", BACKEND)
        ensure_running()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", Forked)
        yield
