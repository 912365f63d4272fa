"""Frames of many runs that the audit's tables and figures show, and how they are arranged for reading."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from abc_nb.analysis.results import identity
from abc_nb.bias.window import Window
from abc_nb.model.positions import Sinusoidal
from abc_nb.problems.tasks import LONGEST
from abc_nb.show.titles import task_title, with_titles
from abc_nb.specs.experiment import Name
from abc_nb.specs.models import model_table
from abc_nb.specs.names import ARITHMETIC
from abc_nb.specs.spec import spec
from audit import DATA
from audit.models import BASELINES, WIDTHS
from audit.results import Results
from audit.statistics import BAR, ends, medians, over_seeds
from audit.studies import ABLATED, GROUPS, STUDIES, corner


def pivot(frame: pd.DataFrame, index: list[str], column: str, cells: pd.Series) -> pd.DataFrame:
    """Cells of text: a column for each value of `column`; rows in the order in which the frame first has them."""
    table = frame.assign(cell=cells).pivot(index=index, columns=column, values="cell").fillna("")
    return table.reindex(frame.drop_duplicates(index).set_index(index).index)


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """`over_seeds` for reading: a row per task and model, a column per length; below, the problems per length."""
    frame = with_titles(frame)
    seeds = frame.groupby(["task", "model"]).seeds.transform(lambda counts: ends(sorted(counts)))
    table = pivot(frame.assign(seeds=seeds), ["task", "model", "seeds"], "length", medians(frame))
    table.loc[("problems", "", ""), :] = frame.groupby("length").samples.agg(lambda counts: ends(sorted(counts)))
    return table


def ablations(results: Results) -> pd.DataFrame:
    """ABC and its ablations at sixty digits, task by task: the columns of `over_seeds`, and the median of lines."""
    names = [*results.with_results([Name(task, "abc-unpractised") for task in ABLATED]), *results.names("ablations")]
    biases = [(run, run.bias()) for run in results.runs(names)]
    counts = pd.DataFrame([identity(run) | {"lines": len(bias.lines) if bias else 0} for run, bias in biases])
    lines = counts.groupby(["task", "model"], sort=False).lines.quantile(0.5, interpolation="lower").reset_index()
    table = over_seeds(results.evaluation(names).query("length == 60")).drop(columns=["length", "regime"])
    table = table.merge(lines, on=["task", "model"])
    order = list(dict.fromkeys(table.task))  # the rows of each task together
    return table.sort_values("task", key=lambda tasks: tasks.map(order.index), kind="stable", ignore_index=True)


def by_choice(table: pd.DataFrame) -> pd.DataFrame:
    """`ablations` for reading: a row per choice, a column per task, in each cell `median (worst–best) [lines]`."""
    table = with_titles(table)
    cells = medians(table) + table.lines.map(" [{:.0f}]".format)
    return pivot(table, ["model"], "task", cells)[list(dict.fromkeys(table.task))]


def shortest_wrong(frame: pd.DataFrame) -> pd.DataFrame:
    """`certified.shortest_wrong` for reading: a row per model, a column per task; `none` where a search found none.

    Of a model's seeds the shortest problem; of models that were searched the plain ones alone; no decoder-only models.
    """
    certified = (frame["found by"] == "certificate") & ~frame.model.str.startswith("decoder-")
    frame = frame[certified | frame.model.isin(BASELINES)].reset_index(drop=True)
    shortest = frame.problem.str.len().groupby([frame.task, frame.model]).rank(method="first") == 1
    frame = with_titles(frame[shortest]).replace({"problem": {"": "none"}})
    table = pivot(frame, ["model", "found by"], "task", frame.problem)
    return table.reindex(columns=[task_title(task) for task in ARITHMETIC], fill_value="")


def by_seeds(results: Results) -> pd.DataFrame:
    """The worst accuracy (percent) of Vanilla, windows and ABC by length and seeds; how many runs, and all right."""
    models = ("vanilla", "abs-unpractised", "abs", "window-cyclic", "window-cyclic-practised", "abc-unpractised", "abc")
    parts = []
    for group, seeds in GROUPS.items():
        of_group = replace(results, seeds=seeds)
        if names := of_group.with_results([Name(task, model) for task in ARITHMETIC for model in models]):
            parts.append(of_group.evaluation(names).assign(seeds=group))
    rows = pd.concat(parts, ignore_index=True)
    rows = rows[rows.length.isin([6, 60, 200])].assign(worst=100 * rows.accuracy, right=rows.accuracy == 1)
    grouped = rows.groupby(["task", "model", "length", "seeds"], sort=False)
    return grouped.agg(worst=("worst", "min"), runs=("worst", "size"), right=("right", "sum")).reset_index()


def by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """`by_seeds` for reading: a row per task and model, a column per length and a group of seeds."""
    frame = with_titles(frame.sort_values("length", kind="stable"))
    runs = frame.groupby("seeds").runs.transform("max").astype(str)
    group = frame.length.astype(str) + " digits, seeds " + frame.seeds + " (" + runs + " runs)"
    wide = frame.assign(group=group).pivot(index=["task", "model"], columns="group", values="worst")
    return wide[list(dict.fromkeys(group))].round(2)


def widths(results: Results, tasks: Sequence[str], lengths: Sequence[int]) -> pd.DataFrame:
    """Models trained at one width of their problems and at several: the columns of `over_seeds`."""
    parts = []
    for task, (model, widened) in itertools.product(tasks, WIDTHS.items()):
        for name in results.with_results([Name(task, model), Name(task, widened)]):
            count = len(spec(name, results.profile).sampler.widths)
            title = f"{model_table()[widened].title}, {count} width{'s' * (count > 1)}"
            parts.append(results.evaluation([name]).assign(model=title))
    rows = pd.concat(parts)
    return over_seeds(rows[rows.length.isin(lengths)])


def by_window_and_period(results: Results, study_name: str, *models: str) -> pd.DataFrame:
    """The columns of `over_seeds`, of these models and a study's; window w (`–`: none) and period T (0: none)."""
    parts, study = [], corner(STUDIES[study_name], results.profile)
    for model in (*models, *study.models):
        config = spec(Name(study.tasks[0], model), results.profile).model
        w = str(config.bias.w) if isinstance(config.bias, Window) else "–"
        t = config.position.period or 0 if isinstance(config.position, Sinusoidal) else 0
        if names := results.with_results([Name(task, model) for task in study.tasks]):  # `smoke` has a corner of it
            parts.append(over_seeds(results.evaluation(names)).assign(w=w, T=t))
    return pd.concat(parts, ignore_index=True)


def by_period(frame: pd.DataFrame, lengths: Sequence[int]) -> pd.DataFrame:
    """`by_window_and_period` for reading: a column per period, in each cell `median (worst–best)`."""
    frame = with_titles(frame[frame.length.isin(lengths)])
    index = ["task", "w", "length"] if frame.w.nunique() > 1 else ["task", "length"]
    return pivot(frame, index, "T", medians(frame)).sort_index()


def reach(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """How far beyond their training length systems hold: system, trained, tested (digits), source.

    Others as they report it; ours up to the longest tested length before one falls below the bar, median seed.
    """
    others = pd.read_csv(DATA / "systems.csv")
    ours = []
    for model, part in with_titles(over_seeds(rows[rows.task == task])).groupby("model", sort=False):
        ordered = part.sort_values("length")
        longest = ordered.length[(ordered.ours >= 100 * BAR).cummin()].max()
        ours.append((f"{model}, here", LONGEST, 0 if pd.isna(longest) else int(longest), "this notebook"))
    return pd.concat([others, pd.DataFrame(ours, columns=list(others))], ignore_index=True)
