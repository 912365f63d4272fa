"""Folders of which each file adds something: all of it is found, and no list of names is kept."""

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def load(package: str, folder: Iterable[str]) -> None:
    """Import all modules of a package; `folder` is the package's `__path__`."""
    for module in iter_modules(folder):
        import_module(f"{package}.{module.name}")


def classes(*bases: type) -> dict[str, type]:
    """These configurations and all loaded ones that derive from them, by name."""
    every = list(bases)
    for cls in every:  # grows while it is read
        every += cls.__subclasses__()
    return {cls.__name__: cls for cls in every if is_dataclass(cls)}


def looked_up(kind: str, base: type) -> Callable[[str], Any]:
    """A package's `__getattr__`, which gives the classes that derive from `base`; AttributeError names them."""

    def look_up(name: str) -> type:
        found = classes(base)
        if name in found:
            return found[name]
        raise AttributeError(f"no {kind} is called {name!r}: there are {', '.join(sorted(found))}")

    return look_up
