"""Experiments: a task, a model and a profile as one frozen configuration, and the key of its runs."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from abc_nb.bias import Bias, Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.certificates.files import PLAIN, REPAIRED
from abc_nb.common.config import digest, to_data
from abc_nb.common.errors import InputError
from abc_nb.experiments import profiles
from abc_nb.experiments.catalogue import models_of
from abc_nb.experiments.models import PERIOD, Model, layers
from abc_nb.experiments.names import Name, parse
from abc_nb.experiments.profiles import PROFILES
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tables import Tables
from abc_nb.problems.tasks import REGISTRY, Task
from abc_nb.training.progress import TrainingConfig

SEEDS = (0, 1, 2, 3, 4)  # those that come with the project
LONGER = (
    "n-by-2",
    "n-by-3",
    "direct-n-by-n",
    "direct-listops-nested",
)  # tasks that get four layers and four times the steps
MOST_TOKENS = 2 * 10**6  # of a test problem's output
LABELS = ("identity", "profile", "tests")  # fields of an experiment that do not change its weights


@dataclass(frozen=True)
class Experiment:
    """All that determines a run, but for its seed."""

    identity: Name
    profile: str
    sampler: Sampler
    model: ModelConfig
    training: TrainingConfig
    tests: tuple[tuple[int, int], ...]  # (length, samples) of its evaluation
    parent: Experiment | None = None  # whose attention is calibrated, and whose weights are retrained if it is warm
    calibration: Calibration | None = None
    warm: bool = False  # training starts from the parent's weights
    accept: float = 0.0  # validation accuracy below which more lines are read, and the model is trained anew
    rank: int = 0  # of a low-rank change of queries and keys, the only thing that is retrained (LoRA)
    rounds: int = 0  # of repair, at most: the parent is trained on with what it gets wrong until it is certified

    @property
    def name(self) -> str:
        """As people type it: `addition-vanilla`."""
        return str(self.identity)

    @property
    def task(self) -> Task:
        return self.sampler.task

    @property
    def recipe(self) -> str:
        """What a certificate calls the way to the weights: plain or repaired."""
        return REPAIRED if self.rounds else PLAIN

    @cached_property
    def data(self) -> dict[str, Any]:
        """All that a run depends on but its seed, defaults included, as plain data."""
        own: dict[str, Any] = json.loads(json.dumps(to_data(replace(self, parent=None))))
        own = {name: value for name, value in own.items() if name not in LABELS}
        return own if self.parent is None else own | {"parent": self.parent.data}

    @cached_property
    def digest(self) -> str:
        """A short name that changes whenever a field does."""
        return digest(self.data)

    def calibration_batch(self, seed: int) -> Batch:
        """The parent's training problems, over which its attention is averaged."""
        if self.parent is None or self.calibration is None:
            raise InputError(f"{self.name} is not calibrated: name an experiment such as addition-abc")
        return self.parent.sampler.calibration_batch(seed, padding=self.calibration.padding)

    def build(self, seed: int, bias: Lines | None = None) -> Transformer:
        """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
        config = self.model if bias is None else replace(self.model, bias=bias)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(config, len(self.task.vocabulary))

    def key(self, seed: int) -> str:
        """The name of its run: readable, and ending in a digest of all that it depends on."""
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"a seed of {seed!r} is not possible: give a whole number from 0 on")
        return f"{self.name}-{self.profile}-seed{seed}-{self.digest}"


def experiment(name: str | Name, profile: str = "quick", base: int | None = None) -> Experiment:
    """The configuration of an experiment; InputError for a name, profile or base that is not there.

    A base other than the task's usual one can be given or be part of the name, as in `addition-abc-base4`.
    """
    if profile not in PROFILES:
        raise InputError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    identity = parse(name, base)
    if identity is None or identity.model not in models_of(Task(identity.task)):
        raise InputError(unknown(str(name)))
    return specify(identity, profile)


def specify(identity: Name, profile: str) -> Experiment:
    """An experiment from its parts. Settings come in layers: default, profile, task, model; the later wins."""
    task = Task(identity.task, identity.base)
    model = models_of(task)[identity.model]
    regime = model.regime or PROFILES[profile].regime
    sampler = Sampler(task, model.arrangement, regime, PERIOD if model.extends else 1)
    config = model_config(model, sampler, profile)
    training = training_config(model, task, profile)
    found = Experiment(identity, profile, sampler, config, training, tests(model, sampler, config, profile))
    if model.calibration is None and not model.rank and not model.rounds:
        return found
    parent = specify(Name(task.name, model.parent, model.parent_base or task.base), profile)
    changes = {field: getattr(model, field) for field in ("calibration", "warm", "accept", "rank", "rounds")}
    return replace(found, parent=parent, **changes)


def unknown(name: str) -> str:
    """One sentence on a name that no experiment has."""
    known = [f"{task}-{model}" for task in REGISTRY for model in models_of(Task(task))]
    near = difflib.get_close_matches(name, known, 3)
    question = f"did you mean {', '.join(near)}? " if near else ""
    return f"unknown experiment {name!r}: {question}`abc-nb list` shows all"


def takes_longer(task: Task, profile: str) -> bool:
    """Whether a task gets four layers and four times the steps."""
    return task.name in LONGER and profile == "quick"


def training_config(model: Model, task: Task, profile: str) -> TrainingConfig:
    """The training that a profile gives to a model, changed for tasks that take longer or have two answers."""
    found = profiles.training(profile, model.training, model.recipe)
    found = profiles.longer(found) if takes_longer(task, profile) else found
    return profiles.past_guessing(found) if task.chance == 0.5 else found


def model_config(model: Model, sampler: Sampler, profile: str) -> ModelConfig:
    """The profile's size with the task's and the model's changes; position and bias know the widest problems."""
    layout = sampler.task.layout(sampler.widest, model.arrangement)
    changes: dict[str, Any] = dict(layers(0, 4)) if takes_longer(sampler.task, profile) else {}
    changes |= {"dropout": 0.0} if model.recipe == "ours" else {}
    size = replace(PROFILES[profile].size, **changes | dict(model.size))
    bias = model.bias if isinstance(model.bias, Bias) else model.bias(layout, size.heads, size.decoder_layers)
    changed: dict[str, Any] = {"bias": bias, "source_index": model.source_index, "kind": model.kind}
    return replace(size, position=model.position.trained_on(layout), **changed)


def tests(model: Model, sampler: Sampler, config: ModelConfig, profile: str) -> tuple[tuple[int, int], ...]:
    """The (length, samples) of an evaluation, as far as the position encoding reaches."""
    usual = isinstance(sampler.task, Tables) or sampler.task.base == Task(sampler.task.name).base
    tested = profiles.tests(profile, model.tested if usual else "beyond", model.many if usual else 0)
    layouts = {length: sampler.layout(length) for length, _ in tested}
    fits = {n for n, layout in layouts.items() if layout.target_length < MOST_TOKENS and config.position.fits(layout)}
    return tuple((length, samples) for length, samples in tested if length in fits)


CALIBRATED = {"vanilla": "abc", "decoder-vanilla": "decoder-abc"}  # plain models, and ABC of them


def calibrated(name: str, profile: str = "quick") -> Experiment:
    """ABC of a plain model, `addition-abc-base4` of `addition-vanilla-base4`; InputError for any other."""
    identity = parse(name)
    if identity is None or identity.model not in CALIBRATED or identity.task == "parity-classification":
        raise InputError(f"{name!r} cannot be calibrated here: name a plain model such as addition-vanilla")
    return specify(replace(identity, model=CALIBRATED[identity.model]), profile)


def train_command(name: str | Name, seed: int = 0, profile: str = "quick", base: int | None = None) -> str:
    """What to type to train an experiment."""
    options = [("--profile", profile, "quick"), ("--base", base, None), ("--seed", seed, 0)]
    return " ".join(
        ["abc-nb train", str(name), *(f"{flag} {value}" for flag, value, usual in options if value != usual)]
    )
