"""Writing files so that a reader sees the old content or the new, never half of it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from abc_nb.common.errors import InputError


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

    A link stays, and what it points to is replaced. InputError if there is something that is no regular file. Each
    process of a machine writes a file of its own. An OSError names `path`, which a full disk alone does not.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no regular file, and is not replaced: give the name of another")
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    except RuntimeError as error:
        if "inline_container" not in str(error):  # where torch writes its files
            raise
        raise OSError(errno.ENOSPC, "it could not be written whole, as on a full disk", str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
