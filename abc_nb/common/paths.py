"""Where the folders of the project are."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent
CHECKOUT = (ROOT / "pyproject.toml").exists()  # or else the package is installed somewhere
HOME = ROOT if CHECKOUT else Path.cwd()  # where what is made goes
MODELS = PACKAGE / "data" / "models"  # the story's eight models, which an installed package has
NOTEBOOKS = ROOT / "notebooks"
RESULTS = ROOT / "results" if CHECKOUT else MODELS
SHIPPED = Path(os.environ.get("ABC_NB_RESULTS") or RESULTS).absolute()  # results that come with the project
BUILD = ROOT / "build"  # executed copies of notebooks


def runs() -> Path:
    """Folder of the runs made here; the environment variable ABC_NB_RUNS moves it."""
    return Path(os.environ.get("ABC_NB_RUNS") or HOME / "runs").absolute()


def figures(profile: str = "quick") -> Path:
    """Folder of figures and tables, in it one for each profile but `quick`; the variable ABC_NB_FIGURES moves it."""
    folder = Path(os.environ.get("ABC_NB_FIGURES") or HOME / "figures").absolute()
    return folder if profile == "quick" else folder / profile
