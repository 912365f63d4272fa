"""Certificates of many runs as frames: how many models are certified, and what the others get wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.certify import certify_model, count_contexts, weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.names import Name
from abc_nb.specs.spec import spec
from abc_nb.specs.studies import ABLATED, ARITHMETIC, BASES, LISTS, STUDIES, Study

LASTING = ("scaffolds", "abc")  # whose windows to one side with an index modulo 3, and ABC, `reproduce` certifies
MODELS = ("window-cyclic", "abc")
ENCODER_DECODERS = (*MODELS, "window-cyclic-repaired")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abc-twice", "decoder-abs-repaired")
EVERY = (*ENCODER_DECODERS, *DECODERS)
SMALL = ("seed", "certified", "contexts", "wrong", "margin")
SHOWN = ("problem", "answer", "right")  # of a counterexample
COLUMNS = ["task", "model", "seed", "recipe", "certified", "contexts", "wrong", "margin", "bound", "seconds"]


def names(found: Results) -> list[Name]:
    """The experiments of the four tasks that are meant to hold at every length."""
    return [name for name in found.names(*LASTING) if name.model in MODELS]


def of(run: Run) -> files.Of:
    """Whose certificate a run has."""
    return files.Of(run.spec.name, run.seed, run.spec.profile, run.spec.recipe)


def read(
    found: Results, models: Sequence[str] = EVERY, tasks: Sequence[str] = ARITHMETIC, bases: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """The certificates of some models in these results' profile and seeds, plain before repaired.

    Without bases, each task's usual one. `name` is added to what a certificate says. Where either will do, one that
    was made here replaces the shipped one, and a run that was made here has no shipped one: that is of other weights.
    """
    wanted = {str(name): name for name in Study(tuple(tasks), tuple(models), tuple(bases)).names}
    made = files.made_here() if found.origin != "shipped" else {}
    shipped = files.shipped() if found.origin != "runs" else {}
    if found.origin == "any":
        shipped = {name: each for name, each in shipped.items() if not has_run_made_here(each)}
    mine = [each for each in (shipped | made).values() if each["profile"] == found.profile]
    mine = [each for each in mine if each["seed"] in found.seeds and each["experiment"] in wanted]
    mine = [each | {"name": wanted[each["experiment"]]} for each in mine]
    return sorted(mine, key=lambda each: (each["recipe"] != files.PLAIN, each["experiment"], each["seed"]))


def statement(found: Results, name: str) -> str:
    """What is proved of the first certified run of an experiment; one sentence where there is none."""
    proved = [str(each["statement"]) for each in read(found) if each["experiment"] == name and each["certified"]]
    return proved[0] if proved else f"No run of {name} is certified here: try `abc-nb certify {name}`."


def has_run_made_here(certificate: dict[str, Any]) -> bool:
    wanted = spec(certificate["experiment"], certificate["profile"])
    return store.find(wanted, certificate["seed"], ("runs",)) is not None


def certificates(
    found: Results, models: Sequence[str] = EVERY, tasks: Sequence[str] = ARITHMETIC, bases: Sequence[int] = ()
) -> pd.DataFrame:
    """One row a certificate, chosen as in `read`; `bound` is what rounding can change a margin by."""
    rows = []
    for each in read(found, models, tasks, bases):
        name = each["name"]
        row = {"task": name.task, "model": name.model, "bound": each["rounding"]["bound"]}
        rows.append({column: row.get(column, each.get(column)) for column in COLUMNS})
    return pd.DataFrame(rows, columns=COLUMNS)


def tally(found: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those that were tried: `5 of 5`, by model."""
    rows = certificates(found, models, [task])
    counts = {model: rows[rows.model == model].certified for model in models}
    return {model: f"{int(part.sum())} of {len(part)}" for model, part in counts.items() if len(part)}


def summary(found: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """By task and model: certified runs, the most contexts and wrong ones, the smallest margin, the largest bound.

    Runs without a certificate count as not tried.
    """
    grouped = frame.groupby(["task", "model"], sort=False)
    shown = grouped.agg(
        contexts=("contexts", "max"), wrong=("wrong", "max"), margin=("margin", "min"), rounding=("bound", "max")
    )
    shown.insert(0, "certified", [certified_of(found, part) for _, part in grouped])
    return shown.round({"margin": 2})


def certified_of(found: Results, part: pd.DataFrame) -> str:
    """How many runs of a model are certified, from its certificates: `3 of 5 (2 not tried)`."""
    name = Name(part.task.iloc[0], part.model.iloc[0])
    runs = max(len(part), len(found.existing([name])))
    return f"{part.certified.sum()} of {runs}" + f" ({runs - len(part)} not tried)" * (runs > len(part))


def counterexamples(found: Results, models: Sequence[str] = EVERY) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    rows = []
    for each in read(found, models):
        for example in each["counterexamples"][:1]:
            head = {"task": each["task"], "model": each["name"].model, "seed": each["seed"], "recipe": each["recipe"]}
            rows.append(head | {column: example[column] for column in SHOWN})
    return pd.DataFrame(rows, columns=["task", "model", "seed", "recipe", *SHOWN])


def smallest(found: Results) -> pd.DataFrame:
    """The study of small Addition models that have a certificate, one row a run, those with most parameters first."""
    study, rows = STUDIES["smallest"], []
    for each in read(found, study.models, study.tasks):
        own = spec(each["name"], found.profile)
        size = {"embedding size": own.model.width, "feed-forward": own.model.feed_forward}
        parameters = sum(weights.numel() for weights in own.build(0).parameters())
        rows.append(size | {"parameters": parameters} | {name: each[name] for name in SMALL})
    frame = pd.DataFrame(rows, columns=["embedding size", "feed-forward", "parameters", *SMALL])
    return frame.sort_values("parameters", ascending=False, ignore_index=True)


def lists_and_bases(found: Results) -> pd.DataFrame:
    """Lists, the three tasks in other bases, and a factor of two digits: a row an experiment, of the first seed.

    `verdict` says certified or not, or that no certificate was tried. `wrong` and the shortest wrong `problem` are
    those before repair, `margin` is the last certificate's. Contexts are counted without weights, of ABC from its
    lines; a model whose lines are not there is left out.
    """
    names = [Name(task, model) for task in LISTS for model in MODELS]
    names += [Name(task, model, base) for task in ABLATED for base in BASES for model in MODELS]
    names.append(Name("n-by-2", "by-head", 4))
    models = [*MODELS, *(f"{model}-repaired" for model in MODELS), "by-head"]
    tried = [*read(found.first, models, LISTS), *read(found.first, models, (*ABLATED, "n-by-2"), BASES)]
    made = {each["name"]: each for each in tried}
    frame = pd.DataFrame([verdict_on(found.first, name, made) for name in names])
    return frame.dropna(subset="contexts", ignore_index=True).astype({"contexts": int})


def verdict_on(found: Results, name: Name, made: Mapping[Name, dict[str, Any]]) -> dict[str, Any]:
    """The row of one experiment in `lists_and_bases`, from all certificates."""
    row: dict[str, Any] = {"task": name.task, "base": name.base, "model": name.model}
    plain, repaired = made.get(name), made.get(replace(name, model=f"{name.model}-repaired"))
    if plain is None:
        none = {"verdict": "not tried", "wrong": None, "margin": None, "problem": ""}
        return row | {"contexts": contexts_of(found, name)} | none
    last = repaired or plain
    verdict = ("certified" if last["certified"] else "not certified") + " after repair" * (last is not plain)
    example = plain["counterexamples"][0]["problem"] if plain["counterexamples"] else ""
    row |= {"contexts": plain["contexts"], "verdict": verdict, "wrong": plain["wrong"], "margin": last["margin"]}
    return row | {"problem": example}


def contexts_of(found: Results, name: Name) -> int | None:
    """How many contexts there are to try, counted without weights; None where a model's lines are not there."""
    own = spec(name, found.profile)
    if own.calibration is None:
        return count_contexts(own.build(0), own.sampler)
    runs = found.existing([name])
    return count_contexts(own.build(runs[0].seed, runs[0].bias()), own.sampler) if runs else None


def certify_runs(found: Results) -> list[Path]:
    """Certify what was made here, is meant to hold and has no certificate for its weights yet; the files written.

    A model for which no certificate exists is left out.
    """
    written = []
    for run in [*found.runs(names(found)), *repaired_runs(found)]:
        if not run.manifest["shipped"] and of_run(run, ("runs",)) is None:
            try:
                certificate = certify_model(run.model(), run.spec.sampler)
            except InputError:
                continue
            written.append(files.write(certificate, of(run), of(run).path))
    return written


def repaired_runs(found: Results) -> list[Run]:
    """The runs of repaired models that are there; none has to be."""
    repaired = found.names("repaired") if found.profile in STUDIES["repaired"].profiles else []
    return [run for run in found.existing(repaired) if run.has_weights]


def of_run(run: Run, origins: Sequence[str] = store.ANYWHERE) -> dict[str, Any] | None:
    """The certificate of a run's weights, made here or shipped; None without one."""
    own, name = checksum(weights_of(run.model())), of(run).name
    known = {"runs": files.made_here, "shipped": files.shipped}
    found = (known[origin]().get(name) for origin in origins)
    return next((each for each in found if each is not None and each["weights"] == own), None)
