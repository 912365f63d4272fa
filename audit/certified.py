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
from audit.models import TABLES
from audit.results import Results
from audit.shortest import Shortest
from audit.shortest import shortest_wrong as shortest_wrong_of
from audit.studies import ABLATED, BASES, GROUPS, STUDIES

# Models whose training ends with practice, in this order.
EVERY = ("abs", "exact", "window-cyclic-practised", *PRACTISED_MODELS[1:])
TABLES_PRACTISED = tuple(name for name, model in TABLES.items() if model.practised)
WRONG = ["task", "model", "seed", "problem", "answer", "right"]


def smallest(found: Results) -> pd.DataFrame:
    """The study of small Addition models that have a certificate, one row a run, those with most parameters first."""
    study, sizes = STUDIES["smallest"], []
    frame = rows(found, study.models, study.tasks)
    for own in [spec(name, found.profile) for name in frame.experiment]:
        parameters = sum(weights.numel() for weights in own.build(0).parameters())
        sizes.append((own.model.width, own.model.feed_forward, parameters))
    size = pd.DataFrame(sizes, columns=["embedding size", "feed-forward", "parameters"])
    about = frame[["seed", "certified", "contexts", "wrong", "margin"]]
    return size.join(about).sort_values("parameters", ascending=False, ignore_index=True)


def by_seeds(found: Results) -> pd.DataFrame:
    """Certified models of the four tasks by method and group of seeds, after practice and before it."""
    parts = [practice(replace(found, seeds=seeds), EVERY).assign(seeds=group) for group, seeds in GROUPS.items()]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1])
    counts = frame.groupby(["model", "seeds"], sort=False).agg({"after": share, "before": share})
    cells = (counts.after + " (" + counts.before + ")").unstack("seeds")
    return cells.reindex(columns=[group for group in GROUPS if group in cells]).fillna("–")


def resisting(found: Results) -> pd.DataFrame:
    """PracticeResult models of every group of seeds that are not certified: contexts, wrong ones, shortest problem."""
    every = replace(found, seeds=sorted({seed for seeds in GROUPS.values() for seed in seeds}))
    frame = practice(every, EVERY)
    left = frame.loc[~frame.after.astype(bool), ["task", "model", "seed", "wrong after"]]
    examples = counterexamples(every)[["task", "model", "seed", "problem"]]
    jobs = zip(left.task, left.model, left.seed, strict=True)
    runs = [replace(found, seeds=[seed]).first_run(Name(task, model)) for task, model, seed in jobs]
    counts = [count_under(run.spec, run.bias()) for run in runs]
    return left.assign(contexts=counts).merge(examples, how="left", on=["task", "model", "seed"])


def lists_and_bases(found: Results) -> pd.DataFrame:
    """Lists, the three tasks in other bases, and a factor of two digits: a row an experiment, of the first seed.

    `verdict` says certified or not, or that there is no certificate. `wrong` and the shortest wrong `problem` are
    those before practice, `margin` is the last certificate's. Contexts are counted without weights, of ABC from its
    lines; a model whose lines are not there is left out.
    """
    models = "window-cyclic-practised", "abc"
    names = [Name(task, model) for task in LISTS for model in models]
    names += [Name(task, model, base) for task in ABLATED for base in BASES for model in models]
    names += [Name("n-by-1", "abc-sparse", 16), Name("n-by-2", "by-head", 4)]
    made = {
        Name(row["task"], row["model"], row["base"]): row for row in certificates_table(found.first).to_dict("records")
    }
    rows = [verdict_on(found.first, name, made) for name in names]
    return pd.DataFrame([row for row in rows if row])


def verdict_on(found: Results, name: Name, made: dict[Name, dict[Any, Any]]) -> dict[str, Any] | None:
    """The row of one experiment in `lists_and_bases`, from all certificates; None without a model's lines."""
    own, row = spec(name, found.profile), {"task": name.task, "base": name.base, "model": name.model}
    before = own.parent if own.practice and own.parent else own  # the model that a practised one was made from
    if (last := made.get(name) or made.get(before.identity)) is None:
        runs = found.existing_runs([before.identity]) if before.calibration is not None else []
        if before.calibration is not None and not runs:
            return None
        contexts = count_under(before, runs[0].bias() if runs else None)
        return row | {"contexts": contexts, "verdict": "no certificate", "wrong": None, "margin": None, "problem": ""}
    first = made.get(before.identity, last)
    facts: dict[str, Any] = next((run.facts.get("practice", {}) for run in found.existing_runs([name])), {})
    verdict = "certified" if last["certified"] else "not certified"
    return row | {
        "contexts": first["contexts"],
        "verdict": verdict + " after practice" * (facts.get("rounds", 0) > 0),
        "wrong": facts.get("wrong_before", first["wrong"]),  # none was counted where practice was refused
        "margin": last["margin"],
        "problem": next((example["problem"] for example in first["counterexamples"]), ""),
    }


def count_under(own: Spec, bias: Lines | None) -> int:
    """How many contexts there are to try, counted without weights."""
    return sum(contexts_of(own.config_under(bias), own.sampler).counts.values())


def shortest_wrong(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model, `found by` certificate or search, which may have found none."""
    parts = {"certificate": counterexamples(found), "search": searched(found)}
    return pd.concat([part.assign(**{"found by": how}) for how, part in parts.items()], ignore_index=True)


def counterexamples(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    every_model = model_table()
    before = [every_model[model].parent for model in EVERY]
    every = rows(found, [*EVERY, *before]).to_dict("records")
    return pd.DataFrame([row | row["counterexamples"][0] for row in every if row["counterexamples"]], columns=WRONG)


def searched(found: Results, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The shortest wrong problem, kept or searched now, of the first seed's models without any certificate."""
    studies = ("baselines", "lora", "variants", "methods", "places", "decoder-only")
    runs = found.first.existing_runs([name for name in found.names(*studies) if name.task in tasks])
    examples = [(run, example) for run in runs if (example := shortest_of(run)) is not None]
    made = [identity(run) | example._asdict() for run, example in examples]
    return pd.DataFrame(made, columns=WRONG)


def shortest_of(run: Run) -> Shortest | None:
    """The shortest wrong problem of a model that can have no certificate: as a search left it, or searched now.

    None where nothing is kept and the weights are not there either, or the model can have a certificate.
    """
    kept = [Shortest(*row) for row in run.table("shortest").itertuples(index=False)]
    if kept or run.weights is None:
        return kept[0] if kept else None
    model, sampler = run.model(), run.spec.sampler
    return None if can_be_certified(model, sampler) else shortest_wrong_of(model, sampler)


def can_be_certified(model: Transformer, sampler: Sampler) -> bool:
    """Whether finitely many shapes cover every length, so that all could be tried; weights make no difference."""
    try:
        return bool(contexts_of(model, sampler).shapes)
    except InputError:
        return False
