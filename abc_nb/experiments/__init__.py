"""The names of `specs` under which other rooms still know them."""

from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.specs.names import CLASSIFIER, Name, parse
from abc_nb.specs.spec import SEEDS, Spec, calibrated, train_command
from abc_nb.specs.studies import (
    ABLATED,
    ARITHMETIC,
    BASES,
    BINARY,
    LIMITS,
    LISTS,
    STUDIES,
    matching,
    names,
    names_of,
    needed,
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
    "Spec",
    "calibrated",
    "experiment",
    "matching",
    "names",
    "names_of",
    "needed",
    "parse",
    "train_command",
]
