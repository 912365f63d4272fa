"""Certificates that the audit shows: small models, lists and bases, groups of seeds; and what is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from abc_nb.analysis.certified import PRACTISED_MODELS, certificates_table, practice, rows, share
from abc_nb.analysis.results import identity
from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import contexts_of
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.models import model_table
from abc_nb.specs.names import ARITHMETIC, LISTS
from abc_nb.specs.spec import Spec, spec
from audit import shortest
from audit.models import TABLES
from audit.results import Results
from audit.studies import ABLATED, BASES, GROUPS, STUDIES

# Models whose training ends with practice, in this order.
PRACTISED = ("abs", "exact", "window-cyclic-practised", *PRACTISED_MODELS[1:])
TABLES_PRACTISED = tuple(name for name, model in TABLES.items() if model.practised)
EXAMPLE_COLUMNS = ["task", "model", "seed", "problem", "answer", "right"]


def smallest(results: Results) -> pd.DataFrame:
    """The study of small Addition models that have a certificate, one row a run, those with most parameters first."""
    study, sizes = STUDIES["smallest"], []
    certificates = rows(results, study.models, study.tasks)
    for experiment in [spec(name, results.profile) for name in certificates.experiment]:
        parameters = sum(weights.numel() for weights in experiment.build(0).parameters())
        sizes.append((experiment.model.width, experiment.model.feed_forward, parameters))
    frame = pd.DataFrame(sizes, columns=["embedding size", "feed-forward", "parameters"])
    frame = frame.join(certificates[["seed", "certified", "contexts", "wrong", "margin"]])
    return frame.sort_values("parameters", ascending=False, ignore_index=True)


def by_seeds(results: Results) -> pd.DataFrame:
    """Certified models of the four tasks by method and group of seeds, after practice and before it."""
    parts = [practice(replace(results, seeds=seeds), PRACTISED).assign(seeds=group) for group, seeds in GROUPS.items()]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1])
    counts = frame.groupby(["model", "seeds"], sort=False).agg({"after": share, "before": share})
    cells = (counts.after + " (" + counts.before + ")").unstack("seeds")
    return cells.reindex(columns=[group for group in GROUPS if group in cells]).fillna("–")


def resisting(results: Results) -> pd.DataFrame:
    """Practised models of every group of seeds that are not certified: contexts, wrong ones, shortest problem."""
    of_groups = replace(results, seeds=sorted({seed for seeds in GROUPS.values() for seed in seeds}))
    frame = practice(of_groups, PRACTISED)
    frame = frame.loc[~frame.after.astype(bool), ["task", "model", "seed", "wrong after"]]
    examples = counterexamples(of_groups)[["task", "model", "seed", "problem"]]
    jobs = zip(frame.task, frame.model, frame.seed, strict=True)
    runs = [replace(results, seeds=[seed]).first_run(Name(task, model)) for task, model, seed in jobs]
    counts = [context_count(run.spec, run.bias()) for run in runs]
    return frame.assign(contexts=counts).merge(examples, how="left", on=["task", "model", "seed"])


def lists_and_bases(results: Results) -> pd.DataFrame:
    """Lists, the three tasks in other bases, and a factor of two digits: a row an experiment, of the first seed.

    `verdict` says certified or not, or that there is no certificate. `wrong` and the shortest wrong `problem` are
    those before practice, `margin` is the last certificate's. Contexts are counted without weights, of ABC from its
    lines; a model whose lines are not there is left out.
    """
    models = "window-cyclic-practised", "abc"
    names = [Name(task, model) for task in LISTS for model in models]
    names += [Name(task, model, base) for task in ABLATED for base in BASES for model in models]
    names += [Name("n-by-1", "abc-sparse", 16), Name("n-by-2", "by-head", 4)]
    table = certificates_table(results.first).to_dict("records")
    certificates = {Name(row["task"], row["model"], row["base"]): row for row in table}
    rows = [verdict_on(results.first, name, certificates) for name in names]
    return pd.DataFrame([row for row in rows if row])


def verdict_on(results: Results, name: Name, certificates: dict[Name, dict[Any, Any]]) -> dict[str, Any] | None:
    """The row of one experiment in `lists_and_bases`, from all certificates; None without a model's lines."""
    before, row = spec(name, results.profile), {"task": name.task, "base": name.base, "model": name.model}
    if before.practice and before.parent:
        before = before.parent  # the model that practice began with
    if (last := certificates.get(name) or certificates.get(before.identity)) is None:
        runs = results.existing_runs([before.identity]) if before.calibration is not None else []
        if before.calibration is not None and not runs:
            return None
        contexts = context_count(before, runs[0].bias() if runs else None)
        return row | {"contexts": contexts, "verdict": "no certificate", "wrong": None, "margin": None, "problem": ""}
    first = certificates.get(before.identity, last)
    facts: dict[str, Any] = next((run.facts.get("practice", {}) for run in results.existing_runs([name])), {})
    verdict = "certified" if last["certified"] else "not certified"
    return row | {
        "contexts": first["contexts"],
        "verdict": verdict + " after practice" * (facts.get("rounds", 0) > 0),
        "wrong": facts.get("wrong_before", first["wrong"]),  # none was counted where practice was refused
        "margin": last["margin"],
        "problem": next((example["problem"] for example in first["counterexamples"]), ""),
    }


def context_count(experiment: Spec, bias: Lines | None) -> int:
    """How many contexts there are to try, counted without weights."""
    return sum(contexts_of(experiment.config_under(bias), experiment.sampler).counts.values())


def shortest_wrong(results: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model, `found by` certificate or search, which may have found none."""
    parts = {"certificate": counterexamples(results), "search": searched(results)}
    return pd.concat([part.assign(**{"found by": source}) for source, part in parts.items()], ignore_index=True)


def counterexamples(results: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    parents = [model_table()[model].parent for model in PRACTISED]
    certificates = rows(results, [*PRACTISED, *parents]).to_dict("records")
    examples = [row | row["counterexamples"][0] for row in certificates if row["counterexamples"]]
    return pd.DataFrame(examples, columns=EXAMPLE_COLUMNS)


def searched(results: Results, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The shortest wrong problem, kept or searched now, of the first seed's models without any certificate."""
    studies = ("baselines", "lora", "variants", "methods", "places", "decoder-only")
    runs = results.first.existing_runs([name for name in results.names(*studies) if name.task in tasks])
    examples = [identity(run) | example._asdict() for run in runs if (example := shortest_of(run))]
    return pd.DataFrame(examples, columns=EXAMPLE_COLUMNS)


def shortest_of(run: Run) -> shortest.Shortest | None:
    """The shortest wrong problem of a model that can have no certificate: as an earlier search left it, or found now.

    None where no search left one and the weights are missing, or the model can have a certificate.
    """
    for row in run.table("shortest").itertuples(index=False):
        return shortest.Shortest(*row)
    if run.weights is None:
        return None
    model, sampler = run.model(), run.spec.sampler
    return None if can_be_certified(model, sampler) else shortest.shortest_wrong(model, sampler)


def can_be_certified(model: Transformer, sampler: Sampler) -> bool:
    """Whether finitely many shapes cover every length, so that all could be tried; weights make no difference."""
    try:
        return bool(contexts_of(model, sampler).shapes)
    except InputError:
        return False
