"""What a notebook shows: each call numbers a figure or a table, puts its caption with it, shows and saves it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import over_seeds
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.paper import claims, ledger
from abc_nb.paper.tables import beside_paper, setting, wide
from abc_nb.show import pictures, plots, tables
from abc_nb.show.titles import of_model
from abc_nb.specs.names import Name

OURS = re.compile(r"(figure|table)-(a?\d+)-(\d+)-[a-z][\w-]*")  # notebook, place in its reading order


def captions() -> dict[str, str]:
    """Every caption in Markdown, by name, as `data/captions.csv` has them."""
    known = pd.read_csv(paths.DATA / "captions.csv").set_index("name").caption
    return {str(name): caption for name, caption in known.items()}


def caption(name: str) -> str:
    """Number and caption in Markdown; InputError for a name without one.

    `figure-7-1-reach` is `Figure 7.1`, `table-a1-2-x` is `Table A1.2`, and `table-1` is `Table 1 of the paper`.
    """
    known = captions()
    if name not in known:
        raise InputError(f"{name} has no caption: add a line to abc_nb/data/captions.csv")
    kind, first, *rest = name.split("-")
    number = f"{first.upper()}.{rest[0]}" if OURS.fullmatch(name) else f"{first} of the paper"
    return f"**{kind.capitalize()} {number}.** {known[name]}"


@dataclass(frozen=True)
class Exhibits:
    """The figures, tables and verdicts of one notebook, as `Exhibits("07_every_length", "quick")`."""

    notebook: str
    profile: str

    def figure(self, name: str, figure: Figure) -> None:
        """Save a figure as PNG and SVG; show it and below it its caption."""
        said = Markdown(caption(name))
        display(pictures.save(figure, name, self.profile), said)

    def table(self, name: str, frame: pd.DataFrame, shown: pd.DataFrame | None = None, note: str = "") -> None:
        """Save a table as CSV, Markdown and LaTeX; show its caption with a note, and `shown`, or all of it."""
        said = f"{caption(name)} {note}".strip()
        tables.save(frame, name, self.profile, shown, said, note)
        display(Markdown(said), HTML(tables.html(frame if shown is None else shown)))

    def beside_paper(
        self, name: str, rows: pd.DataFrame, paper: str, regime: str = "", models: Sequence[str] = ()
    ) -> None:
        """Evaluation rows next to a table of the paper (`table1`, `table3`); readers see `models`, or all."""
        frame = beside_paper(rows, paper)
        shown = frame[frame.model.isin([of_model(model) for model in models])] if models else frame
        self.table(name, frame, wide(shown), setting(self.profile, regime))

    def by_length(self, name: str, rows: pd.DataFrame, lengths: Sequence[int]) -> None:
        """Evaluation rows over seeds: a row per task and model, a column per length."""
        frame = over_seeds(rows[rows.length.isin(lengths)])
        self.table(name, frame, tables.by_length(frame))

    def curves(self, name: str, rows: pd.DataFrame) -> None:
        """Evaluation rows as curves over the length, a panel per model."""
        self.figure(name, plots.by_length(rows))

    def ledger(self, results: Results) -> None:
        """Judge the claims of this notebook and record the verdicts; show each with its runs and one sentence."""
        own = [claim.id for claim in claims.known().values() if claim.notebook == self.notebook]
        book = ledger.record(claims.judge(results, own), self.notebook, self.profile)
        lines = []
        for row in book.to_dict("records"):
            judged = f"**{row['id']}, {row['verdict']}**" + (f" ({row['runs']})" if row["runs"] else "")
            lines.append(f"- {judged}. The paper: *{row['claim']}.* Here: {row['finding']}")
        display(Markdown("\n".join(lines)))

    def provenance(self, results: Results, names: Sequence[str | Name]) -> None:
        """Where the results of these experiments come from, in one line."""
        display(Markdown(results.provenance(names)))
