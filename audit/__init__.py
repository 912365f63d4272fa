"""The audit: the paper's claims, tables and figures beside this project's results.

Its models stand in the table, and its tasks are known by name.
"""

from pathlib import Path

from abc_nb.common import paths
from abc_nb.specs.models import model_table, register_models
from audit.models import MODELS, TABLES
from audit.rules import direct
from audit.rules.direct import PROGRAM

__all__ = ["DATA", "NOTEBOOKS", "direct"]

DATA = Path(__file__).parent / "data"  # the paper's numbers and claims, captions, texts
NOTEBOOKS = paths.NOTEBOOKS / "audit"
register_models(MODELS, PROGRAM)
register_models(
    {name: model for name, model in TABLES.items() if name not in model_table(tables=True)}, PROGRAM, tables=True
)
