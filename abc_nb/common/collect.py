"""Folders of which each file adds something: all of it is found, and no list of names is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def collect(package: str, folder: Iterable[str]) -> dict[str, type]:
    """The classes that the modules of a package define, by name; `folder` is the package's `__path__`."""
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(folder)]
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }


def looked_up(kind: str, found: Mapping[str, type]) -> Callable[[str], Any]:
    """A package's `__getattr__`, which gives what was found in it; AttributeError names that."""

    def look_up(name: str) -> type:
        if name in found:
            return found[name]
        raise AttributeError(f"no {kind} is called {name!r}: there are {', '.join(sorted(found))}")

    return look_up
