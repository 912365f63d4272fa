"""The trainings that only the audit's models have, in each profile."""

from dataclasses import replace

from abc_nb.specs.recipes import ANEW as PLAIN_ANEW
from abc_nb.specs.recipes import LONG_TRAINING, OF_512, PLAIN, Trainings, training
from abc_nb.training.recipe import TrainingConfig

DEFAULT = TrainingConfig()
PATIENT = training(replace(DEFAULT, steps=4800, hold=4000))
# For six layers, each step of which takes as long as three of two: half as many steps, of small batches.
DEEP = {
    profile: replace(recipe, steps=recipe.steps // 2, hold=recipe.hold // 2, held_batch=recipe.batch)
    for profile, recipe in PLAIN.items()
}
# Seven times as wide: 4,096 problems of validation would take most of the time.
ANEW_PADDED = training(replace(PLAIN_ANEW["quick"], validation=1024))
SHORT = training(replace(DEFAULT, steps=400, held_batch=64, hold=200))
# The paper's size, on a GPU: its batch, which shows a padded problem's few digits often enough.
FOR_A_GPU = replace(
    OF_512,
    steps=1200,
    learning_rate=2.5e-3,
    matrix_learning_rate=5e-3,
    warmup=100,
    learned=0.99,
    validate_every=100,
)
LARGE = training(FOR_A_GPU)
LARGE_ANEW = training(replace(FOR_A_GPU, steps=600, warmup=50, hold=300, validate_every=50))
# A sixth of the budget, for a model that has been trained before.
RETRAINING = training(
    replace(DEFAULT, steps=300, held_batch=64, hold=100, learned=0.9, validate_every=10, validation=256),
    replace(LONG_TRAINING, steps=20_000, hold=10_000),
)
# Few numbers are trained, and slowly: after 300 steps Addition and Successor were not learned at their three widths.
SLOWER = {"steps": 3000, "hold": 2000, "learned": 0.99, "validate_every": 50}
LOW_RANK = {profile: replace(recipe, optimizer="adamw") for profile, recipe in RETRAINING.items()}
LOW_RANK["quick"] = replace(LOW_RANK["quick"], **SLOWER)  # type: ignore[arg-type]


def longer(recipes: Trainings) -> Trainings:
    """The same until the task is learned, or for ten times as many steps, in the profile `quick`."""
    quick = recipes["quick"]
    return recipes | {"quick": replace(quick, steps=10 * quick.steps, hold=10 * quick.hold, learned=0.99)}
