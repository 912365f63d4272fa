"""Checksums that tie a certificate to weights and a bias."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def checksum(weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of all weights in float32: names, shapes and numbers, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name], "<f4")
        found.update(f"{name} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def checksum_of_data(data: Mapping[str, Any]) -> str:
    """SHA-256 of plain data as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
