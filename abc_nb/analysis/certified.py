"""Certificates of many runs as frames: how many models are certified, and what the others get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.certify import certify_model, count_contexts, weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments import ABLATED, BASES, LISTS, STUDIES, Name, experiment, parse
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run

LASTING = ("scaffolds", "abc")  # whose windows to one side with an index modulo 3, and ABC, `reproduce` certifies
MODELS = ("window-cyclic", "abc")
ENCODER_DECODERS = (*MODELS, "window-cyclic-repaired")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abs-repaired")
EVERY = (*ENCODER_DECODERS, *DECODERS)
MANY = (  # some have too many contexts to try
    Name("addition", "decoder-abs"),
    Name("addition", "decoder-abc"),
    Name("parity", "decoder-abc"),
)
SMALL = ("seed", "certified", "contexts", "wrong", "margin")
COLUMNS = ["task", "model", "seed", "recipe", "certified", "contexts", "wrong", "margin", "bound", "seconds"]


def names(found: Results) -> list[Name]:
    """The experiments of the four tasks that are meant to hold at every length."""
    return [name for name in found.names(*LASTING) if name.model in MODELS]


def made_here() -> Path:
    """The folder of the certificates that were made here."""
    return paths.runs() / "certificates"


def file_name(run: Run) -> str:
    """Of a run's certificate."""
    return f"{run.experiment.name}-{run.experiment.profile}-seed{run.seed}.json"


def read(found: Results) -> list[dict[str, Any]]:
    """Every certificate of these results' profile and seeds, plain before repaired.

    Where either will do, one that was made here replaces the shipped one, and a run that was made here has no shipped
    one: that is of other weights.
    """
    made = files_in(made_here()) if found.origin != "shipped" else {}
    shipped = files_in(paths.certificates()) if found.origin != "runs" else {}
    if found.origin == "any":
        shipped = {name: each for name, each in shipped.items() if not has_run_made_here(each)}
    mine = [each for each in (shipped | made).values() if each["profile"] == found.profile]
    mine = [each for each in mine if each["seed"] in found.seeds]
    return sorted(mine, key=lambda each: (each["recipe"] != files.PLAIN, each["experiment"], each["seed"]))


def files_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The certificates in a folder, by the names of their files."""
    return {path.name: files.read(path) for path in folder.glob("*.json")}


def has_run_made_here(certificate: dict[str, Any]) -> bool:
    wanted = experiment(certificate["experiment"], certificate["profile"])
    return store.find(wanted, certificate["seed"], ("runs",)) is not None


def certificates(
    found: Results, models: Sequence[str] = (*ENCODER_DECODERS, *DECODERS), tables: bool = False
) -> pd.DataFrame:
    """One row a certificate of these models; `bound` is what rounding can change a margin by.

    With `tables`, of tasks whose output is a table; without, of the others.
    """
    rows = []
    for each in read(found):
        name = parse(each["experiment"])
        assert name is not None
        if name.model not in models or tables != (Task(name.task).trace is not None):
            continue
        row = {"task": name.task, "model": name.model, "bound": each["rounding"]["bound"]}
        rows.append({column: row.get(column, each.get(column)) for column in COLUMNS})
    return pd.DataFrame(rows, columns=COLUMNS)


def tally(found: Results, task: str, models: Sequence[str]) -> dict[str, str]:
    """How many runs of a task's models are certified, of those that were tried: `5 of 5`, by model."""
    rows = certificates(found, models)
    counts = {model: rows[(rows.task == task) & (rows.model == model)].certified for model in models}
    return {model: f"{int(part.sum())} of {len(part)}" for model, part in counts.items() if len(part)}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """By recipe, task and model: certified seeds, the most contexts and wrong ones, the smallest margin."""
    grouped = frame.groupby(["recipe", "task", "model"], sort=False)
    certified = grouped.certified.agg(lambda part: f"{int(part.sum())} of {len(part)}")
    found = grouped.agg(contexts=("contexts", "max"), wrong=("wrong", "max"), margin=("margin", "min"))
    found.insert(0, "certified", certified)
    return found.round({"margin": 2})


def counterexamples(found: Results, models: Sequence[str] = ENCODER_DECODERS) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    rows = []
    for each in read(found):
        examples, name = each["counterexamples"], parse(each["experiment"])
        assert name is not None
        for example in examples[:1] if name.model in models else []:
            head = {"task": name.task, "model": name.model, "seed": each["seed"], "recipe": each["recipe"]}
            rows.append(head | {column: example[column] for column in ("problem", "answer", "right")})
    return pd.DataFrame(rows, columns=["task", "model", "seed", "recipe", "problem", "answer", "right"])


def smallest(found: Results) -> pd.DataFrame:
    """The study of small Addition models that have a certificate, one row a run, those with most parameters first."""
    names, rows = [str(name) for name in STUDIES["smallest"].names], []
    for each in read(found):
        if each["experiment"] in names:
            own = experiment(each["experiment"], found.profile)
            size = {"width": own.model.width, "feed-forward": own.model.feed_forward}
            parameters = sum(weights.numel() for weights in own.build(0).parameters())
            rows.append(size | {"parameters": parameters} | {name: each[name] for name in SMALL})
    frame = pd.DataFrame(rows, columns=["width", "feed-forward", "parameters", *SMALL])
    return frame.sort_values("parameters", ascending=False, ignore_index=True)


def counted(found: Results) -> pd.DataFrame:
    """How many contexts there are to try, of models whose certificate is not shipped: the fewest and most of seeds.

    Weights make no difference, so that lines alone are needed; under ABS they are the same for every seed.
    """
    names = [Name(task, "window-cyclic") for task in LISTS]
    names += [Name(task, "window-cyclic", base) for base in BASES for task in ABLATED]
    rows = []
    for name in [*names, *MANY]:
        own = experiment(name, found.profile)
        if own.calibration is None:
            numbers = [count_contexts(own.build(0), own.sampler)]
        else:
            runs = [run for run in found.by_seed(name).values() if run is not None]
            numbers = [count_contexts(own.build(run.seed, run.bias()), own.sampler) for run in runs]
        if not numbers:
            continue
        what = {"task": own.task.name, "model": own.identity.model, "base": own.task.base}
        rows.append(what | {"fewest": min(numbers), "most": max(numbers)})
    return pd.DataFrame(rows)


def certify_runs(found: Results) -> list[Path]:
    """Certify what was made here, is meant to hold and has no certificate for its weights yet; the files written.

    A model for which no certificate exists is left out.
    """
    written = []
    for run in [*found.runs(names(found)), *repaired_runs(found)]:
        path = made_here() / file_name(run)
        if not run.manifest["shipped"] and not is_of(path, run):
            try:
                certificate = certify_model(run.model(), run.experiment.sampler)
            except InputError:
                continue
            of = files.Of(run.experiment.name, run.seed, run.experiment.profile, run.experiment.recipe)
            written.append(files.write(certificate, of, path))
    return written


def repaired_runs(found: Results) -> list[Run]:
    """The runs of repaired models that are there; none has to be."""
    repaired = found.names("repaired") if found.profile in STUDIES["repaired"].profiles else []
    return [run for run in found.existing(repaired) if run.has_weights]


def is_of(path: Path, run: Run) -> bool:
    """Whether a certificate is there and was made for this run's weights."""
    return path.exists() and files.read(path)["weights"] == checksum(weights_of(run.model()))
