"""The certificates of many runs as one table, and what notebooks show of it: who is certified, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.certificates import files
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.names import ARITHMETIC, Name, parse
from abc_nb.specs.spec import spec

MODELS = ("abs", "abc")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abc-twice")
PRACTISED = (*MODELS, *DECODERS)  # models whose training ends with practice
COLUMNS = ["task", "model", "seed", "certified", "contexts", "wrong", "margin", "left", "bits"]
COLUMNS += ["base", "experiment", "statement", "counterexamples"]
PRACTICE = ["task", "model", "seed", "before", "after", "rounds", "wrong before", "wrong after", "alone"]
PRACTICE += ["seconds", "seconds before"]


def table(found: Results) -> pd.DataFrame:
    """The certificates of these results' profile and seeds, a row each, of the models that are known.

    Where either will do, one that was made here replaces the shipped one, and a run that was made here has no shipped
    one: that is of other weights. `left` is the least that rounding leaves of a margin, in `bits` bits.
    """
    made = files.made_here() if found.origin != "shipped" else {}
    shipped, rows = files.shipped() if found.origin != "runs" else {}, []
    for key, data in (shipped | made).items():
        name, seed = parse(data["experiment"]), data["seed"]
        if name is None or data["profile"] != found.profile or seed not in found.seeds:
            continue
        own = spec(name, found.profile)
        if found.origin != "any" or key in made or not store.find(own, seed, ("runs",)):
            rows.append(data | data["rounding"] | {"task": name.task, "model": name.model, "base": name.base})
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(["experiment", "seed"], ignore_index=True)


def rows(found: Results, models: Sequence[str] = PRACTISED, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The rows of `table` of some models and tasks, each task in its usual base."""
    every = table(found)
    usual = every.base == every.task.map(lambda task: Task(task).base)
    return every[every.model.isin(models) & every.task.isin(tasks) & usual].reset_index(drop=True)


def tally(found: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those with a certificate: `5 of 5`, by model."""
    counts = rows(found, models, [task]).groupby("model").certified.agg(share)
    return {model: counts[model] for model in models if model in counts}


def statement(found: Results, name: str) -> str:
    """What is proved of the first certified run of an experiment; one sentence where there is none."""
    proved = table(found).query("certified == True and experiment == @name").statement
    return str(proved.iloc[0]) if len(proved) else f"No run of {name} is certified here: try `abc-nb certify {name}`."


def share(part: pd.Series[bool]) -> str:
    return f"{int(part.sum())} of {len(part)}"


def practice(found: Results, models: Sequence[str] = PRACTISED, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """A row a run whose training ends with practice: whether it is certified before and after it, and what it took.

    `wrong before` and `wrong after` count contexts, `alone` those of which no training problem was found. They are
    empty for a run that has too many contexts to try.
    """
    proven, made = rows(found, models, tasks).set_index(["experiment", "seed"]).certified, []
    for run in found.existing([Name(task, model) for model in models for task in tasks]):
        facts, after = run.manifest["practice"], bool(proven.get((run.spec.name, run.seed), False))
        row = identity(run) | {fact.replace("_", " "): value for fact, value in facts.items()}
        row |= {"before": after and facts["rounds"] == 0, "after": after}
        row |= {"seconds": run.manifest["seconds"]["training"], "seconds before": run.manifest["parent"]["seconds"]}
        made.append(row)
    return pd.DataFrame(made, columns=PRACTICE)


def practice_summary(found: Results, models: Sequence[str] = MODELS, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """By task and model: runs certified before and after practice, most rounds and contexts, smallest margins."""
    kinds: dict[str, Any] = {"before": share, "after": share, "rounds": "max", "wrong before": "max"}
    runs = practice(found, models, tasks).groupby(["task", "model"], sort=False).agg(kinds)
    certificates = rows(found, models, tasks).groupby(["task", "model"], sort=False)
    proven = certificates.agg({"contexts": "max", "margin": "min"})
    return runs.join(proven).rename(columns={"before": "certified before", "after": "certified after"})


def of_run(run: Run, origins: Sequence[str] = store.ANYWHERE) -> files.Data | None:
    """The certificate of a run's weights, made here or shipped; None without one."""
    own, known = checksum(weights_of(run.model())), {"runs": files.made_here, "shipped": files.shipped}
    every = (data for origin in origins for data in known[origin]().values())
    return next((data for data in every if data.get("weights") == own), None)
