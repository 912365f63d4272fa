"""Writing files so that a reader sees the old content or the new, never half of it."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write beside `path`, then move over it; makes the folder."""
    with replacement(path) as temporary:
        temporary.write_bytes(content)
    return path


def read_lines(path: Path) -> list[Any]:
    """What is written as JSON, a value a line; nothing where there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write_lines(path: Path, values: Iterable[Any]) -> Path:
    return write_text(path, "".join(json.dumps(value) + "\n" for value in values))


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """A file to write beside `path`: it is moved over `path` in the end, or removed where that fails.

    Each process of a machine has its own. An OSError names `path`, which a full disk alone does not.
    """
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()
