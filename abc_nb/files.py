"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write beside `path`, then move over it; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path
