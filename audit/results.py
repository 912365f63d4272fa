"""Results of whole studies, of every seed, and of trainings; where they come from."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from abc_nb.analysis import results
from abc_nb.analysis.results import identity
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.spec import spec
from audit.statistics import ends
from audit.studies import names_of


class Results(results.Results):
    """The runs of a profile, which studies name, too."""

    def names(self, *studies: str) -> list[Name]:
        """The experiments of some studies in this profile; where shipped runs are taken too, those with a result."""
        names = names_of(*studies, profile=self.profile)
        return self.with_results(names) if self.origin == "any" else names

    def rows(self, *studies: str) -> pd.DataFrame:
        """Evaluation rows of some studies, as `evaluation` has them."""
        return self.evaluation(self.names(*studies))

    def every_seed(self, name: str | Name) -> list[Run]:
        """The runs of an experiment that are there, of any seed: for claims about what single models look at."""
        return replace(self, seeds=store.seeds(spec(name, self.profile)) or self.seeds).existing_runs([name])

    def trainings(self, names: Sequence[str | Name]) -> pd.DataFrame:
        """One row a run: steps, seconds, final validation accuracy, and when it first was 100% (infinite: never)."""
        rows = []
        for run in self.runs(names):
            first, seconds = reached(run, 1.0), run.facts["seconds"]["training"]
            row = identity(run) | {"steps": run.facts["steps"], "validation": run.validation}
            rows.append(row | {"steps_to_100": first["step"], "seconds_to_100": first["seconds"], "seconds": seconds})
        return pd.DataFrame(rows)

    def provenance(self, names: Sequence[str | Name]) -> str:
        """Where the results of these experiments come from, in one line."""
        runs = self.runs(names)
        regimes = sorted({run.spec.sampler.regime for run in runs})
        devices = sorted({run.facts["device"].partition(" ")[0] for run in runs})
        versions = sorted({run.facts["versions"]["torch"].partition("+")[0] for run in runs})
        seeds, dates = sorted({run.seed for run in runs}), sorted({run.facts["date"] for run in runs})
        counts = Counter("shipped" if run.shipped else "made here" for run in runs)
        origins = [f"{count} {word}" if len(counts) > 1 else word for word, count in sorted(counts.items())]
        return (
            f"Profile {self.profile}: {len(runs)} runs, {' and '.join(origins)}; "
            f"seed{'s' * (len(seeds) > 1)} {ends(seeds)}; {' and '.join(regimes)} problems; "
            f"trained on {' and '.join(devices)}, {ends(dates)}, torch {' and '.join(versions)}."
        )


def problems(run: Run, steps: int | None = None) -> int:
    """How many problems the first `steps` steps (by default all) went through; the same on any machine."""
    recipe, steps = run.spec.training, int(run.facts["steps"]) if steps is None else steps
    history: list[Any] = run.table("history").to_dict("records")
    held = min(steps, recipe.schedule(history).fall)
    return held * recipe.held_batch + (steps - held) * recipe.batch


def reached(run: Run, accuracy: float) -> dict[str, float]:
    """The first validation that was so good: step, seconds, problems up to it; all infinite if none was."""
    history = run.table("history").query("accuracy >= @accuracy")
    if history.empty:
        return dict.fromkeys(("step", "seconds", "problems"), math.inf)
    step, seconds = history[["step", "seconds"]].iloc[0]
    return {"step": step, "seconds": seconds, "problems": float(problems(run, int(step)))}
