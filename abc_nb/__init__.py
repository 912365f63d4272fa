"""abc_nb: small Transformers, arithmetic at any length, attention bias scaffolding and calibration.

How a call travels through the package:

    load, certify   specs.spec(name) -> Spec, all that determines a run; runs.store.find -> Run -> its model
                    Spec.contexts -> certificates.certify -> Certificate
    train           runs.runner.ensure -> runs.trainings, parents first (abc <- abc-unpractised <- vanilla):
                      vanilla            training.problems -> training.fit, the one loop
                      abc-unpractised    vanilla's averaged attention -> calibration -> Lines -> a new model under them
                      abc                certificates.practice: look, fit, look, ... until certify finds nothing wrong
    teach           problems.rules.Rule -> Task -> Spec -> train -> practise -> Taught; nothing is stored

What notebooks and users need is imported when it is first used, so that `import abc_nb` takes no time.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "api": "load answer certify",
    "certificates.certify": "certify_model",
    "calibration.calibrate": "calibrate Calibration PAPER",
    "calibration.of_model": "calibrate_model bias_from_attention coverage",
    "bias.lines": "Lines",
    "problems.layouts": "Layout Operand",
    "problems.rules": "Rule Input cell operand",
    "problems.tasks": "Task",
    "taught": "teach",
    "problems.sampling": "Batch Sampler",
    "model.transformer": "Transformer ModelConfig",
    "training.recipe": "TrainingConfig",
    "training.fit": "fit",
    "training.problems": "train",
    "training.evaluation": "evaluate greedy",
    "specs.spec": "spec",
    "common.errors": "InputError",
    **{f"show.explorers.{name}": f"explore_{name}" for name in ("attention", "calibration", "painting")},
}
_HOME = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"abc_nb has no {name!r}")
    return getattr(import_module(_HOME[name]), name)
