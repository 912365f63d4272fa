"""What a profile sets: the model's size, how it is trained, and on what it is tested."""

from dataclasses import dataclass, replace

from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.tasks import Regime
from abc_nb.training.recipe import TrainingConfig


def slowly(training: TrainingConfig) -> TrainingConfig:
    """For practice: a fifth of the rate, since little is to change; `hold` counts for each round, nothing ends it."""
    return replace(training.slower(), warmup=10, hold=20, learned=2.0)


def halved(training: TrainingConfig) -> TrainingConfig:
    """For six layers, each step of which takes as long as three of two: half as many steps, of small batches."""
    return replace(training, steps=training.steps // 2, hold=training.hold // 2, held_batch=training.batch)


PLAIN = TrainingConfig()
OF_512 = replace(PLAIN, batch=512, held_batch=512)  # the paper's batch
# A model whose bias says where to look has less to search for at the full rate, and with large batches.
SCAFFOLD = replace(PLAIN, steps=1800, held_batch=64, hold=500, learned=0.99)
# New weights under lines: validated on many problems, since it is accepted only if none of them is wrong.
ANEW = replace(PLAIN, steps=1000, held_batch=64, hold=300, learned=0.99, validation=4096)
# The paper's size, on a GPU: its batch, which shows a padded problem's few digits often enough.
LARGE = replace(
    OF_512,
    steps=1200,
    learning_rate=2.5e-3,
    matrix_learning_rate=5e-3,
    warmup=100,
    learned=0.99,
    validate_every=100,
)
LARGE_ANEW = replace(LARGE, steps=600, warmup=50, hold=300, validate_every=50)
# A sixth of the budget, for a model that has been trained before.
RETRAINING = replace(PLAIN, steps=300, held_batch=64, hold=100, learned=0.9, validate_every=10, validation=256)
# Few numbers are trained, and slowly: after 300 steps Addition and Successor were not learned at their three widths.
LOW_RANK = replace(RETRAINING, optimizer="adamw", steps=3000, hold=2000, learned=0.99, validate_every=50)
QUICK = {  # trainings by name
    "plain": PLAIN,
    "patient": replace(PLAIN, steps=4800, hold=4000),
    "deep": halved(PLAIN),
    "scaffold": SCAFFOLD,
    "anew": ANEW,
    "anew_padded": replace(ANEW, validation=1024),  # seven times as wide: 4,096 would take most of the time
    "short": replace(PLAIN, steps=400, held_batch=64, hold=200),
    "large": LARGE,
    "large_anew": LARGE_ANEW,
    "retraining": RETRAINING,
    "low_rank": LOW_RANK,
    "practice": slowly(SCAFFOLD),
    # A table of one size is learned from more problems at once than tables of several sizes under a bias.
    "traced": replace(PLAIN, steps=1000, held_batch=64, hold=500, learned=0.9, again=0),
    "traced_plain": replace(PLAIN, steps=1500, batch=128, held_batch=128, learned=0.9, again=0),
}


def of_one(training: TrainingConfig, **others: TrainingConfig) -> dict[str, TrainingConfig]:
    """Every training the same, but for those that are given and those that follow from another."""
    same = dict.fromkeys(QUICK, training) | others
    derived = {"deep": halved(same["plain"]), "low_rank": replace(same["retraining"], optimizer="adamw")}
    derived |= {"practice": slowly(same["scaffold"]), "traced": same["plain"], "traced_plain": same["plain"]}
    return same | derived


LONG = replace(
    OF_512, steps=100_000, optimizer="adamw", learning_rate=1e-4, warmup=1000, hold=80_000, validate_every=500
)

CURVE = (*range(1, 21), 30, 40, 50, 60)  # lengths of figures 1 and 4


@dataclass(frozen=True)
class Profile:
    """What its name stands for; the regime is tight or padded."""

    size: ModelConfig
    regime: Regime
    trainings: dict[str, TrainingConfig]
    tests: dict[int, int] | None = None  # samples by length, of every model; None: as each model has them
    rounds: int = 9  # of practice, at most


PROFILES = {
    "smoke": Profile(  # proves the pipeline in minutes; its numbers mean nothing
        ModelConfig(width=16, heads=2, feed_forward=32, decoder_layers=1),
        "tight",
        of_one(TrainingConfig(20, 32, 32, warmup=5, hold=10, validate_every=10, validation=60)),
        tests=dict.fromkeys(CURVE, 10),
        rounds=1,
    ),
    "quick": Profile(ModelConfig(), "tight", QUICK),  # makes every figure and table on 2 cores
    "paper": Profile(  # has the paper's model, the padded regime and dropout, for a GPU or a patient machine
        ModelConfig(width=128, feed_forward=512, encoder_layers=1, decoder_layers=6, dropout=0.3),
        "padded",
        of_one(LONG, retraining=replace(LONG, steps=20_000, hold=10_000)),
        tests=dict.fromkeys(CURVE, 10_000),
    ),
}


TABLE = (6, 10, 15, 20, 60)  # lengths of table 1
SIZES = (3, 4, 5, 6, 7, 10, 20)  # of two factors that have so many digits each, or items of a list
BEYOND = dict.fromkeys((*CURVE, 100, 200), 1_000)  # of the models that are meant to extrapolate
FAR = BEYOND | {500: 200, 1_000: 1_000, 2_000: 100, 5_000: 50, 10_000: 100}
TESTS = {  # of the profile `quick`, samples by length: what a model's `tested` names
    "few": dict.fromkeys(TABLE, 500),
    "few_beyond": dict.fromkeys((*TABLE, 200), 500),
    "curve": dict.fromkeys(CURVE, 1_000),
    "beyond": BEYOND,
    "long": BEYOND | {1_000: 100, 10_000: 10},
    "far": FAR,
    "far and many": FAR | {6: 10_000, 60: 10_000},
    "table": dict.fromkeys(SIZES, 200),
    "tables": dict.fromkeys(SIZES, 200) | {100: 20, 1_000: 1},
}
