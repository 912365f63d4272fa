"""Certificates as small JSON files, and the list of those that come with the project."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.certificates.certify import Certificate
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text

LARGEST = 2**20  # bytes
COLUMNS = ["experiment", "seed", "recipe", "certified", "contexts", "wrong", "margin", "seconds"]
PLAIN = "plain"  # the recipe of a model that was trained on random problems alone
REPAIRED = "repaired"  # of one that was trained on with problems that hold its wrong contexts


@dataclass(frozen=True)
class Of:
    """The run that a certificate is about."""

    experiment: str
    seed: int
    profile: str
    recipe: str = PLAIN


def write(certificate: Certificate, of: Of, path: Path) -> Path:
    """Write a certificate as JSON."""
    data = {"type": "certificate"} | asdict(of) | asdict(certificate)
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> dict[str, Any]:
    """A certificate as plain data; InputError for a file that is none."""
    if not path.is_file():
        raise InputError(f"there is no certificate {path}: give the path of a file that `abc-nb certify` wrote")
    try:
        data = json.loads(path.read_text("utf-8")) if path.stat().st_size <= LARGEST else None
    except (ValueError, RecursionError):
        data = None
    kinds = {"type": str, "experiment": str, "profile": str, "seed": int, "recipe": str, "base": int}
    if not isinstance(data, dict) or not all(isinstance(data.get(name), kind) for name, kind in kinds.items()):
        raise InputError(f"{path} holds no certificate: give a file that `abc-nb certify --output FILE` wrote")
    return data


def shipped() -> pd.DataFrame:
    """The certificates that come with the project, a row each."""
    found = [read(path) for path in sorted(paths.certificates().glob("*.json"))]
    rows = [[data.get(column) for column in COLUMNS] for data in found]
    return pd.DataFrame(rows, columns=COLUMNS)
