"""What determines a run of a language model but for its seed, and the four that have names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import pandas as pd
import torch

from abc_nb.bias.spans import SpanLines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.certificates.spans import SpanContexts
from abc_nb.common.config import to_data
from abc_nb.common.errors import InputError
from abc_nb.language.answering import problems_of, spoken
from abc_nb.language.evaluation import TESTS, evaluate
from abc_nb.language.mixture import Mixture
from abc_nb.language.training import contexts_of_text
from abc_nb.model.positions import Rotary
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.spans import VOCABULARY, Pattern
from abc_nb.problems.tasks import Task
from abc_nb.specs.changes import changed
from abc_nb.specs.experiment import LABELS, LANGUAGE, Experiment, Name
from abc_nb.training.recipe import TrainingConfig

FORMS = {"addition": "{a}+{b}=", "n-by-1": "{a}*{d}=", "successor": "succ({a})=", "parity": "parity({bits})="}
HEADS, LAYERS = 8, 2
TRAINING = TrainingConfig(
    steps=1600, batch=16, held_batch=16, hold=600, learned=2.0, again=1, validate_every=200, validation=320
)
PRACTICE = replace(TRAINING, steps=100, batch=8, held_batch=8, hold=40, warmup=10, again=0)
PRACTICE = replace(PRACTICE, learning_rate=1e-3, matrix_learning_rate=2e-3)
TRAINING_ALONE = replace(TRAINING, steps=2000, batch=64, held_batch=64, hold=1000)
ROUNDS = 9
LINES = Calibration()  # the sparsest lines that determine the answer
TITLES = {"text": "text alone", "plain": "plain", "abs": "ABS", "abc": "ABC", "placed": "problems alone, by place"}
PARTS = ("mixture", "model", "training", "practice")  # of a spec, of which fields can be changed
PLACES = 16  # positions that a problem takes where a token stands at its place: more than a number has in training


def patterns() -> tuple[Pattern, ...]:
    """The problems that language models learn here."""
    return tuple(Pattern(Task(task), form) for task, form in FORMS.items())


@dataclass(frozen=True)
class LanguageSpec(Experiment):
    """All that determines a run of a language model, but for its seed."""

    mixture: Mixture
    model: ModelConfig
    training: TrainingConfig = TRAINING
    rounds: int = 0  # of practice, at most
    practice: TrainingConfig = PRACTICE  # one round of it
    parent: LanguageSpec | None = None  # whose attention in problems is calibrated
    calibration: Calibration | None = None  # how lines are read out of the parent's attention
    identity: Name = field(default=Name(LANGUAGE, "text"), compare=False)
    profile: str = field(default="quick", compare=False)
    changes: tuple[str, ...] = field(default=(), compare=False)
    tests: tuple[tuple[int, int], ...] = field(default=TESTS, compare=False)  # (length, samples)

    @cached_property
    def data(self) -> dict[str, Any]:
        """All that a run depends on but its seed, as plain data."""
        unused = {*LABELS} if self.rounds else {*LABELS, "practice"}
        used = {name: value for name, value in to_data(replace(self, parent=None)).items() if name not in unused}
        return used | {"vocabulary": VOCABULARY} | ({"parent": self.parent.data} if self.parent else {})

    @property
    def regime(self) -> str:
        return "text"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"language model, {TITLES[self.identity.model]}"

    def check(self, typed: str) -> None:
        """InputError for a text that a model cannot answer."""
        problems_of(self.mixture.patterns, typed)

    def answers(self, model: Transformer, texts: Iterable[str], trace: bool = False) -> Iterator[str]:
        """The answers to the problems of each text, a line each, or with `trace` the text as the model writes it."""
        return (spoken(model, text, trace) for text in texts)

    def evaluate(self, model: Transformer, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """Rows of accuracy for each form and each (length, samples)."""
        return pd.DataFrame(evaluate(model, self.mixture.patterns, tests))

    def contexts(self, model: Transformer) -> list[SpanContexts]:
        """All that the answers of a model can look at, a form at a time."""
        return contexts_of_text(model)

    def build(self, seed: int, bias: SpanLines | None = None) -> Transformer:
        """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
        config = self.model if bias is None else replace(self.model, bias=bias)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(config, len(VOCABULARY))


def language_spec(identity: Name, profile: str, changes: tuple[str, ...]) -> LanguageSpec:
    """The spec of a language model; InputError for a profile that there is not, or a change that is not possible."""
    if profile != "quick":
        raise InputError(f"{identity} has no profile {profile!r}: language models have quick alone")
    plain = language_models()[identity.model]
    parts = PARTS if plain.rounds else PARTS[:-1]
    for change in changes:
        if change.partition(".")[0] not in parts:
            advice = f"{identity} has the parts {', '.join(parts)}, as in training.steps=9"
            raise InputError(f"cannot set {change!r}: {advice}")
    values = {part: changed(getattr(plain, part), part, changes) for part in parts}
    return replace(plain, **values, identity=identity, changes=changes)


@cache
def language_models() -> dict[str, LanguageSpec]:
    """By name: text alone; text and problems plain, with ABS and with ABC; and the model that ABC is read out of.

    The last one, `placed`, is a plain model of problems alone: a token sees all of its problem before it, and its
    position is its place.
    """
    forms = patterns()
    scaffold = SpanLines.one_key_per_head(forms, HEADS, LAYERS)
    config = ModelConfig(
        width=128,
        heads=HEADS,
        feed_forward=512,
        decoder_layers=LAYERS,
        position=Rotary(),
        source_index="running",
        kind="decoder-only",
    )
    whole = replace(config, bias=SpanLines.whole(forms, HEADS, PLACES))
    alone = Mixture(forms, characters=64, text=False)
    placed = LanguageSpec(alone, whole, TRAINING_ALONE, identity=Name(LANGUAGE, "placed"))
    models = {
        "text": LanguageSpec(Mixture(()), config),
        "plain": LanguageSpec(Mixture(forms), config),
        "abs": LanguageSpec(Mixture(forms), replace(config, bias=scaffold), rounds=ROUNDS),
        "abc": LanguageSpec(Mixture(forms), config, rounds=ROUNDS, parent=placed, calibration=LINES),
        "placed": placed,
    }
    return {name: replace(own, identity=Name(LANGUAGE, name)) for name, own in models.items()}
