"""`make reproduce`: train what is missing, run every notebook, write a summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from abc_nb import claims, experiments, notebooks, paths, store, sweep
from abc_nb.files import write_text


def reproduce(profile: str, seeds: Sequence[int], everything: bool = False) -> int:
    """All figures and tables of a profile; 1 if a run failed. `everything`: the ablations anew, too."""
    jobs = [(experiment, seed) for seed in seeds for experiment in experiments.needed(profile, everything)]
    todo = sweep.missing(jobs)
    print(f"profile {profile}: {len(jobs)} runs, {len(jobs) - len(todo)} of them finished before")
    if todo:
        minutes = sweep.estimate(todo) / 60
        print(f"training {len(todo)} runs takes at most {minutes:.0f} min here, less where it stops early", flush=True)
    failures = sweep.sweep(jobs)
    for failure in failures:
        print(f"abc-nb: {failure.name} seed {failure.seed} failed: {failure.error}", file=sys.stderr)
    if failures:
        return 1
    parameters = {"profile": profile, "results": "runs", "seeds": list(seeds)}
    for notebook in notebooks.sequence():
        print(f"notebook {notebook.stem}", flush=True)
        notebooks.execute(notebook, paths.BUILD / "notebooks" / profile / notebook.name, parameters)
    print(f"figures and tables are in {write_summary(profile, seeds).parent}")
    return 0


def write_summary(profile: str, seeds: Sequence[int]) -> Path:
    """Which runs made the figures: steps, seconds, accuracy, device; and the ledger so far."""
    rows = []
    for experiment in experiments.needed(profile):
        for seed in seeds:
            run = store.find(experiment, seed, ("runs",))
            if run is None:
                continue
            accuracy = run.evaluation().set_index("length").accuracy
            rows.append(
                {
                    "experiment": experiment.name,
                    "seed": seed,
                    "steps": run.manifest["steps"],
                    "seconds": round(sum(run.manifest["seconds"].values())),
                    **{f"{length} digits (%)": round(100 * accuracy[length], 1) for length in (6, 10, 60)},
                    "device": run.manifest["device"],
                    "date": run.manifest["date"],
                }
            )
    facts = store.environment()
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    text = f"# Profile {profile}, seeds {', '.join(map(str, seeds))}\n\n{experiments.PROFILES[profile]}\n\n"
    text += f"Device: {facts['device']}; {versions}.\n\n## Runs\n\n{pd.DataFrame(rows).to_markdown(index=False)}\n\n"
    judged = claims.ledger(profile)
    text += f"## Claims\n\n{judged[judged.notebook != ''].drop(columns='topic').to_markdown(index=False)}\n"
    return write_text(paths.figures(profile) / "summary.md", text)
