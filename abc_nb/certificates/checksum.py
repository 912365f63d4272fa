"""The checksum that ties a certificate to weights: another than `store.tensors_checksum`, of a run."""

import hashlib
from collections.abc import Mapping

import numpy as np


def checksum(weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of all weights in float32: names, shapes and numbers, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name], "<f4")
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
