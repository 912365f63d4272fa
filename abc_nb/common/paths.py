"""Where the folders of the project are."""

import os
import warnings
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent


def is_checkout(folder: Path) -> bool:
    """Whether a folder is a checkout of this project."""
    file = folder / "pyproject.toml"
    return file.is_file() and 'name = "abc-nb"' in file.read_text(encoding="utf-8", errors="replace")


CHECKOUT = is_checkout(ROOT)  # or else the package is installed somewhere


def home() -> Path:
    """Where what is made goes: to the checkout in which one works, to that of the package, or to the current folder.

    A warning says where the first two are not the same.
    """
    folder = Path.cwd()
    checkout = next(filter(is_checkout, (folder, *folder.parents)), None)
    if checkout is None or not CHECKOUT or checkout == ROOT:
        return checkout or (ROOT if CHECKOUT else folder)
    advice = f"what is made goes to {checkout}; to use its package, run `pip install -e {checkout}`"
    warnings.warn(f"the package is that of {ROOT}, and the current folder is in {checkout}: {advice}", stacklevel=2)
    return checkout


HOME = home()
PACKAGED_MODELS = PACKAGE / "data" / "models"  # the story's eight models, which an installed package has
NOTEBOOKS = HOME / "notebooks"
RESULTS = ROOT / "results" if CHECKOUT else PACKAGED_MODELS
SHIPPED = Path(os.environ.get("ABC_NB_RESULTS") or RESULTS).absolute()  # results that come with the project
BUILD = HOME / "build"  # executed copies of notebooks


def runs() -> Path:
    """Folder of the runs made here; the environment variable ABC_NB_RUNS moves it."""
    return Path(os.environ.get("ABC_NB_RUNS") or HOME / "runs").absolute()


def figures(profile: str = "quick") -> Path:
    """Folder of figures and tables, in it one for each profile but `quick`; the variable ABC_NB_FIGURES moves it."""
    folder = Path(os.environ.get("ABC_NB_FIGURES") or HOME / "figures").absolute()
    return folder if profile == "quick" else folder / profile
