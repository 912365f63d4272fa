"""The audit: the paper's claims, tables and figures beside this project's results. Its models stand in the table."""

from pathlib import Path

from abc_nb.common import paths
from abc_nb.specs.models import register
from audit.models import MODELS, TABLES

DATA = Path(__file__).parent / "data"  # the paper's numbers and claims, captions, texts
NOTEBOOKS = paths.NOTEBOOKS / "audit"
register(MODELS)
register(TABLES, tables=True)
