"""The paper's numbers beside ours, and what its Algorithm 1 keeps."""

from typing import Any

import pandas as pd

from abc_nb.analysis.results import identity
from abc_nb.bias.lines import cells_of
from abc_nb.runs.store import Run
from abc_nb.show.titles import task_title, with_titles
from abc_nb.specs.models import BEFORE, UNPRACTISED, model_table
from abc_nb.specs.names import ARITHMETIC
from abc_nb.specs.recipes import PLAIN, PROFILES, TABLE
from audit import DATA, unlearnable
from audit.frames import pivot
from audit.models import SIX_LAYERS
from audit.readings import ALGORITHM_1, READINGS
from audit.results import Results
from audit.statistics import BAR, ends, medians, over_seeds, percent

# Our titles, and the paper's names; it does not say which window its row without positions has.
TITLES = {"Window": "+ w=1", "ABS, plain index": "+ w=1", "Window, index modulo 3": "+ T=3"}
TITLES |= dict.fromkeys(("Window, no positions", "ABS"), "NoPE + w=1")
LENGTHS = {"table1": sorted({*TABLE, 50}), "table3": [6, 10, 20, 50, 60]}  # 50 in version 1, 60 in version 4


def beside_paper(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    """`over_seeds` at the table's lengths, with the paper's percentage in the column `paper`."""
    ours = with_titles(over_seeds(rows[rows.length.isin(LENGTHS[table])]))
    papers = pd.read_csv(DATA / "paper_tables.csv", dtype=str)
    papers = papers[(papers.table == table) & papers.length_digits.str.isdigit().fillna(False)]
    papers = papers.assign(length=papers.length_digits.astype(int), paper=pd.to_numeric(papers.accuracy_percent))
    if (papers.model == "+ scratchpad").any():  # as the paper calls Vanilla on Parity, where it has that
        ours.loc[(ours.task == "Parity") & (ours.model == "Vanilla"), "model"] = "+ scratchpad"
    keys = [ours.task, ours.model.str.removesuffix(BEFORE).replace(TITLES), ours.length]  # the paper has no practice
    ours.insert(3, "paper", papers.set_index(["task", "model", "length"]).paper.reindex(keys).to_numpy())
    return ours


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    """For reading: a row per task and model, and for each length `paper | ours (worst–best seed)` in percent."""
    paper = frame.paper.map(lambda value: "–" if pd.isna(value) else f"{value:.4g}")
    return pivot(frame, ["task", "model"], "length", paper + " | " + medians(frame))


def interpolation(rows: pd.DataFrame) -> pd.DataFrame:
    """Table 2, of evaluation rows: is Vanilla right in 99% of validation and of problems of 60 digits, or more?"""
    by_task = with_titles(rows[(rows.model == "vanilla") & (rows.length == 60)]).groupby("task", sort=False)
    paper = pd.read_csv(DATA / "paper_tables.csv", dtype=str)
    paper = paper[paper.table == "table2"].pivot(index="task", columns="length_digits", values="accuracy_percent")
    columns: dict[str, pd.Series] = {}
    for range_name, column, title in (
        ("interpolation", "validation", "validation (%)"),
        ("extrapolation", "accuracy", "60 digits (%)"),
    ):
        ours = by_task[column].quantile(0.5, interpolation="lower")
        columns[f"{range_name}, paper"] = paper[range_name]
        columns[f"{range_name}, ours"] = ours.ge(BAR).map({True: "yes", False: "no"})
        columns[title] = 100 * ours
    return pd.DataFrame(columns).loc[list(by_task.groups)].rename_axis("task").reset_index()


def readings(results: Results, regime: str) -> pd.DataFrame:
    """ABC by whose lines, which positions and which weights: `at_sixty`."""
    suffix = "" if regime == "tight" else f"-{regime}"
    titles = {f"abc{suffix or UNPRACTISED}": "ABC: no positions, new weights"}
    titles |= {f"{model}{suffix}": model_table()[model].title for model in (*READINGS, *ALGORITHM_1)}
    rows = results.rows("abc", "readings", "algorithm 1", "padded")
    cells = at_sixty(rows[rows.model.isin(titles)], least=0)
    models = [model for model in titles if model in cells.index]
    return cells.reindex(models).rename(index=titles).rename_axis("reading")


def at_sixty(rows: pd.DataFrame, least: int = 1) -> pd.DataFrame:
    """Runs at the bar at 60 digits, of those made: a row a model of which so many are, a column a task."""
    rows = rows[rows.length == 60]
    counts = rows.accuracy.ge(BAR).groupby([rows.model, rows.task], sort=False).agg(["sum", "size"])
    counts = counts[counts["sum"].groupby("model").transform("sum") >= least]
    cells = (counts["sum"].astype(str) + " of " + counts["size"].astype(str)).unstack(fill_value="")
    return cells[[task for task in ARITHMETIC if task in cells]].rename(columns=task_title).rename_axis(columns=None)


def setting(profile: str, regime: str = "") -> str:
    """Regime, size and optimiser of our numbers, in words, for tables with the paper's numbers."""
    size = PROFILES[profile].size
    optimizer = "Muon and AdamW" if PLAIN[profile].optimizer == "muon" else "AdamW"
    return (
        f"Ours: {regime or PROFILES[profile].regime} problems, {size.encoder_layers} encoder and "
        f"{size.decoder_layers} decoder layers of embedding size {size.width}, feed-forward {size.feed_forward}, "
        f"dropout {size.dropout:g}, pre-normalisation, {optimizer}. The paper: padded problems, 1 and 6 layers of "
        "size 128, feed-forward 512, dropout 0.3, Adam."
    )


COMPARED = ("abc", "abc-unpractised", "abc-last-layer", *ALGORITHM_1)
SUFFIXES = ("", "-padded", *SIX_LAYERS)  # of a reading's names in other regimes and sizes
SHARES = {  # titles of the columns that hold a share from 0 to 1
    "open_heads": "heads without a line",
    "must_be_wrong": "must be wrong",
    "skill": "skill",
    "validation": "validation",
    "twenty": "20 digits",
    "sixty": "60 digits",
}


def algorithm_1(results: Results) -> pd.DataFrame:
    """A row for each run of ABC and of Algorithm 1: task, model, seed, and what `algorithm_1_row` measures."""
    names = results.names("abc", "algorithm 1", "padded", "deep", "paper size", "paper size and batch")
    models = {f"{model}{suffix}" for model in COMPARED for suffix in SUFFIXES}
    runs = [run for run in results.existing_runs(names) if run.spec.identity.model in models]
    return pd.DataFrame([algorithm_1_row(run) for run in runs])


def algorithm_1_row(run: Run) -> dict[str, Any]:
    """The last layer's lines of a run, and what its models get right.

    Short lines are seen at less than half of the steps. A head without a line sees every key, unless it is one of
    ours. What must be wrong is a share of small problems, empty for a model with positions. Skill is the plain model's
    under all lines; validation, twenty and sixty digits are the retrained model's.
    """
    experiment, bias = run.spec, run.bias()
    assert bias is not None
    last_layer = max((line.layer for line in bias.lines), default=0)
    lines = [line for line in bias.lines if line.layer == last_layer]
    heads = {(line.attention, line.head) for line in lines}
    layout = experiment.calibration_batch(run.seed).layout
    accuracy, model = run.evaluation().set_index("length").accuracy, experiment.identity.model
    size_title = next((f", {title}" for suffix, title in SIX_LAYERS.items() if model.endswith(suffix)), "")
    return identity(run) | {
        "reading": model_table()[model].title.removesuffix(size_title),
        "layers": experiment.model.decoder_layers,
        "embedding size": experiment.model.width,
        "batch": experiment.training.batch,
        "regime": experiment.sampler.regime,
        "lines": len(lines),
        "short": sum(2 * len(cells_of(line, layout)[0]) < layout.target_length for line in lines),
        "open_heads": 1 - len(heads) / (2 * bias.heads),
        "must_be_wrong": unlearnable.least_wrong(experiment, bias),
        "skill": run.table("thresholds").skill.iloc[-1],
        "validation": run.validation,
        "twenty": accuracy[20],
        "sixty": accuracy[60],
    }


def by_reading(table: pd.DataFrame) -> pd.DataFrame:
    """`algorithm_1` for reading: a row per reading, regime and size, with its tasks and each measure's range."""
    keys = ["layers", "embedding size", "batch", "regime", "reading"]
    rows = []
    for values, group in table.groupby(keys, sort=False):
        row = dict(zip(keys, values, strict=True)) | {"tasks": ", ".join(map(task_title, group.task.unique()))}
        row |= {"runs": len(group)} | {column: ends(sorted(group[column]), "–") for column in ("lines", "short")}
        for column, title in SHARES.items():
            row[title] = ends([*map(percent, sorted(100 * group[column].dropna()))], "–")
        rows.append(row)
    return pd.DataFrame(rows)
