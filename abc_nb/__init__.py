"""abc_nb: small Transformers, arithmetic at any length, attention bias scaffolding and calibration.

The names below are what notebooks and users need; each is imported when it is first used, so that
`import abc_nb` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "load": "abc_nb.api",
    "answer": "abc_nb.api",
    "retrain": "abc_nb.api",
    "certify": "abc_nb.api",
    "certify_model": "abc_nb.certificates.certify",
    "calibrate": "abc_nb.calibration.calibrate",
    "Calibration": "abc_nb.calibration.calibrate",
    "PAPER": "abc_nb.calibration.calibrate",
    "calibrate_model": "abc_nb.calibration.of_model",
    "bias_from_attention": "abc_nb.calibration.of_model",
    "coverage": "abc_nb.calibration.of_model",
    "diagnose": "abc_nb.calibration.of_model",
    "Lines": "abc_nb.bias.lines",
    "Layout": "abc_nb.problems.layouts",
    "Operand": "abc_nb.problems.layouts",
    "Task": "abc_nb.problems.tasks",
    "Batch": "abc_nb.problems.sampling",
    "Sampler": "abc_nb.problems.sampling",
    "Transformer": "abc_nb.model.transformer",
    "ModelConfig": "abc_nb.model.transformer",
    "TrainingConfig": "abc_nb.training.progress",
    "Trainer": "abc_nb.training.trainer",
    "evaluate": "abc_nb.training.evaluation",
    "greedy": "abc_nb.training.evaluation",
    "spec": "abc_nb.specs.spec",
    "InputError": "abc_nb.common.errors",
    "explore_attention": "abc_nb.show.explorers.attention",
    "explore_window": "abc_nb.show.explorers.window",
    "explore_calibration": "abc_nb.show.explorers.calibration",
    "explore_contexts": "abc_nb.show.explorers.contexts",
}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"abc_nb has no {name!r}")
    return getattr(import_module(_HOME[name]), name)
