"""What identifies an experiment: a name that people type, and a digest of all that a run of it depends on."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import pandas as pd
import torch

from abc_nb.bias import Bias
from abc_nb.calibration.calibrate import Calibration
from abc_nb.certificates.contexts import Contexts
from abc_nb.common.config import classes, digest, from_data, hints, to_data
from abc_nb.common.errors import InputError
from abc_nb.model.positions import PositionEncoding
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task

LANGUAGE = "language"  # the task of language models, which learn several forms of problems in a text
LABEL = {"stored": False}  # of a field that no weight depends on
Configuration = TypeVar("Configuration")


@dataclass(frozen=True)
class Name:
    """A task, a model and a base; written, as people type it, `addition-abc` or `addition-abc-base4`.

    Raises InputError for a base that the task cannot have; a task that is not registered, as a reader's, may have any.
    """

    task: str
    model: str
    base: int = 0  # 0: the task's usual one

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", usual_base(self.task) if self.base == 0 else self.base)
        if self.task in REGISTRY:
            Task(self.task, self.base)

    def __str__(self) -> str:
        return f"{self.task}-{self.model}" + ("" if self.base == usual_base(self.task) else f"-base{self.base}")


def usual_base(task: str) -> int:
    """The base that a name does not mention."""
    return Task(task).base if task in REGISTRY else 10


@dataclass(frozen=True, kw_only=True)
class BaseSpec:
    """What every kind of spec has: an identity, and all that a run depends on but its seed."""

    model: ModelConfig
    parent: Any = None  # one of the same kind, whose attention is calibrated or whose weights training starts from
    calibration: Calibration | None = None  # how the bias is read out of the parent's attention
    # The (length, samples) that a run is evaluated on; more tests can be made later.
    tests: tuple[tuple[int, int], ...] = field(default=(), compare=False, metadata=LABEL)
    identity: Name = field(compare=False, metadata=LABEL)
    profile: str = field(default="quick", compare=False, metadata=LABEL)
    # Changes of what the name stands for, as in training.steps=3200.
    changes: tuple[str, ...] = field(default=(), compare=False, metadata=LABEL)

    @property
    def vocabulary(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What it is, in words."""
        raise NotImplementedError

    @property
    def regime(self) -> str:
        """How problems are written: tight, padded or unpadded, or within a text."""
        raise NotImplementedError

    def evaluate(self, model: Transformer, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """How many are right (`length`, `samples`, `correct`): a row for each (length, samples), or several."""
        raise NotImplementedError

    def check(self, typed: str) -> None:
        """InputError for what a model cannot answer."""
        raise NotImplementedError

    def answers(self, model: Transformer, problems: Iterable[str], trace: bool = False) -> Iterator[str]:
        """The answers to what was typed; with `trace` also what they were read from."""
        raise NotImplementedError

    def contexts(self, model: Transformer) -> Sequence[Contexts]:
        """All that a model's steps can look at, for one certificate or several."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """As people type it: `addition-vanilla`, with its changes."""
        return " ".join([str(self.identity), *(f"--set {change}" for change in self.changes)])

    @cached_property
    def data(self) -> dict[str, Any]:
        """All that a run depends on but its seed, defaults included, as plain data."""
        return to_data(self)

    @cached_property
    def digest(self) -> str:
        """A short name that changes whenever a field does; `common.config` says what that takes."""
        return digest(self.data)

    def key(self, seed: int) -> str:
        """The name of its run: readable, and ending in the digest."""
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"a seed of {seed!r} is not possible: give a whole number from 0 on")
        return f"{self.identity}-{self.profile}-seed{seed}-{self.digest}"

    def build(self, seed: int, bias: Bias | None = None) -> Transformer:
        """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(self.config_under(bias), len(self.vocabulary))

    def config_under(self, bias: Bias | None) -> ModelConfig:
        """The model's configuration; `bias` replaces the configured one."""
        return self.model if bias is None else replace(self.model, bias=bias)


# ---- changes of fields, written as people type them: `training.steps=3200`, `model.position=Rotary`


def within(prefix: str, changes: Sequence[str]) -> tuple[str, ...]:
    """The changes of one part, without its name: `steps=1` of `training.steps=1`."""
    return tuple(change.removeprefix(f"{prefix}.") for change in changes if change.startswith(f"{prefix}."))


def changed(value: Configuration, prefix: str, changes: Sequence[str]) -> Configuration:
    """A configuration with the changes of its own fields; InputError for a change that is not possible."""
    inner = within(prefix, changes) if prefix else [change for change in changes if "." not in change.partition("=")[0]]
    names = [field.name for field in fields(value) if field.compare]  # type: ignore[arg-type]
    values, kind = dict[str, Any](), cast(Any, type(value))
    for change in inner:
        name, sign, text = change.partition("=")
        if not sign or name not in names:
            typed = f"{prefix}.{change}".removeprefix(".")
            raise InputError(f"cannot set {typed!r}: give FIELD=VALUE, where a field is one of {', '.join(names)}")
        new = value_of(text)
        values[name] = float(new) if hints(kind)[name] is float and type(new) is int else new  # 0 is 0.0: one digest
    return replace(value, **values)  # type: ignore[type-var]


def value_of(text: str) -> Any:
    """A number, a word, or a bias, position encoding or calibration: by its class, or in JSON with its fields."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = text
    configurations = classes(PositionEncoding, Bias, Calibration)
    if isinstance(data, str) and data in configurations:
        data = {"type": data}
    return from_data(data, configurations.values()) if isinstance(data, dict | list) else data
