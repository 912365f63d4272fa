"""Configurations are frozen dataclasses; here they become JSON and come back.

Each object carries its class name, so that a bias or a position encoding is restored as what it was.
Unknown classes and unknown fields are errors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from abc_nb.errors import InputError


def to_data(value: Any) -> Any:
    """Plain dicts, lists and scalars."""
    if is_dataclass(value):
        return {"type": type(value).__name__} | {f.name: to_data(getattr(value, f.name)) for f in fields(value)}
    return [to_data(item) for item in value] if isinstance(value, tuple) else value


def from_data(data: Any, types: Iterable[type]) -> Any:
    """The value that `to_data` was given; its classes must be among `types`."""
    if isinstance(data, list):
        return tuple(from_data(item, types) for item in data)
    if not isinstance(data, dict):
        return data
    known = {cls.__name__: cls for cls in types}
    name = data.get("type")
    if name not in known:
        raise InputError(f"unknown configuration type {name!r}: choose one of {', '.join(sorted(known))}")
    values = {key: from_data(item, types) for key, item in data.items() if key != "type"}
    accepted = [field.name for field in fields(known[name])]
    unknown = [key for key in values if key not in accepted]
    if unknown:
        raise InputError(f"{name} has no setting {unknown[0]!r}: it takes {', '.join(accepted)}")
    return known[name](**values)


def digest(data: Any) -> str:
    """A short name for plain data that changes whenever the data does."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
