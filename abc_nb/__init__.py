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
    "calibrate": "abc_nb.calibration",
    "Calibration": "abc_nb.calibration",
    "PAPER": "abc_nb.calibration",
    "calibrate_model": "abc_nb.model_calibration",
    "bias_from_attention": "abc_nb.model_calibration",
    "coverage": "abc_nb.diagnosis",
    "diagnose": "abc_nb.diagnosis",
    "Lines": "abc_nb.lines",
    "Layout": "abc_nb.layouts",
    "Operand": "abc_nb.layouts",
    "Task": "abc_nb.tasks",
    "Sampler": "abc_nb.sampling",
    "Transformer": "abc_nb.model",
    "ModelConfig": "abc_nb.model",
    "TrainingConfig": "abc_nb.training",
    "Trainer": "abc_nb.training",
    "evaluate": "abc_nb.evaluation",
    "greedy": "abc_nb.evaluation",
    "experiment": "abc_nb.experiments",
    "InputError": "abc_nb.errors",
    "explore_attention": "abc_nb.explorers.attention_widget",
    "explore_window": "abc_nb.explorers.window_widget",
    "explore_calibration": "abc_nb.explorers.calibration_widget",
}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"abc_nb has no {name!r}")
    return getattr(import_module(_HOME[name]), name)
