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


def arranged(frame: pd.DataFrame, rows: list[str], column: str, cells: pd.Series) -> pd.DataFrame:
    """Cells of text by rows, in the order in which they first stand there, and a column's values."""
    table = frame.assign(cell=cells).pivot(index=rows, columns=column, values="cell").fillna("")
    return table.reindex(frame.drop_duplicates(rows).set_index(rows).index)


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """`over_seeds` for reading: a row per task and model, a column per length; below, the problems per length."""
    frame = with_titles(frame)
    seeds = frame.seeds.groupby([frame.task, frame.model]).agg(lambda own: ends(sorted(own)))
    counted = frame.drop(columns="seeds").join(seeds, on=["task", "model"])
    table = arranged(counted, ["task", "model", "seeds"], "length", medians(frame))
    table.loc[("problems", "", ""), :] = frame.groupby("length").samples.agg(lambda own: ends(sorted(own)))
    return table


def ablations(found: Results) -> pd.DataFrame:
    """ABC and its ablations at sixty digits, task by task: the columns of `over_seeds`, and the median of lines."""
    names = [*found.with_results([Name(task, "abc-unpractised") for task in ABLATED]), *found.names("ablations")]
    rows, runs = found.evaluation(names), [(run, run.bias()) for run in found.runs(names)]
    lines = pd.DataFrame([identity(run) | {"lines": len(bias.lines) if bias else 0} for run, bias in runs])
    kept = lines.groupby(["task", "model"], sort=False).lines.quantile(0.5, interpolation="lower").reset_index()
    rows = rows[(rows.length == 60) & rows.model.isin(kept.model)]
    table = over_seeds(rows).drop(columns=["length", "regime"]).merge(kept, how="left", on=["task", "model"])
    order = list(dict.fromkeys(table.task))  # the rows of each task together
    return table.sort_values("task", key=lambda tasks: tasks.map(order.index), kind="stable", ignore_index=True)


def by_choice(table: pd.DataFrame) -> pd.DataFrame:
    """`ablations` for reading: a row per choice, a column per task, in each cell `median (worst–best) [lines]`."""
    table = with_titles(table)
    counted = table.lines.map(lambda lines: "" if pd.isna(lines) else f" [{lines:.0f}]")
    return arranged(table, ["model"], "task", medians(table) + counted)[list(dict.fromkeys(table.task))]


def shortest_wrong(frame: pd.DataFrame) -> pd.DataFrame:
    """`certified.shortest_wrong` for reading: a row per model, a column per task; `none` where a search found none.

    Of a model's seeds the shortest problem; of models that were searched the plain ones alone; no decoder-only models.
    """
    chosen = (frame["found by"] == "certificate") & ~frame.model.str.startswith("decoder-")
    cells = frame[chosen | frame.model.isin(BASELINES)].reset_index(drop=True)
    shortest = cells.problem.str.len().groupby([cells.task, cells.model]).rank(method="first") == 1
    cells = with_titles(cells[shortest]).replace({"problem": {"": "none"}})
    table = arranged(cells, ["model", "found by"], "task", cells.problem)
    return table.reindex(columns=[task_title(task) for task in ARITHMETIC], fill_value="")


def by_seeds(found: Results) -> pd.DataFrame:
    """The worst accuracy (percent) of Vanilla, windows and ABC by length and seeds; how many runs, and all right."""
    models = ("vanilla", "abs-unpractised", "abs", "window-cyclic", "window-cyclic-practised", "abc-unpractised", "abc")
    parts = []
    for group, seeds in GROUPS.items():
        own = replace(found, seeds=seeds)
        if there := own.with_results([Name(task, model) for task in ARITHMETIC for model in models]):
            parts.append(own.evaluation(there).assign(seeds=group))
    rows = pd.concat(parts, ignore_index=True)
    rows = rows[rows.length.isin([6, 60, 200])].assign(worst=100 * rows.accuracy, right=rows.accuracy == 1)
    grouped = rows.groupby(["task", "model", "length", "seeds"], sort=False)
    return grouped.agg(worst=("worst", "min"), runs=("worst", "size"), right=("right", "sum")).reset_index()


def by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """`by_seeds` for reading: a row per task and model, a column per length and a group of seeds."""
    frame = with_titles(frame.sort_values("length", kind="stable"))
    of_group = frame.groupby("seeds").runs.transform("max").astype(str)
    group = frame.length.astype(str) + " digits, seeds " + frame.seeds + " (" + of_group + " runs)"
    wide = frame.assign(group=group).pivot(index=["task", "model"], columns="group", values="worst")
    return wide[list(dict.fromkeys(group))].round(2)


def widths(found: Results, tasks: Sequence[str], lengths: Sequence[int]) -> pd.DataFrame:
    """Models trained at one width of their problems and at several: the columns of `over_seeds`."""
    parts = []
    for task, (one, several) in itertools.product(tasks, WIDTHS.items()):
        for name in found.with_results([Name(task, one), Name(task, several)]):
            count = len(spec(name, found.profile).sampler.widths)
            title = f"{model_table()[several].title}, {count} width{'s' * (count > 1)}"
            parts.append(found.evaluation([name]).assign(model=title))
    rows = pd.concat(parts)
    return over_seeds(rows[rows.length.isin(lengths)])


def by_window_and_period(found: Results, study: str, *more: str) -> pd.DataFrame:
    """The columns of `over_seeds` of a study and more models, with the window w (`–`: none) and period T (0: none)."""
    parts, chosen = [], corner(STUDIES[study], found.profile)
    for model in (*more, *chosen.models):
        config = spec(Name(chosen.tasks[0], model), found.profile).model
        w = str(config.bias.w) if isinstance(config.bias, Window) else "–"
        t = config.position.period or 0 if isinstance(config.position, Sinusoidal) else 0
        if names := found.with_results([Name(task, model) for task in chosen.tasks]):  # `smoke` has a corner of it
            parts.append(over_seeds(found.evaluation(names)).assign(w=w, T=t))
    return pd.concat(parts, ignore_index=True)


def by_period(frame: pd.DataFrame, lengths: Sequence[int]) -> pd.DataFrame:
    """`by_window_and_period` for reading: a column per period, in each cell `median (worst–best)`."""
    frame = with_titles(frame[frame.length.isin(lengths)])
    rows = ["task", "w", "length"] if frame.w.nunique() > 1 else ["task", "length"]
    return frame.assign(cell=medians(frame)).pivot(index=rows, columns="T", values="cell").fillna("")


def reach(rows: pd.DataFrame, task: str, trained: int = LONGEST) -> pd.DataFrame:
    """How far beyond their training length systems hold: system, trained, tested (digits), source.

    Others as they report it; ours up to the length from which on a tested one falls below the bar, median seed.
    """
    others = pd.read_csv(DATA / "systems.csv")
    ours = []
    for model, part in with_titles(over_seeds(rows[rows.task == task])).groupby("model", sort=False):
        ordered = part.sort_values("length")
        holds = ordered.length[(ordered.ours >= 100 * BAR).cummin()].max()
        ours.append((f"{model}, here", trained, 0 if pd.isna(holds) else int(holds), "this notebook"))
    return pd.concat([others, pd.DataFrame(ours, columns=list(others))], ignore_index=True)
