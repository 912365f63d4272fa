"""The certificates of many runs as one table, and what notebooks show of it: who is certified, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.certify import Certificate, certify_model, count_contexts, weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.common.devices import one_thread
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.runs.sweep import workers
from abc_nb.specs.models import TRACED
from abc_nb.specs.names import Name
from abc_nb.specs.spec import spec
from abc_nb.specs.studies import ABLATED, ARITHMETIC, BASES, LISTS, STUDIES

LASTING = ("scaffolds", "abc")  # whose windows to one side with an index modulo 3, and ABC, `reproduce` certifies
MODELS = ("window-cyclic", "abc")
ENCODER_DECODERS = (*MODELS, "window-cyclic-repaired")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abc-twice", "decoder-abs-repaired")
EVERY = (*ENCODER_DECODERS, *DECODERS)
TABLES = tuple(TRACED)
SEARCHED = ("baselines", "lora", "variants", "methods", "places", "decoder-only")  # for what they get wrong
SMALL = ["seed", "certified", "contexts", "wrong", "margin"]
SHOWN = ["problem", "answer", "right"]  # of a counterexample
WRONG = ["task", "model", "seed", "recipe", *SHOWN]
COLUMNS = ["task", "model", "seed", "recipe", "certified", "contexts", "wrong", "margin", "bound", "seconds"]
MORE = ["base", "experiment", "statement", "counterexamples"]


# ---- the table --------------------------------------------------------------------------------------


def table(found: Results) -> pd.DataFrame:
    """The certificates of these results' profile and seeds, a row each, those of plain models before repaired ones.

    Where either will do, one that was made here replaces the shipped one, and a run that was made here has no shipped
    one: that is of other weights. `bound` is what rounding can change a margin by.
    """
    made = files.made_here() if found.origin != "shipped" else {}
    shipped = files.shipped() if found.origin != "runs" else {}
    if found.origin == "any":
        shipped = {name: data for name, data in shipped.items() if not has_run_made_here(data)}
    mine = [data for data in (shipped | made).values() if data["profile"] == found.profile]
    rows = [row_of(data) for data in mine if data["seed"] in found.seeds]
    rows.sort(key=lambda row: (row["recipe"] != files.PLAIN, row["experiment"], row["seed"]))
    return pd.DataFrame(rows, columns=[*COLUMNS, *MORE])


def has_run_made_here(data: files.Data) -> bool:
    return store.find(spec(data["experiment"], data["profile"]), data["seed"], ("runs",)) is not None


def row_of(data: files.Data) -> dict[str, Any]:
    name = spec(data["experiment"], data["profile"]).identity
    return data | {"task": name.task, "model": name.model, "base": name.base, "bound": data["rounding"]["bound"]}


def rows(found: Results, models: Sequence[str] = EVERY, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The rows of `table` of some models and tasks, each task in its usual base."""
    every = table(found)
    usual = every.base == every.task.map(lambda task: Task(task).base)
    return every[every.model.isin(models) & every.task.isin(tasks) & usual].reset_index(drop=True)


# ---- how many models are certified ------------------------------------------------------------------


def certificates(found: Results, models: Sequence[str] = EVERY, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """A row a certificate, in numbers."""
    return rows(found, models, tasks)[COLUMNS]


def tally(found: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those with a certificate: `5 of 5`, by model."""
    own = rows(found, models, [task])
    return {model: share(own[own.model == model].certified) for model in models if (own.model == model).any()}


def statement(found: Results, name: str) -> str:
    """What is proved of the first certified run of an experiment; one sentence where there is none."""
    proved = table(found).query("certified == True and experiment == @name").statement
    return str(proved.iloc[0]) if len(proved) else f"No run of {name} is certified here: try `abc-nb certify {name}`."


def summary(found: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """By task and model: certified runs, the most contexts and wrong ones, the smallest margin, the largest bound."""
    grouped = frame.groupby(["task", "model"], sort=False)
    shown = grouped.agg(
        contexts=("contexts", "max"), wrong=("wrong", "max"), margin=("margin", "min"), rounding=("bound", "max")
    )
    shown.insert(0, "certified", [certified_of(found, part) for _, part in grouped])
    return shown.round({"margin": 2})


def certified_of(found: Results, part: pd.DataFrame) -> str:
    """How many runs of a model are certified, from its certificates: `3 of 5 (2 without a certificate)`."""
    name = Name(part.task.iloc[0], part.model.iloc[0])
    runs = max(len(part), len(found.existing([name])))
    return f"{part.certified.sum()} of {runs}" + f" ({runs - len(part)} without a certificate)" * (runs > len(part))


def share(part: pd.Series[bool]) -> str:
    return f"{int(part.sum())} of {len(part)}"


def smallest(found: Results) -> pd.DataFrame:
    """The study of small Addition models that have a certificate, one row a run, those with most parameters first."""
    study, sizes = STUDIES["smallest"], []
    frame = rows(found, study.models, study.tasks)
    for name in frame.experiment:
        own = spec(name, found.profile)
        parameters = sum(weights.numel() for weights in own.build(0).parameters())
        sizes.append((own.model.width, own.model.feed_forward, parameters))
    size = pd.DataFrame(sizes, columns=["embedding size", "feed-forward", "parameters"])
    return size.join(frame[SMALL]).sort_values("parameters", ascending=False, ignore_index=True)


# ---- repair -----------------------------------------------------------------------------------------


def repairs(found: Results) -> pd.DataFrame:
    """A row a plain model with a certificate: whether it is certified before and after repair; steps and seconds of it.

    A repaired model counts for the seed of the model that it was made from, if that one is not certified.
    """
    every, made = rows(found), []
    known = {(row.task, row.model, row.seed): row for row in every.itertuples()}
    for row in every[every.recipe == files.PLAIN].itertuples():
        repaired = None if row.certified else known.get((row.task, f"{row.model}-repaired", row.seed))
        after = row.certified if repaired is None else repaired.certified
        run = None if repaired is None else found.by_seed(str(repaired.experiment)).get(int(str(row.seed)))
        cost = (None, None) if run is None else (run.manifest["steps"], run.manifest["seconds"]["training"])
        made.append((row.task, row.model, row.certified, after, *cost))
    return pd.DataFrame(made, columns=["task", "model", "before", "after", "steps", "seconds"])


def summary_with_repairs(found: Results) -> pd.DataFrame:
    """`summary` of ABS and ABC, with the seeds that are certified after repair and the steps that all repairs took."""
    grouped = repairs(found).groupby(["task", "model"], sort=False)
    steps = grouped.steps.agg(lambda part: f"{part.sum():.0f}" if part.notna().any() else "–")
    more = pd.DataFrame({"after repair": grouped.after.agg(share), "steps of repair": steps})
    return summary(found, certificates(found, MODELS)).join(more)


# ---- lists and bases --------------------------------------------------------------------------------


def lists_and_bases(found: Results) -> pd.DataFrame:
    """Lists, the three tasks in other bases, and a factor of two digits: a row an experiment, of the first seed.

    `verdict` says certified or not, or that there is no certificate. `wrong` and the shortest wrong `problem` are
    those before repair, `margin` is the last certificate's. Contexts are counted without weights, of ABC from its
    lines; a model whose lines are not there is left out.
    """
    names = [Name(task, model) for task in LISTS for model in MODELS]
    names += [Name(task, model, base) for task in ABLATED for base in BASES for model in MODELS]
    names.append(Name("n-by-2", "by-head", 4))
    made = {Name(row["task"], row["model"], row["base"]): row for row in table(found.first).to_dict("records")}
    frame = pd.DataFrame([verdict_on(found.first, name, made) for name in names])
    return frame.dropna(subset="contexts", ignore_index=True).astype({"contexts": int})


def verdict_on(found: Results, name: Name, made: dict[Name, dict[Any, Any]]) -> dict[str, Any]:
    """The row of one experiment in `lists_and_bases`, from all certificates."""
    row: dict[str, Any] = {"task": name.task, "base": name.base, "model": name.model}
    plain, repaired = made.get(name), made.get(Name(name.task, f"{name.model}-repaired", name.base))
    if plain is None:
        none = {"verdict": "no certificate", "wrong": None, "margin": None, "problem": ""}
        return row | {"contexts": contexts_of(found, name)} | none
    last = repaired or plain
    verdict = ("certified" if last["certified"] else "not certified") + " after repair" * (last is not plain)
    problem = next((example["problem"] for example in plain["counterexamples"]), "")
    row |= {"contexts": plain["contexts"], "verdict": verdict, "wrong": plain["wrong"], "margin": last["margin"]}
    return row | {"problem": problem}


def contexts_of(found: Results, name: Name) -> int | None:
    """How many contexts there are to try, counted without weights; None where a model's lines are not there."""
    own = spec(name, found.profile)
    if own.calibration is None:
        return count_contexts(own.build(0), own.sampler)
    runs = found.existing([name])
    return count_contexts(own.build(runs[0].seed, runs[0].bias()), own.sampler) if runs else None


# ---- wrong problems ---------------------------------------------------------------------------------


def shortest_wrong(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of every model with wrong contexts, and of those that can have no certificate.

    The column `found by` says whether it is from a certificate or a search. Where a search found none, it is empty.
    """
    parts = {"certificate": counterexamples(found), "search": searched(found)}
    return pd.concat([part.assign(**{"found by": how}) for how, part in parts.items()], ignore_index=True)


def counterexamples(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    every = rows(found).to_dict("records")
    return pd.DataFrame([row | row["counterexamples"][0] for row in every if row["counterexamples"]], columns=WRONG)


def searched(found: Results, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The shortest wrong problem of each model that can have no certificate: kept, or searched where weights are there.

    Of the first seed alone. A model in which the search found no wrong problem has none in its row; one that was not
    searched has no row.
    """
    made = []
    for run in found.first.existing([name for name in found.names(*SEARCHED) if name.task in tasks]):
        example, name = run.shortest_wrong(), run.spec.identity
        if example is not None:
            made.append((name.task, name.model, run.seed, files.PLAIN, *example))
    return pd.DataFrame(made, columns=WRONG)


# ---- making certificates ----------------------------------------------------------------------------


def names(found: Results) -> list[Name]:
    """The experiments of the four tasks that are meant to hold at every length."""
    return [name for name in found.names(*LASTING) if name.model in MODELS]


def of(run: Run) -> files.Of:
    """Whose certificate a run has."""
    return files.Of(run.spec.name, run.seed, run.spec.profile, run.spec.recipe)


def of_run(run: Run, origins: Sequence[str] = store.ANYWHERE) -> files.Data | None:
    """The certificate of a run's weights, made here or shipped; None without one."""
    own, name = checksum(weights_of(run.model())), of(run).name
    known = {"runs": files.made_here, "shipped": files.shipped}
    every = (known[origin]().get(name) for origin in origins)
    return next((data for data in every if data is not None and data["weights"] == own), None)


def certify_runs(found: Results) -> list[Path]:
    """Certify what was made here, is meant to hold and has no certificate for its weights yet; the files written.

    As many at the same time as there are cores. A model for which no certificate exists is left out.
    """
    repaired = found.names("repaired") if found.profile in STUDIES["repaired"].profiles else []
    repaired_runs = [run for run in found.existing(repaired) if run.has_weights]
    runs = [*found.runs(names(found)), *repaired_runs]
    runs = [run for run in runs if not run.manifest["shipped"] and of_run(run, ("runs",)) is None]
    parallel = joblib.Parallel(min(workers(), len(runs) or 1), batch_size=1, return_as="generator_unordered")
    made = parallel(joblib.delayed(certificate)(run) for run in runs)
    return [files.write(data, of(run), of(run).path) for run, data in made if data is not None]


@one_thread()
def certificate(run: Run) -> tuple[Run, Certificate | None]:
    """A run with its certificate, in whatever process this is."""
    try:
        return run, certify_model(run.model(), run.spec.sampler)
    except InputError:
        return run, None
