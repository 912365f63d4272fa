"""abc_nb: small Transformers, arithmetic at any length, attention bias scaffolding and calibration.

How a call travels through the package:

    load, certify   specs.spec(name) -> Spec, all that determines a run; runs.store.find -> Run -> its model
                    Spec.contexts -> certificates.certify -> Certificate
    train           runs.runner.ensure -> runs.trainings, parents first (abc <- abc-unpractised <- vanilla):
                      vanilla            training.problems -> training.fit, the one loop
                      abc-unpractised    vanilla's averaged attention -> calibration -> Lines -> a new model under them
                      abc                certificates.practice: try all contexts, fit, try, ... until none is wrong
    teach           problems.rules.Rule -> Task -> Spec -> train -> practise -> Taught; nothing is stored

What users need is listed in `__init__.pyi`, and imported when it is first used, so that `import abc_nb` takes no time.

To read the package in an afternoon, begin with problems/rules.py and layouts.py, bias/lines.py, model/attention.py and
layers.py, training/fit.py, certificates/reach.py and certify.py. References such as "v4 C.4" are to sections of the
versions of the paper (docs/readings.md).
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_LISTED = ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
_HOME = {name.name: line.module for line in _LISTED if isinstance(line, ast.ImportFrom) for name in line.names}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"abc_nb has no {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from abc_nb.common.errors import InputError

        raise InputError(f"{name} needs {error.name}: pip install 'abc-nb[notebooks]'") from None
