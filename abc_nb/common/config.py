"""Configurations are frozen dataclasses; here they become JSON and come back.

Each object carries its class name, so that a bias or a position encoding is restored as what it was.
Unknown classes, unknown or missing fields and values of another type are errors. Classes are found in folders of which
each file adds some; no list of names is kept.

The digest of a configuration's data is the identity of what was made with it, so it must survive change:

- A field that is added later is declared with `added_field`: records that lack it mean one value, which is left out of
  the data for ever, whatever the default becomes. So a new field changes no digest, and a new default does.
- A field that is removed stays in `RETIRED` of its class, as a pair of its name and the only value that records have.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from abc_nb.common.errors import InputError

VALUE_IF_MISSING = "meant"  # key of a field's metadata: the value that the field has in records which lack it


def added_field(meant: Any, default: Any) -> Any:
    """A field that was added when records were stored already. A record that lacks it has the value `meant`."""
    return field(default=default, metadata={VALUE_IF_MISSING: meant})


def to_data(value: Any) -> Any:
    """Plain dicts, lists and scalars."""
    if is_dataclass(value):
        settings = {f.name: to_data(getattr(value, f.name)) for f in fields(value) if is_written(f, value)}
        return {"type": type(value).__name__, **dict(getattr(value, "RETIRED", ()))} | settings
    return [to_data(item) for item in value] if isinstance(value, tuple) else value


def is_written(setting: "Field[Any]", value: Any) -> bool:
    """Whether a field stands in the data of a configuration: not if its value is what records mean by lacking it.

    Nor if its metadata say that it is not `stored`, because it follows from the others.
    """
    metadata = setting.metadata
    if not metadata.get("stored", True):
        return False
    return VALUE_IF_MISSING not in metadata or metadata[VALUE_IF_MISSING] != getattr(value, setting.name)


def from_data(data: Any, types: Iterable[type]) -> Any:
    """The value that `to_data` was given; its classes must be among `types`."""
    if isinstance(data, list):
        return tuple(from_data(item, types) for item in data)
    if not isinstance(data, dict):
        return data
    by_name = {cls.__name__: cls for cls in types}
    name = data.get("type")
    if not isinstance(name, str) or name not in by_name:
        raise InputError(f"unknown configuration type {name!r}: choose one of {', '.join(sorted(by_name))}")
    kind = by_name[name]
    without_value = [("type", name), *getattr(kind, "RETIRED", ())]
    values = {
        setting.name: setting.metadata[VALUE_IF_MISSING]
        for setting in fields(kind)
        if VALUE_IF_MISSING in setting.metadata
    }
    values |= {key: from_data(item, types) for key, item in data.items() if (key, item) not in without_value}
    needed = {setting.name: setting.default is setting.default_factory is MISSING for setting in fields(kind)}
    for key in values | needed:
        if key not in needed:
            raise InputError(f"{name} has no setting {key!r}: it takes {', '.join(needed)}")
        possible = fits(values[key], hints(kind)[key]) if key in values else not needed[key]
        if not possible:
            raise InputError(f"the setting {key!r} of {name} is missing or not of its type")
    return kind(**values)


def check_fields(value: Any, **least: int) -> None:
    """InputError if a field of a configuration is not of its type, or a number smaller than the `least` possible."""
    kind: Any = type(value)
    for name, hint in hints(kind).items():
        setting = getattr(value, name)
        if not fits(setting, hint):
            accepted = f": choose one of {', '.join(map(str, get_args(hint)))}" if get_origin(hint) is Literal else ""
            raise InputError(f"{setting!r} is not possible as {name} of a {kind.__name__}{accepted}")
        if name in least and setting is not None and setting < least[name]:
            raise InputError(f"{setting} is not possible as {name} of a {kind.__name__}: give {least[name]} or more")


hints = cache(get_type_hints)  # of a class, by field


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that a field is annotated with."""
    origin, arguments = get_origin(hint), get_args(hint)  # as of `tuple[int, ...]`
    if origin is Literal:
        return value in arguments
    if origin is UnionType:
        return any(fits(value, argument) for argument in arguments)
    if origin is tuple:
        item_types = arguments[:1] * len(value) if arguments[-1] is ... and isinstance(value, tuple) else arguments
        return isinstance(value, tuple) and len(value) == len(item_types) and all(map(fits, value, item_types))
    if isinstance(value, bool):  # which Python takes for a number
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint) and value == value  # NaN differs from itself


def sha256_of(data: Any) -> str:
    """The checksum of plain data, as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def digest(data: Any) -> str:
    """A short name for plain data that changes whenever the data does."""
    return sha256_of(data)[:12]


def import_modules(package: str, folder: Iterable[str]) -> None:
    """Import all modules of a package; `folder` is the package's `__path__`."""
    for module in iter_modules(folder):
        import_module(f"{package}.{module.name}")


def classes(*bases: type) -> dict[str, type]:
    """These configurations and all loaded ones that derive from them, by name."""
    derived = list(bases)
    for cls in derived:  # grows while it is read
        derived += cls.__subclasses__()
    return {cls.__name__: cls for cls in derived if is_dataclass(cls)}
