"""What determines a run of a language model but for its seed, and the four that have names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from abc_nb.bias.spans import SpanLines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.config import digest, to_data
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture
from abc_nb.model.positions import Rotary
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.spans import VOCABULARY, Pattern
from abc_nb.problems.tasks import Task
from abc_nb.training.recipe import TrainingConfig

PREFIX = "language-"
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
PLACES = 16  # positions that a problem takes where a token stands at its place: more than a number has in training


def patterns() -> tuple[Pattern, ...]:
    """The problems that language models learn here."""
    return tuple(Pattern(Task(task), form) for task, form in FORMS.items())


@dataclass(frozen=True)
class LanguageSpec:
    """All that determines a run of a language model, but for its seed."""

    name: str  # as people type it
    mixture: Mixture
    model: ModelConfig
    training: TrainingConfig = TRAINING
    rounds: int = 0  # of practice, at most
    practice: TrainingConfig = PRACTICE  # one round of it
    parent: LanguageSpec | None = None  # whose attention in problems is calibrated
    calibration: Calibration | None = None  # how lines are read out of the parent's attention

    @cached_property
    def data(self) -> dict[str, Any]:
        """All that a run depends on but its seed, as plain data."""
        unused = {"name"} if self.rounds else {"name", "practice"}
        own = {name: value for name, value in to_data(replace(self, parent=None)).items() if name not in unused}
        return own | {"vocabulary": VOCABULARY} | ({"parent": self.parent.data} if self.parent else {})

    def key(self, seed: int) -> str:
        """The name of its run: readable, and ending in a digest of all that it depends on."""
        return f"{self.name}-seed{seed}-{digest(self.data)}"

    def build(self, seed: int, bias: SpanLines | None = None) -> Transformer:
        """The untrained model; its initial weights follow from the seed. `bias` replaces the configured one."""
        config = self.model if bias is None else replace(self.model, bias=bias)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(config, len(VOCABULARY))


def language_spec(name: str) -> LanguageSpec:
    """The spec of a name, as `language-abs`; InputError for any other."""
    known = {spec.name: spec for spec in language_specs()}
    if name not in known:
        raise InputError(f"unknown language model {name!r}: choose one of {', '.join(known)}")
    return known[name]


def language_specs() -> tuple[LanguageSpec, ...]:
    """Text alone; text and problems plain, with ABS and with ABC; and the model whose attention ABC is read out of.

    The last one, `language-placed`, is a plain model of problems alone: a token sees all of its problem before it, and
    its position is its place.
    """
    own = patterns()
    scaffold = SpanLines.one_key_per_head(own, HEADS, LAYERS)
    config = ModelConfig(
        width=128,
        heads=HEADS,
        feed_forward=512,
        decoder_layers=LAYERS,
        position=Rotary(),
        source_index="running",
        kind="decoder-only",
    )
    alone = Mixture(own, characters=64, text=False)
    placed = LanguageSpec(
        f"{PREFIX}placed", alone, replace(config, bias=SpanLines.whole(own, HEADS, PLACES)), TRAINING_ALONE
    )
    return (
        LanguageSpec(f"{PREFIX}text", Mixture(()), config),
        LanguageSpec(f"{PREFIX}plain", Mixture(own), config),
        LanguageSpec(f"{PREFIX}abs", Mixture(own), replace(config, bias=scaffold), rounds=ROUNDS),
        LanguageSpec(f"{PREFIX}abc", Mixture(own), config, rounds=ROUNDS, parent=placed, calibration=LINES),
        placed,
    )
