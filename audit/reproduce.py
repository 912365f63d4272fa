"""`make reproduce`: train until proven what is missing, run every notebook, and compare with what is stated."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib

from abc_nb.common import paths
from abc_nb.runs import sweep
from abc_nb.show import notebooks
from abc_nb.specs.spec import SEEDS
from audit import NOTEBOOKS, report, statements
from audit.results import Results
from audit.studies import needed


def reproduce(profile: str, seeds: Sequence[int]) -> int:
    """All figures and tables of a profile, from runs made here and, where none was, shipped ones.

    In the profile `quick` the models of the story are trained, and compared with the shipped results.
    All that is written goes into the folder of builds: what is committed stays as it is. 1 if a run failed, or a
    statement of README or of the paper's tables did not come out the same.
    """
    print("stage 1 of 3: training", flush=True)
    if sweep.sweep([(spec, seed) for seed in seeds for spec in needed(profile)]):
        return 1
    os.environ.setdefault("ABC_NB_FIGURES", str(paths.BUILD / "reproduced"))  # for this process and the kernels
    is_compared = profile == "quick"
    results = Results(profile, "any", sorted({*seeds, *SEEDS}) if is_compared else [*seeds])
    print("stage 2 of 3: notebooks", flush=True)
    parameters = {"profile": profile, "results": results.origin, "seeds": results.seeds}
    books = [*notebooks.in_reading_order(NOTEBOOKS), *notebooks.in_reading_order()]
    execute_all(books, paths.BUILD / "notebooks" / profile, parameters)
    print("stage 3 of 3: report", flush=True)
    page = report.write(results)
    text, is_same = statements.report(profile, seeds) if is_compared else ("", True)
    print(f"figures and tables are in {paths.figures(profile)}, all on one page: {page.name}\n\n{text}".rstrip())
    return 0 if is_same else 1


def execute_all(books: Sequence[Path], folder: Path, parameters: Mapping[str, Any]) -> None:
    """Run notebooks, as many at the same time as there are cores; the copies go into `folder`."""
    # For the kernels: two that train on two threads each, with two cores, take ten times as long as on one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def timed(notebook: Path) -> str:
        start = time.perf_counter()
        notebooks.execute(notebook, folder / notebook.name, parameters, bar=False)
        return f"{notebook.stem}, {time.perf_counter() - start:.0f} s"

    parallel = joblib.Parallel(sweep.workers(), backend="threading", return_as="generator_unordered")
    # The longest is the last: begun first, it leaves no core without work in the end.
    for number, text in enumerate(parallel(joblib.delayed(timed)(notebook) for notebook in reversed(books)), 1):
        print(f"notebook {number} of {len(books)}: {text}", flush=True)
