"""What a profile sets: the model's size, how it is trained, and on what it is tested."""

from dataclasses import dataclass, replace

from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.tasks import Regime
from abc_nb.training.recipe import TrainingConfig

CURVE = (*range(1, 21), 30, 40, 50, 60)  # lengths of figures 1 and 4


@dataclass(frozen=True)
class Profile:
    """The settings of a profile; its regime is tight or padded."""

    size: ModelConfig
    regime: Regime
    tests: dict[int, int] | None = None  # samples by length, of every model; None: as each model has them
    rounds: int = 9  # of practice, at most


PROFILES = {
    "smoke": Profile(  # proves the pipeline in minutes; its numbers mean nothing
        ModelConfig(width=16, heads=2, feed_forward=32, decoder_layers=1), "tight", dict.fromkeys(CURVE, 10), rounds=1
    ),
    "quick": Profile(ModelConfig(), "tight"),  # makes every figure and table on 2 cores
    "paper": Profile(  # has the paper's model, the padded regime and dropout, for a GPU or a patient machine
        ModelConfig(width=128, feed_forward=512, encoder_layers=1, decoder_layers=6, dropout=0.3),
        "padded",
        dict.fromkeys(CURVE, 10_000),
    ),
}

# ---- trainings

Trainings = dict[str, TrainingConfig]  # by profile
SHORTEST = TrainingConfig(20, 32, 32, warmup=5, hold=10, validate_every=10, validation=60)
OF_512 = TrainingConfig(batch=512, held_batch=512)  # the paper's batch
LONG_TRAINING = replace(
    OF_512, steps=100_000, optimizer="adamw", learning_rate=1e-4, warmup=1000, hold=80_000, validate_every=500
)


def training(quick: TrainingConfig, paper: TrainingConfig = LONG_TRAINING) -> Trainings:
    """A training in each profile."""
    return {"smoke": SHORTEST, "quick": quick, "paper": paper}


PLAIN = training(TrainingConfig())
# A model whose bias says where to look has less to search for at the full rate, and with large batches.
SCAFFOLD = training(TrainingConfig(steps=1800, held_batch=64, hold=500, learned=0.99))
# New weights under lines: validated on many problems, since it is accepted only if none of them is wrong.
ANEW = training(TrainingConfig(steps=1000, held_batch=64, hold=300, learned=0.99, validation=4096))
# One layer that sees what a token follows from.
DIRECT = training(TrainingConfig(steps=600, held_batch=64, hold=300, learned=0.99))
# A fifth of the rate, since little is to change; `hold` counts for each round, and nothing ends practice early.
PRACTICE = {name: replace(recipe.slower(), warmup=10, hold=20, learned=2.0) for name, recipe in SCAFFOLD.items()}
# A table of one size is learned from more problems at once than tables of several sizes under a bias.
TRACED = training(TrainingConfig(steps=1000, held_batch=64, hold=500, learned=0.9, again=0))
TRACED_PLAIN = training(TrainingConfig(steps=1500, batch=128, held_batch=128, learned=0.9, again=0))

# ---- tests

TABLE = (6, 10, 15, 20, 60)  # lengths of table 1
TESTED_SIZES = (3, 4, 5, 6, 7, 10, 20)  # of two factors that have so many digits each, or items of a list
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
    "table": dict.fromkeys(TESTED_SIZES, 200),
    "tables": dict.fromkeys(TESTED_SIZES, 200) | {100: 20, 1_000: 1},
}
