"""The one error for bad input, and what any error says: a single sentence that a user can act on."""

from __future__ import annotations

import errno
from pathlib import Path

from abc_nb.common import paths

FULL, IN_THE_WAY = "make room there", "move the file away that stands where a folder should"
ADVICE = {errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EEXIST: IN_THE_WAY, errno.ENOTDIR: IN_THE_WAY}


class InputError(ValueError):
    """What was given cannot be used; the message names what is accepted."""


def in_words(error: BaseException) -> str:
    """An error as one sentence: what was wrong, or what the system did not allow and what to do about it."""
    return refused(error) if isinstance(error, OSError) else str(error) or type(error).__name__


def refused(error: OSError) -> str:
    """What the system did not allow, and what to do about it."""
    if error.filename is None:
        return error.strerror or str(error)
    path = Path(str(error.filename))
    movable = {"ABC_NB_FIGURES": paths.figures(), "ABC_NB_RUNS": paths.runs()}
    others = [f", or name another folder in {name}" for name, folder in movable.items() if related(path, folder)]
    advice = ADVICE.get(error.errno or 0, "make it writable")
    return f"cannot use {path}: {error.strerror}; {advice}{''.join(others)}, and the same command goes on"


def related(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) or folder.is_relative_to(path)
