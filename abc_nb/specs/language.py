"""What determines a run of a language model but for its seed, and the six that have names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pandas as pd

from abc_nb.bias import Bias
from abc_nb.bias.text import SpanLines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.certificates.text import SpanContexts
from abc_nb.common.config import added_field
from abc_nb.common.errors import InputError
from abc_nb.language.answering import problems_of, spoken
from abc_nb.language.evaluation import TEXT_TESTS, evaluate_texts
from abc_nb.language.mixture import Mixture
from abc_nb.language.training import contexts_of_text
from abc_nb.model.positions import Rotary
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.tasks import Task
from abc_nb.problems.text import VOCABULARY, Pattern
from abc_nb.specs.experiment import LANGUAGE, BaseSpec, Name, changed
from abc_nb.training.recipe import TrainingConfig

FORMS = {"addition": "{a}+{b}=", "n-by-1": "{a}*{d}=", "successor": "succ({a})=", "parity": "parity({bits})="}
OPERATIONS = FORMS | {"subtraction": "{a}-{b}=", "comparison": "{a}?{b}=", "division": "{a}//{d}="}
HEADS, LAYERS = 8, 2
TRAINING = TrainingConfig(
    steps=1600, batch=16, held_batch=16, hold=600, learned=2.0, again=1, validate_every=200, validation=320
)
LONGER = replace(TRAINING, steps=3000, hold=1200)  # for seven forms, of which a batch has fewer examples
TEXT_PRACTICE = replace(TRAINING.slower(), steps=100, batch=8, held_batch=8, hold=40, warmup=10, again=0)
TRAINING_ALONE = replace(TRAINING, steps=2000, batch=64, held_batch=64, hold=1000)
PRACTISED_TEXT: dict[str, Any] = {"rounds": 9, "practice": TEXT_PRACTICE}
TITLES = {"text": "text alone", "plain": "plain", "abs": "ABS", "operations": "ABS, more forms"}
TITLES |= {"abc": "ABC", "placed": "problems alone, by place"}
PARTS = ("mixture", "model", "training", "practice")  # of a spec, of which fields can be changed
PLACES = 16  # positions that a problem takes where a token stands at its place: more than a number has in training


def patterns(forms: Mapping[str, str] = FORMS) -> tuple[Pattern, ...]:
    """The problems that language models learn here."""
    return tuple(Pattern(Task(task), form) for task, form in forms.items())


@dataclass(frozen=True)
class LanguageSpec(BaseSpec):
    """All that determines a run of a language model, but for its seed."""

    mixture: Mixture
    training: TrainingConfig = TRAINING
    rounds: int = 0  # of practice at the full rate, at most, and as many at a fifth of it
    practice: TrainingConfig | None = added_field(None, None)  # noqa: RUF009 (a field) the training of one round
    vocabulary: str = VOCABULARY
    parent: LanguageSpec | None = field(default=None, kw_only=True)

    @property
    def regime(self) -> str:
        return "text"

    @property
    def title(self) -> str:
        return f"language model, {TITLES[self.identity.model]}"

    def check(self, typed: str) -> None:
        """InputError for a text that a model cannot answer."""
        problems_of(self.mixture.patterns, typed)

    def answers(self, model: Transformer, texts: Iterable[str], trace: bool = False) -> Iterator[str]:
        """The answers to the problems of each text, a line each, or with `trace` the text as the model writes it."""
        return (spoken(model, text, trace) for text in texts)

    def evaluate(self, model: Transformer, tests: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """Rows of accuracy for each form and each (length, samples)."""
        return evaluate_texts(model, self.mixture.patterns, tests)

    def contexts(self, model: Transformer) -> list[SpanContexts]:
        """All that the answers of a model can look at, a form at a time."""
        return contexts_of_text(model)


def language_spec(identity: Name, profile: str, changes: tuple[str, ...]) -> LanguageSpec:
    """The spec of a language model; InputError for a profile that there is not, or a change that is not possible."""
    if profile != "quick":
        raise InputError(f"{identity} has no profile {profile!r}: language models have quick alone")
    plain = language_models()[identity.model]
    parts = {part: value for part in PARTS if (value := getattr(plain, part)) is not None}
    for change in changes:
        if change.partition(".")[0] not in parts:
            advice = f"{identity} has the parts {', '.join(parts)}, as in training.steps=9"
            raise InputError(f"cannot set {change!r}: {advice}")
    values: dict[str, Any] = {part: changed(value, part, changes) for part, value in parts.items()}
    return replace(plain, **values, changes=changes)


@cache
def language_models() -> dict[str, LanguageSpec]:
    """By name: text alone; text and problems plain, with ABS, with ABS of more forms, and with ABC; and its parent.

    The last one, `placed`, is a plain model of problems alone: a token sees all of its problem before it, and its
    position is its place.
    """
    forms, operations = patterns(), patterns(OPERATIONS)
    config = ModelConfig(
        width=128,
        heads=HEADS,
        feed_forward=512,
        decoder_layers=LAYERS,
        position=Rotary(),
        source_index="running",
        kind="decoder-only",
    )

    def named(name: str, mixture: Mixture, bias: Bias = config.bias, **fields: Any) -> LanguageSpec:
        model, identity = replace(config, bias=bias), Name(LANGUAGE, name)
        return LanguageSpec(mixture, model=model, identity=identity, tests=TEXT_TESTS, **fields)

    mixed, by_hand = Mixture(forms), SpanLines.one_key_per_head(forms, HEADS, LAYERS)
    problems_alone, whole = Mixture(forms, characters=64, text=False), SpanLines.whole(forms, HEADS, PLACES)
    placed = named("placed", problems_alone, whole, training=TRAINING_ALONE)
    wider = SpanLines.one_key_per_head(operations, HEADS, LAYERS)
    specs = [
        named("text", Mixture(())),
        named("plain", mixed),
        named("abs", mixed, by_hand, **PRACTISED_TEXT),
        named("operations", Mixture(operations), wider, training=LONGER, **PRACTISED_TEXT),
        named("abc", mixed, parent=placed, calibration=Calibration(), **PRACTISED_TEXT),
        placed,
    ]
    return {spec.identity.model: spec for spec in specs}
