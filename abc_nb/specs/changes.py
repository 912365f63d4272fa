"""Changes of a configuration's fields, written as people type them: `training.steps=3200`, `position=Rotary`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from abc_nb.bias import Bias
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.config import classes, from_data
from abc_nb.common.errors import InputError
from abc_nb.model.positions import PositionEncoding

Configuration = TypeVar("Configuration")


def without(prefix: str, changes: Iterable[str]) -> tuple[str, ...]:
    """The changes of what stands at `prefix`, as `steps=1` of `training.steps=1`."""
    return tuple(change.removeprefix(f"{prefix}.") for change in changes if change.startswith(f"{prefix}."))


def changed(value: Configuration, prefix: str, changes: Sequence[str]) -> Configuration:
    """A configuration with those changes that are of its own fields; InputError for one that is not possible."""
    own = without(prefix, changes) if prefix else [change for change in changes if "." not in change.partition("=")[0]]
    known = [field.name for field in fields(value) if field.compare]  # type: ignore[arg-type]
    for change in own:
        name, sign, text = change.partition("=")
        if not sign or name not in known:
            typed = f"{prefix}.{change}".removeprefix(".")
            raise InputError(f"cannot set {typed!r}: give FIELD=VALUE, where a field is one of {', '.join(known)}")
        value = replace(value, **{name: read(text)})  # type: ignore[type-var]
    return value


def read(text: str) -> Any:
    """A number, a word, or a bias, position encoding or calibration: by its class, or in JSON with its fields."""
    try:
        data = json.loads(text)
    except ValueError:
        data = text
    known = classes(PositionEncoding, Bias, Calibration)
    if isinstance(data, str) and data in known:
        data = {"type": data}
    return from_data(data, known.values()) if isinstance(data, dict | list) else data
