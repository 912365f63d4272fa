"""What a profile sets: the model's size, how it is trained, and on what it is tested."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.tasks import Regime
from abc_nb.training.progress import TrainingConfig

Kind = Literal[  # of training
    "plain",
    "deep",
    "scaffold",
    "anew",
    "anew_padded",
    "short",
    "retraining",
    "low_rank",
    "repair",
    "traced",
    "traced_plain",
]
Recipe = Literal["code", "text", "ours"]  # of the profile `paper`: where its learning rate comes from

QUICK, SMOKE = TrainingConfig(), TrainingConfig(20, 32, 32, warmup=5, hold=10, validate_every=10, validation=60)
LONG = TrainingConfig(
    steps=100_000,
    batch=512,
    held_batch=512,
    optimizer="adamw",
    learning_rate=1e-4,
    warmup=1000,
    hold=80_000,
    validate_every=500,
)
# A model whose bias says where to look has less to search for at the full rate, and with large batches.
SCAFFOLDING = replace(QUICK, steps=1800, held_batch=64, hold=500, learned=0.99)
# New weights under lines: validated on many problems, since it is accepted only if none of them is wrong.
ANEW = replace(QUICK, steps=1000, held_batch=64, hold=300, learned=0.99, validation=4096)
SHORT = replace(QUICK, steps=400, held_batch=64, hold=200)
# A sixth of the budget, for a model that has been trained before.
RETRAINING = replace(QUICK, steps=300, held_batch=64, hold=100, learned=0.9, validate_every=10, validation=256)
# A table of one size is learned from more problems at once than tables of several sizes under a bias.
TRACED = replace(QUICK, steps=1000, held_batch=64, hold=500, learned=0.9, again=0)
TRACED_PLAIN = replace(QUICK, steps=1500, batch=128, held_batch=128, learned=0.9, again=0)
LONG_RETRAINING = replace(LONG, steps=20_000, hold=10_000)
# Our training of the paper's model: its batch, with Muon, for as many steps as a GPU does in a minute or two. Dropout
# is left out: with 0.3 tight Addition was not learned at all in 2,400 steps.
BRIEF = replace(QUICK, steps=2000, batch=512, held_batch=512, warmup=100, hold=1400, learned=0.9, validate_every=100)
BRIEF_SCAFFOLDING = replace(BRIEF, steps=800, hold=400, learned=0.99)
BRIEF_RETRAINING = replace(BRIEF, steps=400, warmup=50, hold=200, validate_every=50)


@dataclass(frozen=True)
class Trainings:
    """How models are trained in a profile, by what they start from."""

    plain: TrainingConfig
    scaffold: TrainingConfig
    anew: TrainingConfig
    short: TrainingConfig
    retraining: TrainingConfig

    @property
    def deep(self) -> TrainingConfig:
        """For six layers, each step of which takes as long as three of two: half as many steps, of small batches."""
        return replace(self.plain, steps=self.plain.steps // 2, hold=self.plain.hold // 2, held_batch=self.plain.batch)

    @property
    def traced(self) -> TrainingConfig:
        return TRACED if self.plain == QUICK else self.plain

    @property
    def traced_plain(self) -> TrainingConfig:
        return TRACED_PLAIN if self.plain == QUICK else self.plain

    @property
    def anew_padded(self) -> TrainingConfig:
        """Padded problems are seven times as wide, and validating them on 4,096 would take most of the time."""
        return replace(self.anew, validation=min(self.anew.validation, 1024))

    @property
    def low_rank(self) -> TrainingConfig:
        return replace(self.retraining, optimizer="adamw")

    @property
    def repair(self) -> TrainingConfig:
        """At a fifth of the rate, since little is to change; `hold` counts for each round, and nothing ends it."""
        slow = {name: getattr(self.scaffold, name) / 5 for name in ("learning_rate", "matrix_learning_rate")}
        return replace(self.scaffold, warmup=10, hold=20, learned=2.0, **slow)


@dataclass(frozen=True)
class Profile:
    """What its name stands for; the regime is tight or padded."""

    purpose: str
    size: ModelConfig
    regime: Regime
    trainings: Trainings


PROFILES = {
    "smoke": Profile(
        "proves the pipeline in minutes; its numbers mean nothing",
        ModelConfig(width=16, heads=2, feed_forward=32, decoder_layers=1),
        "tight",
        Trainings(SMOKE, SMOKE, SMOKE, SMOKE, SMOKE),
    ),
    "quick": Profile(
        "every figure and table on 2 cores",
        ModelConfig(),
        "tight",
        Trainings(QUICK, SCAFFOLDING, ANEW, SHORT, RETRAINING),
    ),
    "paper": Profile(
        "the paper's model, padded regime, dropout: for a GPU or a patient machine",
        ModelConfig(width=128, feed_forward=512, encoder_layers=1, decoder_layers=6, dropout=0.3),
        "padded",
        Trainings(LONG, LONG, LONG, LONG, LONG_RETRAINING),
    ),
}
OURS = {  # the recipe "ours", by profile
    "paper": Trainings(BRIEF, BRIEF_SCAFFOLDING, BRIEF_RETRAINING, BRIEF_RETRAINING, BRIEF_RETRAINING),
}
LONGER_BATCH = 128  # problems of a held step then: many small steps do more than few large ones
LONGER_TIMES = 4  # times as many steps for products (a carry has two digits or more) and for lists in lists
CURVE = (*range(1, 21), 30, 40, 50, 60)  # lengths of figures 1 and 4
TABLE = (6, 10, 15, 20, 60)  # lengths of table 1
BEYOND = (100, 200)  # of the models meant to extrapolate
MANY = (6, 60)  # where the main ones are tested on more problems
FAR = {500: 200, 1_000: 1_000, 2_000: 100, 5_000: 50, 10_000: 100}  # samples of notebook 7's lengths
TESTS = {  # of the profile `quick`, samples by length
    "few": dict.fromkeys(TABLE, 500),
    "few_beyond": dict.fromkeys((*TABLE, max(BEYOND)), 500),
    "curve": dict.fromkeys(CURVE, 1_000),
    "beyond": dict.fromkeys((*CURVE, *BEYOND), 1_000),
    "long": dict.fromkeys((*CURVE, *BEYOND), 1_000) | {1_000: 100, 10_000: 10},
    "far": dict.fromkeys((*CURVE, *BEYOND), 1_000) | FAR,
    "table": dict.fromkeys((3, 4, 5, 6, 7, 10, 20), 200),  # two factors of so many digits each, or a list of so many
    "tables": dict.fromkeys((3, 4, 5, 6, 7, 10, 20), 200) | {100: 20, 1_000: 1},
}


def training(profile: str, kind: Kind, recipe: Recipe = "code") -> TrainingConfig:
    """A kind of training in a profile: with the rate of the authors' code, of the text (v4 section C.1), or ours.

    Ours is made for a few minutes of a GPU.
    """
    trainings = OURS.get(profile, PROFILES[profile].trainings) if recipe == "ours" else PROFILES[profile].trainings
    found: TrainingConfig = getattr(trainings, kind)
    return replace(found, optimizer="adamw", learning_rate=1e-5) if recipe == "text" else found


def longer(training: TrainingConfig) -> TrainingConfig:
    """The training of a task that takes longer: more steps, and of one size while the rate is held."""
    steps, hold = LONGER_TIMES * training.steps, LONGER_TIMES * training.hold
    return replace(training, steps=steps, hold=hold, held_batch=LONGER_BATCH)


def past_guessing(training: TrainingConfig) -> TrainingConfig:
    """The training of a task of two answers: the rate is held until more is right than guessing gets."""
    return replace(training, learned=0.75)


def tests(profile: str, tested: str, many: int = 0) -> tuple[tuple[int, int], ...]:
    """The (length, samples) of an evaluation: `tested` is a key of `TESTS`, `many` the samples at lengths `MANY`."""
    if profile != "quick":
        return tuple((length, 10 if profile == "smoke" else 10_000) for length in CURVE)
    return tuple((n, max(samples, many if n in MANY else 0)) for n, samples in TESTS[tested].items())
