"""Certificates as files: those that come with the project in one, a line each, and one for each that is made here."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from abc_nb.certificates.certify import Certificate
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import read_lines, write_lines, write_text

MADE_HERE, SHIPPED = "certificates", "certificates.jsonl"  # in the folders of runs and of shipped results
LARGEST = 2**20  # bytes of one certificate
KINDS = {"type": str, "experiment": str, "profile": str, "seed": int, "base": int}

Data = dict[str, Any]  # a certificate as plain data, with whose it is


def name_of(experiment: str, seed: int, profile: str) -> str:
    """The name of the run that a certificate is about."""
    return f"{experiment}-{profile}-seed{seed}"


def path_of(name: str) -> Path:
    """Where the certificate of a run is if it was made here."""
    return paths.runs() / MADE_HERE / f"{name}.json"


def write(certificate: Certificate, experiment: str, seed: int, profile: str, path: Path | None = None) -> Path:
    """Write a certificate as JSON, by default where those are that were made here."""
    data = {"type": "certificate", "experiment": experiment, "seed": seed, "profile": profile} | asdict(certificate)
    path = path or path_of(name_of(experiment, seed, profile))
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> Data:
    """A certificate as plain data; InputError for a file that is none."""
    if not path.is_file():
        raise InputError(f"there is no certificate {path}: give the path of a file that `abc-nb certify` wrote")
    try:
        data = json.loads(path.read_bytes()) if path.stat().st_size <= LARGEST else None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not all(isinstance(data.get(name), kind) for name, kind in KINDS.items()):
        raise InputError(f"{path} holds no certificate: give a file that `abc-nb certify --output FILE` wrote")
    return data


def made_here() -> dict[str, Data]:
    """The certificates that were made here, by the names of their runs."""
    return {path.stem: read(path) for path in sorted((paths.runs() / MADE_HERE).glob("*.json"))}


def shipped() -> dict[str, Data]:
    """The certificates that come with the project, by the names of their runs."""
    every = read_lines(paths.SHIPPED / SHIPPED)
    return {name_of(data["experiment"], data["seed"], data["profile"]): data for data in every}


def ship(name: str, certificate: Data | None) -> None:
    """Give a shipped run this certificate in place of the one that it has; with None it has none."""
    known = {each: data for each, data in shipped().items() if each != name}
    known |= {name: certificate} if certificate is not None else {}
    order = ("experiment", "profile", "seed")
    write_lines(paths.SHIPPED / SHIPPED, sorted(known.values(), key=lambda data: [data[name] for name in order]))
