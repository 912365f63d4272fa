"""Manifests: what a run folder says of itself, with the checksum of every file and of the manifest."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from abc_nb.common.files import write_text

MANIFEST, CONFIG, WEIGHTS = "manifest.json", "config.json", "weights.safetensors"
HISTORY, EVALUATION = "history.csv", "evaluation.csv"
BIAS, THRESHOLDS = "bias.json", "thresholds.csv"  # of a calibrated run: its lines, and the thresholds that were tried
FILES = (BIAS, CONFIG, EVALUATION, HISTORY, THRESHOLDS, WEIGHTS)  # what a manifest may name: nothing outside the folder
FACTS = {"steps", "seconds", "device", "threads", "versions", "date", "shipped"}  # what it must say
ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # what reading a file that is not there raises


class DamagedRun(Exception):
    """A run folder that does not hold what its manifest says."""


def read_manifest(folder: Path, name: str = MANIFEST) -> dict[str, Any]:
    """The manifest, once every file it names has been checked against it."""
    try:
        manifest: dict[str, Any] = read_json(folder / name)
        files = dict(manifest["files"])
        if manifest["checksum"] != fingerprint(manifest) or not files.keys() <= {*FILES}:
            raise ValueError
        for name, checksum in files.items():  # from here on the file at fault is this one
            if sha256(folder / name) != checksum:
                raise ValueError
    except (*ABSENT, ValueError, KeyError, TypeError) as error:  # not any OSError: a disk's trouble is not the run's
        what = "not what was written" if (folder / name).exists() else "missing"
        raise DamagedRun(f"the run in {folder.name} is damaged: {name} is {what}") from error
    return manifest


def environment(device: str) -> dict[str, Any]:
    """What a result should be read with: device, versions, date."""
    packages = {name: version(name) for name in ("torch", "numpy", "pandas", "safetensors")}
    return {
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), **packages},
        "date": datetime.now(UTC).date().isoformat(),
        "shipped": False,
    }


def write_manifest(folder: Path, facts: dict[str, Any], name: str = MANIFEST, of: Sequence[str] = FILES) -> None:
    """Write the manifest, with the checksum of each of these files that is there."""
    files = {each: sha256(folder / each) for each in of if (folder / each).exists()}
    facts = {key: value for key, value in facts.items() if key not in ("files", "checksum")} | {"files": files}
    write_json(folder / name, facts | {"checksum": fingerprint(facts)})


def fingerprint(manifest: dict[str, Any]) -> str:
    """The checksum of a manifest: of everything in it but the checksum itself."""
    facts = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def read_json(path: Path) -> Any:
    """What a file holds, or None if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1) + "\n")


def sha256(path: Path) -> str:
    """Of a file's bytes, in parts: they may be more than memory holds."""
    if not path.is_file():  # a device would never end
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
