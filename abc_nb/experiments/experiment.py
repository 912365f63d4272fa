"""The names of `specs.spec` under which other rooms still know them."""

from abc_nb.specs.names import Name as Name
from abc_nb.specs.spec import LABELS as LABELS
from abc_nb.specs.spec import SEEDS as SEEDS
from abc_nb.specs.spec import Spec as Experiment
from abc_nb.specs.spec import calibrated as calibrated
from abc_nb.specs.spec import spec as experiment
from abc_nb.specs.spec import train_command as train_command

__all__ = ["Experiment", "experiment"]
