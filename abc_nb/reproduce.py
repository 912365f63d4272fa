"""`make reproduce`: train what is missing, certify it, run every notebook, write the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.paper import report
from abc_nb.runs import sweep
from abc_nb.show import notebooks
from abc_nb.specs.spec import SEEDS
from abc_nb.specs.studies import needed


def reproduce(profile: str, seeds: Sequence[int], everything: bool = False) -> int:
    """All figures and tables of a profile, from runs made here and, where none was, shipped ones; 1 if a run failed.

    In the profile `quick` the models of the story are trained, or `everything`. All that is written goes into the
    folder of builds: what is committed stays as it is.
    """
    jobs = [(spec, seed) for seed in seeds for spec in needed(profile, everything)]
    todo = sweep.missing(jobs)
    print(f"profile {profile}: {len(jobs)} runs, {len(jobs) - len(todo)} of them finished before")
    if todo:
        minutes = sweep.estimate(todo) / 60
        print(f"training {len(todo)} runs takes {minutes:.0f} min here, less where it stops early", flush=True)
    failures = sweep.sweep(todo)
    for failure in failures:
        print(f"abc-nb: {failure}", file=sys.stderr)
    if failures:
        return 1
    os.environ.setdefault("ABC_NB_FIGURES", str(paths.BUILD / "reproduced"))  # for this process and the kernels
    shown = sorted({*seeds, *SEEDS}) if profile == "quick" else [*seeds]
    results = Results(profile, "any", shown)
    if profile == "quick":  # models of `smoke` have learned nothing, and their lines reach anywhere
        print("certificates: every context of the models that are meant to hold at every length", flush=True)
        certified.certify_runs(Results(profile, "any", seeds))
    parameters = {"profile": profile, "results": results.origin, "seeds": shown}
    for notebook in notebooks.sequence():
        print(f"notebook {notebook.stem}", flush=True)
        notebooks.execute(notebook, paths.BUILD / "notebooks" / profile / notebook.name, parameters)
    page = report.write(results)
    print(f"figures and tables are in {paths.figures(profile)}, all on one page: {page.name}")
    return 0
