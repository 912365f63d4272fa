"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ABANDONED = 3600  # seconds after which no process still writes to a temporary file


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write beside `path`, then move over it; makes the folder."""
    with replacement(path) as temporary:
        temporary.write_bytes(content)
    return path


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """A file to write beside `path`: it is moved over `path` in the end, or removed where that fails.

    Each process of a machine has its own. An OSError names `path`, which a full disk alone does not.
    """
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f".tmp-*-{path.name}"):  # of killed processes
            with suppress(FileNotFoundError):  # another process was faster
                if time.time() - old.stat().st_mtime > ABANDONED:
                    old.unlink()
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()
