"""Tables: the paper's number next to ours, and files for print."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from abc_nb.analysis.claims import Scores
from abc_nb.analysis.results import Results, identity
from abc_nb.analysis.statistics import BAR, median_and_range, median_seed, over_seeds, seed_counts
from abc_nb.bias.window import Window
from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.experiments import ABLATED, ARITHMETIC, BINARY, Name, experiment
from abc_nb.experiments.catalogue import ALGORITHM_1, MODELS, PERIODS, READINGS, WIDTHS, WINDOWS
from abc_nb.experiments.profiles import PROFILES, TABLE
from abc_nb.experiments.studies import STUDIES, corner
from abc_nb.model.positions import Sinusoidal
from abc_nb.problems.tasks import LONGEST
from abc_nb.runs.store import Run
from abc_nb.show.titles import named, of_task

ABOUT = ("task", "base", "model", "method", "seed", "length")  # columns that say what a row is about
PAPER_TITLES = {"+ w=1": "Window", "+ T=3": "ABS", "NoPE + w=1": "Window, no positions"}  # its names, and ours
DEVELOPED = 5  # seeds, the first ones, with which methods were developed
FRESH = range(DEVELOPED, 10)  # those that were trained once, at the end
TABLE_LENGTHS = {"table1": TABLE, "table3": (6, 10, 20, 60)}


def paper_numbers(table: str) -> pd.DataFrame:
    """The paper's percentages of a table: task, model, length, paper."""
    numbers = pd.read_csv(paths.DATA / "paper_tables.csv", dtype=str)
    numbers = numbers[(numbers.table == table) & numbers.length_digits.str.isdigit().fillna(False)]
    length = numbers.length_digits.astype(int)
    return pd.DataFrame(
        {
            "task": numbers.task,
            "model": numbers.model.replace(PAPER_TITLES),
            "length": length,
            "paper": pd.to_numeric(numbers.accuracy_percent),
        }
    ).reset_index(drop=True)


def beside_paper(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    """`over_seeds` at the table's lengths, with the paper's number in the column `paper`."""
    ours = named(over_seeds(rows[rows.length.isin(TABLE_LENGTHS[table])]))
    known = paper_numbers(table)
    if (known.model == "+ scratchpad").any():  # as the paper calls Vanilla on Parity, where it has that
        ours.loc[(ours.task == "Parity") & (ours.model == "Vanilla"), "model"] = "+ scratchpad"
    merged = ours.merge(known, how="left", on=["task", "model", "length"])
    first = ["task", "model", "length", "paper"]
    return merged[first + [column for column in merged if column not in first]]


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    """For reading: a row a task and model, and for each length `paper | ours (worst–best seed)` in percent."""

    def cell(row: pd.Series) -> str:
        paper = "–" if pd.isna(row.paper) else f"{row.paper:.4g}"
        return f"{paper} | {median_and_range(row)}"

    cells = frame.assign(cell=frame.apply(cell, axis=1))
    order = cells[["task", "model"]].drop_duplicates()
    table = cells.pivot(index=["task", "model"], columns="length", values="cell")
    return table.loc[list(order.itertuples(index=False, name=None))].fillna("")


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """`over_seeds` for reading: a row a task and model, a column a length, and below them the problems a length."""
    frame = named(frame)
    rows = ["task", "model", "seeds"]
    cells = frame.assign(cell=frame.apply(median_and_range, axis=1), seeds=seed_counts(frame))
    table = cells.pivot(index=rows, columns="length", values="cell").fillna("")
    table = table.loc[list(cells[rows].drop_duplicates().itertuples(index=False, name=None))]
    table.loc[("problems", "", ""), :] = frame.groupby("length").samples.agg(
        lambda n: " to ".join(map(str, sorted(set(n))))
    )
    return table


def interpolation(found: Results) -> pd.DataFrame:
    """Table 2 of Vanilla's runs."""
    names = [f"{task}-vanilla" for task in ARITHMETIC]
    return interpolation_table(found.trainings(names), found.evaluation(names))


def interpolation_table(trainings: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 2: does Vanilla interpolate (validation) and extrapolate (60 digits) at 99% or better?"""
    paper = pd.read_csv(paths.DATA / "paper_tables.csv", dtype=str)
    paper = paper[paper.table == "table2"].pivot(index="task", columns="length_digits", values="accuracy_percent")
    trainings, rows = named(trainings), named(rows)
    validation = trainings.groupby("task", sort=False).validation.agg(median_seed)
    longest = rows[rows.length == 60].groupby("task", sort=False).accuracy.agg(median_seed)
    found = [
        {
            "task": task,
            "interpolation, paper": paper.loc[task, "interpolation"],
            "interpolation, ours": "yes" if validation[task] >= BAR else "no",
            "validation (%)": 100 * validation[task],
            "extrapolation, paper": paper.loc[task, "extrapolation"],
            "extrapolation, ours": "yes" if longest[task] >= BAR else "no",
            "60 digits (%)": 100 * longest[task],
        }
        for task in validation.index
    ]
    return pd.DataFrame(found)


def kept_lines(runs: Sequence[Run]) -> pd.DataFrame:
    """How many lines calibrated runs keep, the median over seeds: task, model, lines, those of cross-attention."""
    rows = []
    for run in runs:
        bias = run.bias()
        lines = bias.lines if bias else ()
        cross = sum(line.attention == "cross" for line in lines)
        rows.append(identity(run) | {"lines": len(lines), "cross": cross})
    counts = ["lines", "cross"]
    return pd.DataFrame(rows).groupby(["task", "model"], sort=False)[counts].agg(median_seed).reset_index()


def ablations(found: Results, length: int = 60) -> pd.DataFrame:
    """ABC and its ablations at one length, task by task: the columns of `over_seeds`, and lines."""
    unchanged = found.there([Name(task, "abc-mod3-warm") for task in ABLATED])
    names = [*unchanged, *found.names("ablations")]
    rows, kept = found.evaluation(names), kept_lines(found.runs(names))
    wanted = rows[(rows.length == length) & rows.model.isin(kept.model)]
    table = over_seeds(wanted).drop(columns=["length", "regime"])
    table = table.merge(kept[["task", "model", "lines"]], how="left", on=["task", "model"])
    return by_task(table)


def readings(found: Results, regime: str) -> pd.DataFrame:
    """ABC in every reading: runs at the bar at 60 digits, of those made, by task.

    Rows say whose lines, which positions and which initial weights.
    """
    scores = Scores(found.rows("abc", "readings", "algorithm 1", "padded"))
    rows, end = [], "" if regime == "tight" else f"-{regime}"
    for model in ("abc", *READINGS, *ALGORITHM_1):
        title = MODELS[model].title if model != "abc" else "ABC: no positions, new weights"
        counts = {of_task(task): scores.at_bar(task, model + end) for task in ARITHMETIC}
        rows.append({"reading": title} | {task: str(count) if count.runs else "" for task, count in counts.items()})
    table = pd.DataFrame(rows).set_index("reading")
    return table.loc[(table != "").any(axis=1), (table != "").any(axis=0)]


def shortest_wrong(frame: pd.DataFrame) -> pd.DataFrame:
    """`shortest.of_every_model` for reading: a row a model, a column a task; `none` where a search found none."""
    rows, tasks = ["model", "seed", "found by"], [of_task(task) for task in ARITHMETIC]
    cells = named(frame).replace({"problem": {"": "none"}})
    table = cells.pivot(index=rows, columns="task", values="problem").reindex(columns=tasks, fill_value="").fillna("")
    return table.loc[list(cells[rows].drop_duplicates().itertuples(index=False, name=None))]


def fresh_seeds(found: Results, lengths: Sequence[int] = (60, 200)) -> pd.DataFrame:
    """The worst accuracy (percent) of ABS and ABC over seeds 0 to 4, and later ones: task, model, length, seeds, worst.

    `runs` says how many there are, and `right` how many of them are right on every problem.
    """
    rows = replace(found, seeds=range(FRESH.stop)).rows("abc", "scaffolds")
    rows = rows[rows.length.isin(lengths) & rows.model.isin(["window-cyclic", "abc"])]
    fresh = f"{DEVELOPED} to {rows.seed.max()}"
    rows = rows.assign(seeds=[f"0 to {DEVELOPED - 1}" if seed < DEVELOPED else fresh for seed in rows.seed])
    grouped = rows.groupby(["task", "model", "length", "seeds"], sort=False).accuracy
    return grouped.agg(
        worst=lambda part: 100 * part.min(), runs="size", right=lambda part: (part == 1).sum()
    ).reset_index()


def by_task(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task together, in the order in which tasks first stand there."""
    order = list(dict.fromkeys(table.task))
    return table.sort_values("task", key=lambda tasks: tasks.map(order.index), kind="stable", ignore_index=True)


def by_choice(table: pd.DataFrame) -> pd.DataFrame:
    """`ablations` for reading: a row a choice, a column a task, in each cell `median (worst–best) [lines]`."""
    table = named(table)
    counted = table.lines.map(lambda lines: "" if pd.isna(lines) else f" [{lines:.0f}]")
    shown = table.assign(shown=table.apply(median_and_range, axis=1) + counted)
    cells = shown.pivot(index="model", columns="task", values="shown")
    return cells.loc[list(dict.fromkeys(table.model)), list(dict.fromkeys(table.task))].fillna("")


def widths(found: Results, tasks: Sequence[str], lengths: Sequence[int]) -> pd.DataFrame:
    """Models trained at one width of their problems and at several: the columns of `over_seeds`."""
    parts = []
    for task, (one, several) in itertools.product(tasks, WIDTHS.items()):
        for name in found.there([Name(task, one), Name(task, several)]):
            count = len(experiment(name, found.profile).sampler.widths)
            title = f"{MODELS[several].title}, {count} width{'s' * (count > 1)}"
            parts.append(found.evaluation([name]).assign(model=title))
    rows = pd.concat(parts)
    return over_seeds(rows[rows.length.isin(lengths)])


def grid(found: Results) -> pd.DataFrame:
    """The short training over window and period, all tasks: the columns of `by_window_and_period`."""
    study = corner(STUDIES["grid"], found.profile)
    return by_window_and_period(found, study.models, study.tasks)


def periods(found: Results) -> pd.DataFrame:
    """The window w=1 with each period after the whole training, binary tasks: as `by_window_and_period`."""
    return by_window_and_period(found, ["window-cyclic-both", *PERIODS], BINARY)


def windows(found: Results) -> pd.DataFrame:
    """The window to one side by width and period after the whole training: as `by_window_and_period`."""
    return by_window_and_period(found, ["window-cyclic", *WINDOWS], STUDIES["windows"].tasks)


def by_window_and_period(found: Results, models: Sequence[str], tasks: Sequence[str]) -> pd.DataFrame:
    """The columns of `over_seeds`, and each model's window w (`–`: none) and period T (0: none)."""
    parts = []
    for model in models:
        config = experiment(Name(tasks[0], model), found.profile).model
        w = str(config.bias.w) if isinstance(config.bias, Window) else "–"
        t = config.position.period or 0 if isinstance(config.position, Sinusoidal) else 0
        if names := found.there([Name(task, model) for task in tasks]):  # `smoke` has a corner of it
            parts.append(over_seeds(found.evaluation(names)).assign(w=w, T=t))
    return pd.concat(parts, ignore_index=True)


def by_period(frame: pd.DataFrame, lengths: Sequence[int]) -> pd.DataFrame:
    """`by_window_and_period` for reading: a column a period, in each cell `median (worst–best)`."""
    cells = named(frame[frame.length.isin(lengths)])
    cells = cells.assign(cell=cells.apply(median_and_range, axis=1))
    rows = ["task", "w", "length"] if frame.w.nunique() > 1 else ["task", "length"]
    return cells.pivot(index=rows, columns="T", values="cell").fillna("")


def by_seed(trainings: pd.DataFrame) -> pd.DataFrame:
    """`Results.trainings` for reading: validation in percent, a row a model, a column a seed."""
    return (100 * named(trainings).pivot(index="model", columns="seed", values="validation")).round(1)


def by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """`fresh_seeds` for reading: a row a task and model, a column a length and a group of seeds."""
    of_group = frame.groupby("seeds").runs.transform("max").astype(str)
    group = frame.length.astype(str) + " digits, seeds " + frame.seeds + " (" + of_group + " runs)"
    order = list(dict.fromkeys(group[frame.sort_values(["length", "seeds"]).index]))
    wide = named(frame).assign(group=group).pivot(index=["task", "model"], columns="group", values="worst")
    return wide[order].round(2)


def reach(rows: pd.DataFrame, task: str, trained: int = LONGEST) -> pd.DataFrame:
    """How far beyond their training length systems hold: system, trained, tested (digits), source.

    Trained is the longest number's length. Others as they report it; ours up to the length from which on a
    tested one falls below the bar, median seed.
    """
    others = pd.read_csv(paths.DATA / "systems.csv")
    ours = []
    for model, part in named(over_seeds(rows[rows.task == task])).groupby("model", sort=False):
        ordered = part.sort_values("length")
        holds = ordered[(ordered.ours >= 100 * BAR).cummin()]
        longest = int(holds.length.max()) if len(holds) else 0
        ours.append((f"{model}, here", trained, longest, "this notebook"))
    return pd.concat([others, pd.DataFrame(ours, columns=list(others))], ignore_index=True)


def setting(profile: str, regime: str = "") -> str:
    """Regime, size and optimiser of our numbers, in one sentence, for tables with the paper's numbers."""
    chosen = PROFILES[profile]
    size, training = chosen.size, chosen.trainings.plain
    optimizer = "Muon and AdamW" if training.optimizer == "muon" else "AdamW"
    return (
        f"Ours: {regime or chosen.regime} problems, {size.encoder_layers} encoder and {size.decoder_layers} decoder "
        f"layers of embedding size {size.width}, feed-forward {size.feed_forward}, dropout {size.dropout:g}, "
        f"pre-normalisation, {optimizer}. The paper: padded problems, 1 and 6 layers of size 128, feed-forward 512, "
        "dropout 0.3, Adam."
    )


def save(
    frame: pd.DataFrame,
    name: str,
    profile: str,
    display: pd.DataFrame | None = None,
    caption: str = "",
    setting: str = "",
) -> None:
    """Write `frame` as CSV and `display` (by default the same) as Markdown and LaTeX; first what a row is about.

    The caption stands below the table in Markdown and LaTeX, the setting in a column of the CSV file.
    """
    frame = flat(frame)
    if setting:
        frame = frame.assign(setting=setting)
    folder = paths.figures(profile)
    frame = frame[[*(key for key in ABOUT if key in frame), *(column for column in frame if column not in ABOUT)]]
    shown = named(frame if display is None else flat(display)).rename_axis(columns=None)
    plain = caption.replace("*", "").replace("`", "")
    write_text(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
    read = readable(shown)
    escaped = read.map(lambda cell: cell.replace("|", "\\|") if isinstance(cell, str) else cell)
    write_text(
        folder / f"{name}.md",
        escaped.to_markdown(index=False, disable_numparse=True) + "\n" + (caption and f"\n{caption}\n"),
    )
    write_text(folder / f"{name}.tex", read.to_latex(index=False, escape=True, caption=plain or None))


def html(frame: pd.DataFrame) -> str:
    """A table for a notebook: titles for names, four digits of a number, an index only where it has a name."""
    shown, has_names = named(flat(frame)), frame.index.names[0] is not None
    shown = readable(shown)
    shown = shown.set_index([*frame.index.names]) if has_names else shown
    return str(shown.to_html(border=0, index=has_names))


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Every number as text: thousands separated, four digits of a fraction; empty where there is none."""
    return frame.map(number).rename(columns=number)


def number(cell: object) -> object:
    """A number as people write it; anything else as it is."""
    if isinstance(cell, bool | str):
        return cell
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, int) or (isinstance(cell, float) and abs(cell) >= 1000):
        return f"{cell:,.0f}"
    return f"{cell:.4g}" if isinstance(cell, float) else cell


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index as columns, where that has a name."""
    return frame.reset_index() if frame.index.names[0] is not None else frame
