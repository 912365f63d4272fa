"""The certificates of many runs as one table, and what notebooks show of it: who is certified, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results, identity
from abc_nb.bias.lines import Lines
from abc_nb.certificates import files
from abc_nb.certificates.certify import contexts_of, weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.models import MODELS as EVERY_MODEL
from abc_nb.specs.names import Name
from abc_nb.specs.spec import GROUPS, Spec, spec
from abc_nb.specs.studies import ABLATED, ARITHMETIC, BASES, LISTS, STUDIES
from abc_nb.specs.traced import TRACED

MODELS = ("abs", "abc")
DECODERS = ("decoder-abs", "decoder-abc", "decoder-abc-twice")
PRACTISED = (*MODELS, *DECODERS)  # models whose training ends with practice
TABLES_PRACTISED = tuple(name for name, model in TRACED.items() if model.practice)
WRONG = ["task", "model", "seed", "problem", "answer", "right"]
COLUMNS = ["task", "model", "seed", "certified", "contexts", "wrong", "margin", "left", "bits"]
COLUMNS += ["base", "experiment", "statement", "counterexamples"]
PRACTICE = ["task", "model", "seed", "before", "after", "rounds", "wrong before", "wrong after", "alone"]
PRACTICE += ["seconds", "seconds before"]


def table(found: Results) -> pd.DataFrame:
    """The certificates of these results' profile and seeds, a row each.

    Where either will do, one that was made here replaces the shipped one, and a run that was made here has no shipped
    one: that is of other weights. `left` is the least that rounding leaves of a margin, in `bits` bits.
    """
    made = files.made_here() if found.origin != "shipped" else {}
    shipped, rows = files.shipped() if found.origin != "runs" else {}, []
    for key, data in (shipped | made).items():
        own, seed = spec(data["experiment"], data["profile"]), data["seed"]
        others = found.origin == "any" and key not in made and store.find(own, seed, ("runs",))
        if data["profile"] == found.profile and seed in found.seeds and not others:
            name = own.identity
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


def by_seeds(found: Results) -> pd.DataFrame:
    """Certified models of the four tasks by method and group of seeds, after practice and before it."""
    parts = [practice(replace(found, seeds=seeds)).assign(seeds=group) for group, seeds in GROUPS.items()]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1])
    counts = frame.groupby(["model", "seeds"], sort=False).agg({"after": share, "before": share})
    cells = (counts.after + " (" + counts.before + ")").unstack("seeds")
    return cells.reindex(columns=[group for group in GROUPS if group in cells]).fillna("–")


def resisting(found: Results) -> pd.DataFrame:
    """Practised models of every group of seeds that are not certified: contexts, wrong ones, shortest problem."""
    every = replace(found, seeds=sorted({seed for seeds in GROUPS.values() for seed in seeds}))
    frame = practice(every)
    left = frame.loc[~frame.after.astype(bool), ["task", "model", "seed", "wrong after"]]
    examples = counterexamples(every)[["task", "model", "seed", "problem"]]
    jobs = zip(left.task, left.model, left.seed, strict=True)
    runs = [replace(found, seeds=[seed]).one(Name(task, model)) for task, model, seed in jobs]
    counts = [count_under(run.spec, run.bias()) for run in runs]
    return left.assign(contexts=counts).merge(examples, how="left", on=["task", "model", "seed"])


def lists_and_bases(found: Results) -> pd.DataFrame:
    """Lists, the three tasks in other bases, and a factor of two digits: a row an experiment, of the first seed.

    `verdict` says certified or not, or that there is no certificate. `wrong` and the shortest wrong `problem` are
    those before practice, `margin` is the last certificate's. Contexts are counted without weights, of ABC from its
    lines; a model whose lines are not there is left out.
    """
    names = [Name(task, model) for task in LISTS for model in MODELS]
    names += [Name(task, model, base) for task in ABLATED for base in BASES for model in MODELS]
    names += [Name("n-by-1", "abc-sparse", 16), Name("n-by-2", "by-head", 4)]
    made = {Name(row["task"], row["model"], row["base"]): row for row in table(found.first).to_dict("records")}
    rows = [verdict_on(found.first, name, made) for name in names]
    return pd.DataFrame([row for row in rows if row])


def verdict_on(found: Results, name: Name, made: dict[Name, dict[Any, Any]]) -> dict[str, Any] | None:
    """The row of one experiment in `lists_and_bases`, from all certificates; None without a model's lines."""
    own, row = spec(name, found.profile), {"task": name.task, "base": name.base, "model": name.model}
    before = own.parent if own.practice and own.parent else own  # the model that a practised one was made from
    if (last := made.get(name) or made.get(before.identity)) is None:
        runs = found.existing([before.identity]) if before.calibration is not None else []
        if before.calibration is not None and not runs:
            return None
        contexts = count_under(before, runs[0].bias() if runs else None)
        return row | {"contexts": contexts, "verdict": "no certificate", "wrong": None, "margin": None, "problem": ""}
    first = made.get(before.identity, last)
    facts: dict[str, Any] = next((run.manifest.get("practice", {}) for run in found.existing([name])), {})
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
    return sum(contexts_of(own.under(bias), own.sampler).counts.values())


def shortest_wrong(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model, `found by` certificate or search, which may have found none."""
    parts = {"certificate": counterexamples(found), "search": searched(found)}
    return pd.concat([part.assign(**{"found by": how}) for how, part in parts.items()], ignore_index=True)


def counterexamples(found: Results) -> pd.DataFrame:
    """The shortest wrong problem of each model that is not certified, the model's answer to it, and the right one."""
    before = [EVERY_MODEL[model].parent for model in PRACTISED]
    every = rows(found, [*PRACTISED, *before]).to_dict("records")
    return pd.DataFrame([row | row["counterexamples"][0] for row in every if row["counterexamples"]], columns=WRONG)


def searched(found: Results, tasks: Sequence[str] = ARITHMETIC) -> pd.DataFrame:
    """The shortest wrong problem, kept or searched now, of the first seed's models without any certificate."""
    studies = ("baselines", "lora", "variants", "methods", "places", "decoder-only")
    runs = found.first.existing([name for name in found.names(*studies) if name.task in tasks])
    examples = [(run, example) for run in runs if (example := run.shortest_wrong()) is not None]
    made = [identity(run) | example._asdict() for run, example in examples]
    return pd.DataFrame(made, columns=WRONG)


def of_run(run: Run, origins: Sequence[str] = store.ANYWHERE) -> files.Data | None:
    """The certificate of a run's weights, made here or shipped; None without one."""
    own, known = checksum(weights_of(run.model())), {"runs": files.made_here, "shipped": files.shipped}
    every = (data for origin in origins for data in known[origin]().values())
    return next((data for data in every if data.get("weights") == own), None)
