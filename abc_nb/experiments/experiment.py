"""Experiments: every row of every table as a named, frozen configuration.

A name is TASK-MODEL, as in `addition-vanilla`; a profile (`smoke`, `quick`, `paper`) sets its size.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from abc_nb.bias.base import Bias
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.config import digest, to_data
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.catalogue import GRID_NAMES, PERIOD, Model, W, layers
from abc_nb.experiments.profiles import PROFILES
from abc_nb.model.positions import Fire, Kerple
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import OPERATIONS, Task
from abc_nb.training.progress import TrainingConfig

RECIPE = 1  # counts changes of the code that change what a configuration gives
SEEDS = (0, 1, 2, 3, 4)  # those that come with the project


@dataclass(frozen=True)
class Experiment:
    """All that determines a run, but for its seed."""

    name: str
    profile: str
    sampler: Sampler
    model: ModelConfig
    training: TrainingConfig
    tests: tuple[tuple[int, int], ...]  # (length, samples) of its evaluation
    parent: Experiment | None = None  # whose attention is calibrated, and whose weights are retrained
    calibration: Calibration | None = None
    warm: bool = False  # retraining starts from the parent's weights
    rank: int = 0  # of a low-rank change of queries and keys, the only thing that is retrained (LoRA)

    @property
    def task(self) -> Task:
        return self.sampler.task

    @cached_property
    def data(self) -> dict[str, Any]:
        return {"recipe": RECIPE + self.redone, "experiment": to_data(self)}

    @property
    def redone(self) -> int:
        """How many later changes of the code concerned it: calibration, where FIRE's zero stands, KERPLE's floor.

        Of padded problems two: the zeros that are written, and those that are read.
        """
        if self.calibration is None:
            return isinstance(self.model.position, Fire | Kerple)
        if self.sampler.regime == "padded" and not self.calibration.whole:
            return 2
        chosen = self.calibration.share is None and self.calibration.kappa is None
        floored = chosen and self.calibration.floor is not None
        return floored or self.task.name in LISTS

    def calibration_batch(self, seed: int) -> Batch:
        """The parent's training problems, over which its attention is averaged."""
        if self.parent is None or self.calibration is None:
            raise InputError(f"{self.name} is not calibrated: name an experiment such as addition-abc")
        return self.parent.sampler.calibration_batch(seed, whole=self.calibration.whole)

    def build(self, seed: int, bias: Lines | None = None) -> Transformer:
        """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
        config = self.model if bias is None else replace(self.model, bias=bias)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(config, len(self.task.vocabulary))

    def key(self, seed: int) -> str:
        """The name of its run folder: readable, and changing with anything that determines the run."""
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"a seed of {seed!r} is not possible: give a whole number from 0 on")
        return f"{self.name}-{self.profile}-seed{seed}-{digest(self.data | {'seed': seed})}"


ARITHMETIC = ("successor", "addition", "n-by-1", "parity")  # the paper's four tasks
TASKS = tuple(name for name in OPERATIONS if name != "parity-classification")
VARIANT_NAMES = (
    *(f"{task}-{model}" for model in catalogue.VARIANTS for task in ("successor", "addition")),
    "parity-rpe-right",
)
CLASSIFIER = "parity-classifier"
BINARY = ("addition", "n-by-1")
BASES, BASED = (2, 4, 8, 16), ("vanilla", "window-cyclic", "abc")  # claim C29
LISTS = ("listops-sm", "listops-max", "listops-min")
FACTORS = ("n-by-2", "n-by-3")
FACTOR_MODELS: tuple[str, ...] = ("vanilla", "by-head", "abc", "abc-anew")
FACTOR_NAMES = dict.fromkeys(("n-by-2-{}", "n-by-3-{}", "n-by-2-{}-base4", "n-by-3-{}-base4"), FACTOR_MODELS)
FACTOR_NAMES["n-by-3-{}"] = ("vanilla", "by-head", "by-head-wide", "abc", "abc-anew", "abc-from-4")
LIMITS = ("n-by-n", "listops-nested")  # not learned by the paper's models (claim C28)
ABLATED = ("successor", "addition", "n-by-1")  # the tasks of the ablations, and of padded problems
ROPE_SIZES = ("addition-rope-128", "addition-rope-512")  # claim C05


def names(profile: str = "quick") -> list[str]:
    """Every experiment, tasks in the paper's order; those of the grid are found by their names too."""
    models = [name for name in catalogue.MODELS if profile == "paper" or name not in catalogue.PAPER_SETTING]
    based = [f"{task}-{model}-base{base}" for task in ABLATED for model in BASED for base in BASES]
    based += [name.format(model) for name, models in FACTOR_NAMES.items() if "base" in name for model in models]
    found = [f"{task}-{model}" for task in TASKS for model in models if task in FACTORS or model not in catalogue.WIDER]
    return [*found, CLASSIFIER, *based]


def matching(pattern: str, profile: str = "quick") -> list[str]:
    """Names that match a pattern with wildcards, those of the grid if no others do; InputError if none do."""
    grid = [f"{task}-{model}" for task in ARITHMETIC for model in catalogue.GRID]
    found = fnmatch.filter(names(profile), pattern) or fnmatch.filter(grid, pattern)
    if not found:
        raise InputError(f"no experiment matches {pattern!r}, a pattern as in 'addition-*': `abc-nb list` shows all")
    return found


def experiment(name: str, profile: str = "quick", base: int = 10) -> Experiment:
    """The configuration of an experiment; InputError for a name, profile or base that is not there.

    A base other than ten can be given or be part of the name, as in `addition-abc-base4`.
    """
    if profile not in PROFILES:
        raise InputError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    model, task = find(name), task_of(name, base)
    regime = model.regime or PROFILES[profile].regime
    sampler = Sampler(task, model.arrangement, regime, PERIOD if model.extends else 1)
    config = model_config(model, sampler, profile)
    training = profiles.training(profile, model.training, model.recipe)
    training = profiles.patient(training) if is_patient(task, profile) else training
    training = profiles.undeceived(training) if task.operation.final_only and task.base == 2 else training
    found = Experiment(label(name, task), profile, sampler, config, training, tests(model, sampler, config, profile))
    if model.calibration is None and not model.rank:
        return found
    parent = experiment(f"{task.name}-{model.parent}", profile, model.parent_base or task.base)
    return replace(found, parent=parent, calibration=model.calibration, warm=model.warm, rank=model.rank)


def task_of(name: str, base: int = 10) -> Task:
    """The task in an experiment's name, in the base that is given or part of the name; InputError for two of them."""
    task, _, own = split(name)
    if own is not None and base not in (10, own):
        raise InputError(f"{name!r} has base {own}, not {base}: leave one of the two out")
    return Task(task, base if own is None else own)


def is_patient(task: Task, profile: str) -> bool:
    """Whether a task gets four layers and four times the steps."""
    return task.name in (*FACTORS, *LIMITS) and profile == "quick"


def in_usual_base(task: Task) -> bool:
    return task.base == Task(task.name).base


def label(name: str, task: Task) -> str:
    """An experiment's name with its base, if that is not the task's usual one."""
    stem = name if split(name)[2] is None else name.rpartition("-base")[0]
    return stem if in_usual_base(task) else f"{stem}-base{task.base}"


def model_config(model: Model, sampler: Sampler, profile: str) -> ModelConfig:
    """The profile's size with the model's changes, and its position and bias on the sampler's widest problems."""
    layout = sampler.task.layout(max(sampler.widths), model.arrangement)
    changes: dict[str, Any] = dict(model.size)
    if is_patient(sampler.task, profile):
        changes |= layers(0, 4)
    size = replace(PROFILES[profile].size, **changes)
    bias = model.bias if isinstance(model.bias, Bias) else model.bias(layout, size.heads, size.decoder_layers)
    return replace(size, position=model.position.trained_on(layout), bias=bias, source_index=model.source_index)


def tests(model: Model, sampler: Sampler, config: ModelConfig, profile: str) -> tuple[tuple[int, int], ...]:
    """The (length, samples) of an evaluation, as far as the position encoding reaches."""
    usual = in_usual_base(sampler.task)
    tested = profiles.tests(profile, model.tested if usual else "beyond", model.many if usual else 0)
    return tuple((length, samples) for length, samples in tested if config.position.fits(sampler.layout(length)))


def find(name: str) -> Model:
    """The model in an experiment's name."""
    task, model, _ = split(name)
    if task not in OPERATIONS or model not in catalogue.MODELS | catalogue.GRID:
        near = difflib.get_close_matches(name, names(), 3) or names()[:3]
        raise InputError(f"unknown experiment {name!r}: did you mean {', '.join(near)}? `abc-nb list` shows all")
    return (catalogue.MODELS | catalogue.GRID)[model]


def split(name: str) -> tuple[str, str, int | None]:
    """(task, model, base) of an experiment's name; the base is None if the name has none."""
    if not isinstance(name, str):
        raise InputError(f"{name!r} is no experiment: give a name, as in 'addition-vanilla'")
    if name == CLASSIFIER:
        return "parity-classification", "vanilla", None
    task = next((task for task in TASKS if name.startswith(task + "-")), "")
    model, base = name[len(task) + 1 :], None
    if found := re.fullmatch(r"(.+)-base([2-9]|1[0-6])", model):
        model, base = found[1], int(found[2])
    return task, model, base


def calibrated(name: str, profile: str = "quick") -> Experiment:
    """ABC of a plain model, `addition-abc-base4` of `addition-vanilla-base4`; InputError for any other."""
    task, model, base = split(name)
    if model != "vanilla" or task not in TASKS:
        raise InputError(f"{name!r} cannot be calibrated here: name a plain model such as addition-vanilla")
    return experiment(f"{task}-abc", profile, base or 10)


def train_command(name: str, seed: int = 0, profile: str = "quick", base: int = 10) -> str:
    """What to type to train an experiment."""
    options = [("--profile", profile, "quick"), ("--base", base, 10), ("--seed", seed, 0)]
    return " ".join(["abc-nb train", name, *(f"{flag} {value}" for flag, value, usual in options if value != usual)])


def grid_names(profile: str) -> dict[tuple[int | None, int | None], str]:
    """The part of the grid that is trained, by (window, period): w=1 with every period, T=3 and none with every window.

    `smoke` takes a corner of it; the other cells can be trained by their names.
    """
    if profile == "smoke":
        return {place: GRID_NAMES[place] for place in ((1, 3), (1, None), (None, 3))}
    return {(w, t): name for (w, t), name in GRID_NAMES.items() if w == W or t in (PERIOD, None)}


def beyond(profile: str) -> dict[str, list[str]]:
    """What goes past the paper's tables, by subject; a corner of each in `smoke`."""
    tasks, binary, bases, sizes = [*ARITHMETIC], [*BINARY], [*BASES], [*catalogue.SIZED]
    if profile == "smoke":
        tasks, binary, bases, sizes = tasks[:1], binary[:1], bases[1:2], sizes[:2]
    return {
        "methods": [f"{task}-{model}" for task in tasks for model in catalogue.METHODS],
        "places": [f"{task}-{model}" for task in binary for model in (*catalogue.PLACED, "coupling", "window-cyclic")],
        "lists": [f"{task}-{model}" for task in LISTS for model in ("vanilla", "window", "window-cyclic", "abc")],
        "bases": [f"{task}-{model}-base{base}" for base in bases for task in ABLATED for model in BASED],
        "factors": [name.format(model) for name, models in FACTOR_NAMES.items() for model in models],
        "limits": [f"{task}-vanilla" for task in LIMITS],
        "sizes": [f"addition-{model}" for model in ("window-cyclic", *sizes)],
    }


def lasting(profile: str) -> list[str]:
    """The runs of ABS and ABC that are meant to hold at any length: the paper's tasks, lists, bases and factors."""
    groups = beyond(profile)
    chosen = [f"{task}-{model}" for task in ARITHMETIC for model in ("window-cyclic", "abc")]
    chosen += [*groups["lists"], *groups["bases"], *groups["factors"]]
    return [name for name in chosen if split(name)[1] in catalogue.LASTING]


def padded_names(models: Sequence[str], profile: str) -> list[str]:
    """Models of plain names on padded problems, which in the profile `paper` all are."""
    end = "" if profile == "paper" else "-padded"
    return [f"{task}-{model}{end}" for task in ABLATED for model in models]


def needed(profile: str, everything: bool = False) -> Sequence[Experiment]:
    """The experiments that the notebooks show, in the order to train them.

    `quick` leaves the ablations, the map of windows and periods, padded problems, large models and most of
    notebook 7 to the shipped results, unless `everything` is asked for.
    """
    models = [*catalogue.BASELINES, *catalogue.SCAFFOLDS, "abc", "lora"]
    names = [f"{task}-{model}" for model in models for task in ARITHMETIC] + [*VARIANT_NAMES, CLASSIFIER]
    if everything or profile != "quick":
        padded = () if profile == "paper" else catalogue.PADDED  # as all of that profile is
        names += [f"{task}-{model}" for model in (*catalogue.ABLATIONS, *padded) for task in ABLATED]
        names += [f"{task}-{model}" for model in grid_names(profile).values() for task in ARITHMETIC]
        names += [f"{task}-{model}" for model in catalogue.PERIODS for task in BINARY] + [*ROPE_SIZES]
        names += [name for group in beyond(profile).values() for name in group]
    return [experiment(name, profile) for name in dict.fromkeys(names)]
