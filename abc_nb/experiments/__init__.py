"""Experiments: what identifies one, its configuration, models by name, profiles, and the studies that are shown."""

from abc_nb.experiments.experiment import SEEDS, Experiment, calibrated, experiment, train_command
from abc_nb.experiments.names import CLASSIFIER, Name, parse
from abc_nb.experiments.studies import (
    ABLATED,
    ARITHMETIC,
    BASES,
    BINARY,
    LIMITS,
    LISTS,
    STUDIES,
    lasting,
    matching,
    names,
    names_of,
    needed,
    padded_names,
)

__all__ = [
    "ABLATED",
    "ARITHMETIC",
    "BASES",
    "BINARY",
    "CLASSIFIER",
    "LIMITS",
    "LISTS",
    "SEEDS",
    "STUDIES",
    "Experiment",
    "Name",
    "calibrated",
    "experiment",
    "lasting",
    "matching",
    "names",
    "names_of",
    "needed",
    "padded_names",
    "parse",
    "train_command",
]
