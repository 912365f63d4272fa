"""The certificates of many runs as one table, and what notebooks show of it: who is certified, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import ARITHMETIC
from abc_nb.specs.spec import is_there, spec

MODELS = ("abs", "abc")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abc-twice")
PRACTISED_MODELS = (*MODELS, *DECODERS)  # models whose training ends with practice
CERTIFICATE_COLUMNS = ["task", "model", "seed", "certified", "contexts", "wrong", "margin", "left"]
CERTIFICATE_COLUMNS += ["base", "experiment", "statement", "counterexamples"]
PRACTICE_COLUMNS = ["task", "model", "seed", "before", "after", "rounds", "wrong before", "wrong after", "alone"]
PRACTICE_COLUMNS += ["seconds", "seconds before"]


def certificates_table(found: Results) -> pd.DataFrame:
    """The certificates of these results' profile and seeds, a row each, of the models that are known.

    Where either will do, one that was made here replaces the shipped one, and a run that was made here has no shipped
    one: that is of other weights. `left` is the least that rounding leaves of a margin.
    """
    certified: dict[tuple[str, int], dict[str, Any]] = {}
    for origin in ("shipped", "runs") if found.origin == "any" else (found.origin,):
        for record in store.records(origin, '"certificates"'):
            name = name_of(record)
            if name is None or record["profile"] != found.profile or record["seed"] not in found.seeds:
                continue
            certified.pop((str(name), record["seed"]), None)
            for data in record.get("certificates", []):
                whose = {"experiment": str(name), "seed": record["seed"], "model": name.model}
                certified[str(name), record["seed"]] = data | data["rounding"] | whose
    return pd.DataFrame(certified.values(), columns=CERTIFICATE_COLUMNS).sort_values(
        ["experiment", "seed"], ignore_index=True
    )


def name_of(record: Mapping[str, Any]) -> Name | None:
    """The experiment of arithmetic whose run a record is; None for one that was changed or is not known any more."""
    if record["changes"] or record["task"] not in REGISTRY:
        return None
    name = Name(record["task"], record["model"], record["base"])
    return name if is_there(name) and spec(name, record["profile"]).digest == record["spec"] else None


def rows(found: Results, models: Sequence[str] = PRACTISED_MODELS, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The rows of `certificates_table` of some models and tasks, each task in its usual base."""
    every = certificates_table(found)
    usual = every.base == every.task.map(lambda task: Task(task).base)
    return every[every.model.isin(models) & every.task.isin(tasks) & usual].reset_index(drop=True)


def tally(found: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those with a certificate: `5 of 5`, by model."""
    counts = rows(found, models, [task]).groupby("model").certified.agg(share)
    return {model: counts[model] for model in models if model in counts}


def share(part: pd.Series[bool]) -> str:
    return f"{int(part.sum())} of {len(part)}"


def practice(
    found: Results, models: Sequence[str] = PRACTISED_MODELS, tasks: Sequence[str] = ARITHMETIC
) -> pd.DataFrame:
    """A row a run whose training ends with practice: whether it is certified before and after it, and what it took.

    `wrong before` and `wrong after` count contexts, `alone` those of which no training problem was found. They are
    empty for a run that has too many contexts to try.
    """
    proven, made = rows(found, models, tasks).set_index(["experiment", "seed"]).certified, []
    for run in found.existing([Name(task, model) for model in models for task in tasks]):
        facts, after = run.facts["practice"], bool(proven.get((run.spec.name, run.seed), False))
        row = identity(run) | {fact.replace("_", " "): value for fact, value in facts.items()}
        row |= {"before": after and facts["rounds"] == 0, "after": after}
        row |= {"seconds": run.facts["seconds"]["training"], "seconds before": run.facts["parent"]["seconds"]}
        made.append(row)
    return pd.DataFrame(made, columns=PRACTICE_COLUMNS)


def practice_summary(found: Results, models: Sequence[str] = MODELS, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """By task and model: runs certified before and after practice, most rounds and contexts, smallest margins."""
    kinds: dict[str, Any] = {"before": share, "after": share, "rounds": "max", "wrong before": "max"}
    runs = practice(found, models, tasks).groupby(["task", "model"], sort=False).agg(kinds)
    certificates = rows(found, models, tasks).groupby(["task", "model"], sort=False)
    proven = certificates.agg({"contexts": "max", "margin": "min"})
    return runs.join(proven).rename(columns={"before": "certified before", "after": "certified after"})
