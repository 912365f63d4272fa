"""The report of a profile, `REPORT.md` and `runs.csv`; and the numbers that README states, too."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.analysis import certified
from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.runs.store import Run
from abc_nb.show.titles import model_titles
from abc_nb.specs.models import model_table
from abc_nb.specs.names import ARITHMETIC
from audit import DATA
from audit.claims import VERDICTS
from audit.ledger import ledger, unlike_the_paper, usual_size
from audit.results import Results
from audit.statistics import percent
from audit.studies import names_of, studies_of

SHOWN_LENGTHS = (6, 10, 60)
ROWS = model_titles(["vanilla", "abs", "abc", "decoder-vanilla", "decoder-abs", "decoder-abc"])
ROWS["vanilla"] += " (plain model)"
LENGTHS = (6, 60, 200)


def write(results: Results) -> Path:
    """Write `REPORT.md` and `runs.csv` next to the profile's figures; gives the page's path.

    `runs.csv` lists the runs that notebooks read with these results; of those not made here, shipped ones.
    """
    folder, profile = paths.figures(results.profile), results.profile
    everywhere = results if results.origin == "shipped" else results.or_shipped()
    runs = everywhere.existing_runs(names_of(*studies_of(profile), profile=profile))
    write_text(folder / "runs.csv", pd.DataFrame([run_row(run) for run in runs]).to_csv(index=False))
    book, shipped = ledger(profile), sum(run.shipped for run in runs)
    counts = book.verdict[book.verdict != "definition"].value_counts()
    template = (DATA / "report.md").read_text(encoding="utf-8")
    page = template.format(
        profile=profile,
        seeds=", ".join(map(str, results.seeds)),
        worst=worst_runs(results),
        claims=counts.sum(),
        verdicts=", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if verdict in counts),
        size=usual_size(profile),
        differing="\n".join(map(sentence, unlike_the_paper(book).itertuples())),
        shipped=f"All {shipped:,}" if shipped == len(runs) else f"{shipped:,} of {len(runs):,}",
    )
    return write_text(folder / "REPORT.md", page)


def sentence(claim: Any) -> str:
    """A claim that did not come out as the paper says, as a line of a list."""
    counts = f" ({escape(claim.runs)})" if claim.runs else ""
    return f"- {claim.id}, {claim.verdict}{counts}: {escape(claim.claim)}."


def escape(text: str) -> str:
    """Text with all that has a meaning in Markdown escaped."""
    return re.sub(r"([\\|$*_<`\[\]])", r"\\\1", text)


def run_row(run: Run) -> dict[str, object]:
    """What was trained, how long, how well, where and when."""
    accuracy, facts = run.evaluation().set_index("length").accuracy, run.facts
    row = {"experiment": run.spec.name, "seed": run.seed, "steps": facts["steps"]}
    row |= {"seconds": round(sum(facts["seconds"].values()))}
    row |= {f"right at {n} (%)": f"{100 * accuracy[n]:.1f}" if n in accuracy else "" for n in SHOWN_LENGTHS}
    row |= {"made": "shipped" if run.shipped else "here"} | {key: facts[key] for key in ("device", "date")}
    return row | {"torch": facts["versions"]["torch"]}


def worst_runs(results: Results, models: Sequence[str] = tuple(ROWS)) -> str:
    """The worst run (percent) by method and length, and how many are certified: the table of README, too."""
    practised, rows = certified.practice(results), list[tuple[str, ...]]()
    for model in models:
        if runs := results.existing_runs([f"{task}-{model}" for task in ARITHMETIC]):
            tests = pd.concat([run.evaluation() for run in runs])
            worst = [tests[tests.length == length].accuracy.min() for length in LENGTHS]
            cells = ["–" if pd.isna(accuracy) else percent(100 * accuracy) for accuracy in worst]
            proven = practised[practised.model == model].after
            parents = results.existing_runs([f"{task}-{model_table()[model].parent}" for task in ARITHMETIC])
            count = f"{proven.sum()} of {max(len(proven), len(parents))}" if len(proven) else "–"
            rows.append((ROWS[model], *cells, count))
    head = [("", *(f"{length} digits" for length in LENGTHS), "certified"), ("---",) * (len(LENGTHS) + 2)]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in [*head, *rows] if rows)
