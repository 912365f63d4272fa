"""A spec: all that determines a run but for its seed, as one frozen record, and how one is made from a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pandas as pd

from abc_nb.bias import Bias
from abc_nb.certificates.certify import contexts_of
from abc_nb.certificates.contexts import Contexts
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.specs.experiment import LANGUAGE, BaseSpec, Name, changed, within
from abc_nb.specs.language import language_models, language_spec
from abc_nb.specs.models import PERIOD, ModelRow, Start, layers, models_of
from abc_nb.specs.names import every_name, parse
from abc_nb.specs.recipes import PROFILES, TESTS
from abc_nb.training import evaluation
from abc_nb.training.recipe import TrainingConfig

SEEDS = (0, 1, 2, 3, 4)  # those that come with the project, and with which methods were developed
# Products, whose carries have several digits, and lists in lists: four layers, four times the steps, batches of 128.
LONGER_TASKS = [(task, "quick") for task in ("n-by-2", "n-by-3", "direct-n-by-n", "direct-listops-nested")]
FROM_A_PARENT = ("calibration", "start", "accept", "rank")  # fields of models that come from another
MOST_TOKENS = 2 * 10**6  # of a test problem's output


@dataclass(frozen=True)
class Spec(BaseSpec):
    """All that determines a run of arithmetic, but for its seed."""

    sampler: Sampler
    training: TrainingConfig
    parent: Spec | None = field(default=None, kw_only=True)
    start: Start = "new"  # the weights at the beginning
    accept: float = 0.0  # validation accuracy below which more lines are read, and the model is trained anew
    rank: int = 0  # of a low-rank change of queries and keys, the only thing that is trained (LoRA)
    practice: int = 0  # rounds, at most: training goes on with what the parent gets wrong until it is certified

    def __post_init__(self) -> None:
        check_fields(self, accept=0, rank=0, practice=0)

    @property
    def task(self) -> Task:
        return self.sampler.task

    @property
    def vocabulary(self) -> Sequence[str]:
        return self.task.vocabulary

    @property
    def regime(self) -> str:
        return self.sampler.regime

    @property
    def title(self) -> str:
        model = models_of(self.task)[self.identity.model].title + ", decoder-only" * (self.model.kind == "decoder-only")
        widths = f"{self.regime} problems" + f" of {self.sampler.width_count} widths" * (self.sampler.width_count > 1)
        return f"{self.task.title}, {model}, {widths}"

    def check(self, typed: str) -> None:
        """InputError for what is no problem of the task."""
        self.task.read(typed)

    def answers(self, model: Transformer, problems: Iterable[str], trace: bool = False) -> Iterator[str]:
        """The answers to typed problems; with `trace` each comes after the table that it was read from."""
        return evaluation.answers(model, self.sampler, problems, trace)

    def evaluate(self, model: Transformer, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """How many are right at each (length, samples)."""
        rows = evaluation.evaluate(model, self.sampler, tests).assign(asked=[samples for _, samples in tests])
        return rows[["length", "asked", "samples", "correct"]]

    def contexts(self, model: Transformer) -> list[Contexts]:
        """All that a model's steps can look at; InputError where finitely many contexts do not cover it."""
        return [contexts_of(model, self.sampler)]

    def calibration_batch(self, seed: int) -> Batch:
        """The parent's training problems, over which its attention is averaged."""
        assert self.parent is not None and self.calibration is not None, "ABC before practice"
        return self.parent.sampler.calibration_batch(seed, padding=self.calibration.padding)


def spec(name: str | Name, profile: str = "quick", changes: Sequence[str] = ()) -> Any:
    """The spec of a name, a `Spec` or a `LanguageSpec`; InputError for a name, profile or change that is not possible.

    Changes are of fields, as in `training.steps=3200`, and give another run.
    """
    if not isinstance(profile, str) or profile not in PROFILES:
        raise InputError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    if not isinstance(changes, list | tuple) or not all(isinstance(change, str) for change in changes):
        raise InputError(f"changes are a list of texts, as in ['training.steps=3200'], not {changes!r}")
    identity = name if isinstance(name, Name) else parse(str(name))
    if identity is None or not is_there(identity):
        near = difflib.get_close_matches(str(name), map(str, every_name()), 3)
        question = f"did you mean {', '.join(near)}? " if near else ""
        raise InputError(f"unknown experiment {str(name)!r}: {question}`abc-nb list` shows all")
    if identity.task == LANGUAGE:
        return language_spec(identity, profile, tuple(changes))
    return specify(identity, profile, tuple(changes))


def is_there(identity: Name) -> bool:
    """Whether the table of models has it."""
    models = language_models() if identity.task == LANGUAGE else models_of(Task(identity.task))
    return identity.model in models


@cache
def specify(identity: Name, profile: str, changes: tuple[str, ...] = ()) -> Spec:
    """A spec from its parts: the profile's settings, the task's and the model's over them, and changes over all."""
    task = Task(identity.task, identity.base)
    model = models_of(task)[identity.model]
    if model.practised:
        return practised_spec(identity, model, profile, changes)
    has_parent = model.calibration is not None or model.rank > 0
    for change in changes:
        part, dot, _ = change.partition("=")[0].partition(".")
        if dot and part not in ("sampler", "model", "training", *["parent"] * has_parent):
            raise InputError(f"cannot set {change!r}: {identity} has no part {part!r}")
        if (part in FROM_A_PARENT and not has_parent) or part == "practice":
            raise InputError(f"cannot set {change!r}: {identity} is not made from another model in this way")
        if change in ("parent=null", "calibration=null"):
            raise InputError(f"cannot set {change!r}: {identity} is made from another model")
        if model.calibration is not None and change.partition("=")[0].startswith("model.bias"):
            raise InputError(f"cannot set {change!r}: the bias of {identity} is read out of another model")
    spec = specify_task(task, identity.model, profile, changes)
    if has_parent:
        fields = {name: getattr(model, name) for name in FROM_A_PARENT}
        parent = Name(task.name, model.parent, model.parent_base or task.base)
        spec = replace(spec, parent=specify(parent, profile, within("parent", changes)), **fields)
    return changed(spec, "", changes)


def specify_task(task: Task, name: str, profile: str, changes: tuple[str, ...] = ()) -> Spec:
    """The spec of a model that has no parent, on any task: the name is that of a model."""
    model = models_of(task)[name]
    regime = model.regime or PROFILES[profile].regime
    sampler = changed(Sampler(task, model.arrangement, regime, PERIOD if model.extends else 1), "sampler", changes)
    config = model_config(model, sampler, profile, changes)
    training = changed(training_config(model, task, profile), "training", changes)
    tested = tests(model, sampler, config, profile)
    identity = Name(task.name, name, task.base)
    return Spec(sampler, training, model=config, tests=tested, identity=identity, profile=profile, changes=changes)


def practised_spec(identity: Name, model: ModelRow, profile: str, changes: tuple[str, ...]) -> Spec:
    """The spec of a model that is trained on until it is certified: its parent's, with the training of all rounds.

    Its `steps` are those of all rounds together, its `hold` and `warmup` those of each.

    Changes are of the parent, all but that of `practice` itself, the largest number of rounds.
    """
    practice_changes = [change for change in changes if change.startswith("practice=")]
    parent_changes = tuple(change for change in changes if change not in practice_changes)
    parent = specify(replace(identity, model=model.parent), profile, parent_changes)
    spec = replace(
        parent,
        identity=identity,
        changes=changes,
        training=training_config(model, parent.task, profile),
        practice=PROFILES[profile].rounds,
        parent=parent,
        calibration=None,
        start="parent",
        accept=0.0,
        tests=tests(model, parent.sampler, parent.model, profile),
    )
    practised = changed(spec, "", practice_changes)
    check_fields(practised, practice=1)  # without a round it is the model before practice, which has a name
    return practised


def training_config(model: ModelRow, task: Task, profile: str) -> TrainingConfig:
    """The training that a profile gives to a model, changed for tasks that take longer or have two answers."""
    config = model.training[profile]
    if (task.name, profile) in LONGER_TASKS:
        config = replace(config, steps=4 * config.steps, hold=4 * config.hold, held_batch=128)
    guessing = task.rule.final_only and task.base == 2  # gets half of the answers right
    return replace(config, learned=0.75) if guessing else config


def model_config(model: ModelRow, sampler: Sampler, profile: str, changes: tuple[str, ...]) -> ModelConfig:
    """The profile's size with the task's and the model's changes; position and bias know the widest problems."""
    size: dict[str, Any] = {**layers(0, 4)} if (sampler.task.name, profile) in LONGER_TASKS else {}
    size |= {**model.size, "source_index": model.source_index, "kind": model.kind, "position": model.position}
    config = replace(PROFILES[profile].size, **size)
    config = changed(config, "model", [change for change in changes if "bias" not in change])
    layout = sampler.task.layout(sampler.widest, sampler.arrangement)
    bias = model.bias if isinstance(model.bias, Bias) else model.bias(layout, config.heads, config.decoder_layers)
    config = replace(config, position=config.position.trained_on(layout), bias=bias)
    return changed(config, "model", [change for change in changes if "bias" in change])


def tests(model: ModelRow, sampler: Sampler, config: ModelConfig, profile: str) -> tuple[tuple[int, int], ...]:
    """The (length, samples) of an evaluation, as far as the position encoding reaches."""
    task = sampler.task
    usual = task.table or task.name not in REGISTRY or task.base == Task(task.name).base
    samples_by_length = PROFILES[profile].tests or TESTS[model.tested if usual else "beyond"]

    def fits(layout: Layout) -> bool:
        return layout.target_length < MOST_TOKENS and config.position.fits(layout)

    return tuple((length, samples) for length, samples in samples_by_length.items() if fits(sampler.layout(length)))


CALIBRATED = {"vanilla": "abc-unpractised", "decoder-vanilla": "decoder-abc-unpractised"}  # plain models, ABC of them


def abc_of(name: str, profile: str = "quick") -> Spec:
    """ABC of a plain model, before practice; InputError for any other model."""
    identity = parse(name)
    if identity is None or identity.model not in CALIBRATED or identity.task == LANGUAGE:
        raise InputError(f"{name!r} cannot be calibrated here: name a plain model such as addition-vanilla")
    return specify(replace(identity, model=CALIBRATED[identity.model]), profile)
