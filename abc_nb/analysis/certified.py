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


def certificates_table(results: Results) -> pd.DataFrame:
    """The certificates of these results' profile and seeds, a row each, of the models that are known.

    If `results` takes runs of any origin, one that was made here replaces the shipped one, even where it has no
    certificate: that of the shipped one is of other weights. `left` is the least that rounding leaves of a margin.
    """
    certificates: dict[tuple[str, int], dict[str, Any]] = {}
    for origin in ("shipped", "runs") if results.origin == "any" else (results.origin,):
        for record in store.records(origin, '"certificates"'):
            name, seed = name_of(record), record["seed"]
            if name is None or record["profile"] != results.profile or seed not in results.seeds:
                continue
            certificates.pop((str(name), seed), None)
            for certificate in record.get("certificates", []):
                identity = {"experiment": str(name), "seed": seed, "model": name.model}
                certificates[str(name), seed] = certificate | certificate["rounding"] | identity
    frame = pd.DataFrame(certificates.values(), columns=CERTIFICATE_COLUMNS)
    return frame.sort_values(["experiment", "seed"], ignore_index=True)


def name_of(record: Mapping[str, Any]) -> Name | None:
    """The experiment of arithmetic whose run a record is; None for one that was changed or is not known any more."""
    if record["changes"] or record["task"] not in REGISTRY:
        return None
    name = Name(record["task"], record["model"], record["base"])
    return name if is_there(name) and spec(name, record["profile"]).digest == record["spec"] else None


def rows(results: Results, models: Sequence[str] = PRACTISED_MODELS, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The rows of `certificates_table` of some models and tasks, each task in its usual base."""
    table = certificates_table(results)
    usual_base = table.base == table.task.map(lambda task: Task(task).base)
    return table[table.model.isin(models) & table.task.isin(tasks) & usual_base].reset_index(drop=True)


def tally(results: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those with a certificate: `5 of 5`, by model."""
    counts = rows(results, models, [task]).groupby("model").certified.agg(share)
    return {model: counts[model] for model in models if model in counts}


def share(flags: pd.Series[bool]) -> str:
    return f"{int(flags.sum())} of {len(flags)}"


def practice(
    results: Results, models: Sequence[str] = PRACTISED_MODELS, tasks: Sequence[str] = ARITHMETIC
) -> pd.DataFrame:
    """A row a run whose training ends with practice: whether it is certified before and after it, and what it took.

    `wrong before` and `wrong after` count contexts, `alone` those of which no training problem was found. They are
    empty for a run that has too many contexts to try.
    """
    certified, practised = rows(results, models, tasks).set_index(["experiment", "seed"]).certified, []
    for run in results.existing_runs([Name(task, model) for model in models for task in tasks]):
        facts, after = run.facts["practice"], bool(certified.get((run.spec.name, run.seed), False))
        row = identity(run) | {fact.replace("_", " "): value for fact, value in facts.items()}
        row |= {"before": after and facts["rounds"] == 0, "after": after}
        row |= {"seconds": run.facts["seconds"]["training"], "seconds before": run.facts["parent"]["seconds"]}
        practised.append(row)
    return pd.DataFrame(practised, columns=PRACTICE_COLUMNS)


def practice_summary(
    results: Results, models: Sequence[str] = MODELS, tasks: Sequence[str] = ARITHMETIC
) -> pd.DataFrame:
    """By task and model: runs certified before and after practice, most rounds and contexts, smallest margins."""
    summaries: dict[str, Any] = {"before": share, "after": share, "rounds": "max", "wrong before": "max"}
    runs = practice(results, models, tasks).groupby(["task", "model"], sort=False).agg(summaries)
    certificates = rows(results, models, tasks).groupby(["task", "model"], sort=False)
    summary = runs.join(certificates.agg({"contexts": "max", "margin": "min"}))
    return summary.rename(columns={"before": "certified before", "after": "certified after"})
